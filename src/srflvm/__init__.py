"""Scalable random feature latent variable models with the face of scikit-learn."""

from srflvm._version import __version__

__all__ = ["__version__"]
