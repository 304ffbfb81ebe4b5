"""Posterior of a fitted model, and all that is computed from it: embedding, decoding, scores, draws.

`base` has the interface, and `gaussian` and `sites` its two kinds. This package may import `data`,
`likelihoods` and `numerics`, and knows neither how a model is fitted nor how many processes there are.
"""
