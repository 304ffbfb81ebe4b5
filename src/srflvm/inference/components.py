"""Number of latent dimensions by relevance, from Bayesian PCA of some rows."""

from __future__ import annotations

import numpy as np

from srflvm.data.encoding import Layout
from srflvm.inference.facts import Survey, TrainingData
from srflvm.numerics.bayesian_pca import LinearFactors

_MOST_ROWS = 2000

# Dimensions are counted in tables with at most so many columns. In wider ones, such as images, it costs as
# much to find that some are not relevant as to fit them: they get a third as many as columns, within a bound.
_MOST_COLUMNS = 64
_MOST_COMPONENTS = 128

# A dimension counts if what it explains, over all standardised columns, is more than this: the variance of
# one column is 1.
_SMALLEST_VARIANCE = 0.03


def automatic_components(data: TrainingData, rng: np.random.RandomState) -> int:
    """Return how many dimensions a linear model finds relevant, and one more for what is not linear.

    Never as many as there are columns: a model with so many could copy each of them.
    """
    index = np.sort(rng.permutation(data.n_rows)[:_MOST_ROWS])
    rows = data.source.take(index)
    if np.isnan(rows).all(axis=0).any():
        _, rows = Survey.of(data).draw_landmarks(data, _MOST_ROWS, rng)
    data.choice.check(rows, data.names)
    layout = Layout.from_data(rows, data.choice)
    values = layout.working(layout.encode(rows))
    n_columns = rows.shape[1]
    most = max(1, min(n_columns - 1, len(rows) // 3))
    if n_columns > _MOST_COLUMNS:
        return min(most, n_columns // 3, _MOST_COMPONENTS)
    if most == 1:
        return 1
    factors = LinearFactors.fit(values - np.nanmean(values, axis=0), most, rng)
    relevant = int(np.sum(values.shape[1] * factors.relevance > _SMALLEST_VARIANCE))
    return min(relevant + 1, most)
