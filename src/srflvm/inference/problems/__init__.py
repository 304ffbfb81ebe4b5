"""Problems: training data as the run of a fit sees them, one kind for each kind of fit."""
