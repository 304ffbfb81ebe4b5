"""The systems that the paper compares with, each behind `fit_transform`."""
