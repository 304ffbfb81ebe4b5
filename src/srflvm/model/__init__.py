"""Model of SRFLVM as `bcd` sees it: its state, its evidence lower bound and the blocks that raise it.

`elbo` has the state, the bound and the blocks, `spectral` the mixture over frequencies, `evidence_layers` the
terms of the data in the bound, and `sites` the approximation of likelihoods that are not Gaussian. The
package imports `data`, `likelihoods`, `bcd`, `numerics` and what is below them, and does not depend on
processes.
"""
