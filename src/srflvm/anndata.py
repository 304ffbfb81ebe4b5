"""Fits of annotated matrices of single cells, in the manner of scanpy. Needs the package anndata."""

from __future__ import annotations

from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm._version import __version__
from srflvm.data.sources import listed, with_columns
from srflvm.data.tables.h5ad import open_matrix
from srflvm.estimator import SRFLVM
from srflvm.exceptions import DataError

_PLAIN = (bool, int, float, str)


def srflvm(
    adata: Any,
    layer: str | None = None,
    n_components: int = 2,
    *,
    mask_var: Any = None,
    use_raw: bool = False,
    key_added: str = "X_srflvm",
    decoded_layer: str | None = None,
    copy: bool = False,
    **settings: Any,
) -> Any:
    """Embed the observations of an AnnData object and keep the results in it.

    Parameters
    ----------
    adata : AnnData
        Counts are best given as they are, with `likelihood="negative_binomial"`.
    layer : str, default=None
        The layer to embed; None means X.
    n_components : int, default=2
    mask_var : str or boolean array, default=None
        The variables to use: true where they are, or the name of such a column of `adata.var`, such as
        "highly_variable". None uses all of them.
    use_raw : bool, default=False
        Embed `adata.raw.X`, with the variables there.
    key_added : str, default="X_srflvm"
        Where in `obsm` the latents go; their standard deviations go beside them, with "_std" added, and
        settings and results into `uns`, under the same name without "X_".
    decoded_layer : str, default=None
        A layer for the expected entries that the model decodes from the latents; for counts with size factors
        these are the entries of a row of size one. Variables that were not used get NaN.
    copy : bool, default=False
        Return a changed copy and leave `adata` as it is.
    **settings
        Parameters of `SRFLVM`, such as `likelihood` and `random_state`.

    Returns
    -------
    AnnData or None
        The copy, if there is one.

    Examples
    --------
    >>> import srflvm.anndata
    >>> srflvm.anndata.srflvm(adata, layer="counts", likelihood="negative_binomial")  # doctest: +SKIP
    >>> scanpy.pp.neighbors(adata, use_rep="X_srflvm")  # doctest: +SKIP
    """
    _check_choices(adata, layer, use_raw, decoded_layer)
    found = (adata.to_memory() if adata.isbacked else adata.copy()) if copy else adata
    of = found.raw if use_raw else found
    table = open_matrix(of, layer)
    used = _used_variables(of, mask_var, "adata.raw.var" if use_raw else "adata.var")
    chosen = table if len(used) == of.shape[1] else with_columns(table, used)
    model = SRFLVM(n_components, **settings).fit(chosen)
    attach(found, model, model.embedding_, model.embedding_std_, key_added)
    if decoded_layer is not None:
        decoded = np.full(found.shape, np.nan)
        decoded[:, used] = model.inverse_transform(model.embedding_)
        found.layers[decoded_layer] = decoded
    return found if copy else None


def _check_choices(adata: Any, layer: str | None, use_raw: bool, decoded_layer: str | None) -> None:
    if not isinstance(use_raw, bool):
        raise TypeError(f"use_raw={use_raw!r} must be True or False.")
    if not use_raw:
        return
    if layer is not None:
        raise ValueError(f"use_raw=True and layer={layer!r} name two matrices. Give only one of them.")
    if decoded_layer is not None:
        raise ValueError(
            "decoded_layer has the variables of adata, but use_raw=True decodes those of adata.raw. Leave "
            "one of them out."
        )
    if adata.raw is None:
        raise DataError("use_raw=True asks for adata.raw, which is not set. Leave use_raw out to use X.")


def _used_variables(of: Any, mask_var: Any, where: str) -> np.ndarray:
    """Return the indices of the variables that a mask asks for."""
    n_variables = of.shape[1]
    if mask_var is None:
        return np.arange(n_variables)
    if isinstance(mask_var, str) and mask_var not in of.var.columns:
        have = listed(list(of.var.columns)) or "none"
        raise DataError(f"mask_var={mask_var!r} is no column of {where}. Its columns: {have}.")
    flags = np.asarray(of.var[mask_var] if isinstance(mask_var, str) else mask_var)
    if flags.dtype != bool or flags.shape != (n_variables,):
        raise ValueError(
            f"mask_var must be {n_variables} booleans, one for each variable, or the name of such a column "
            f"of {where}; it is {flags.dtype} of shape {flags.shape}."
        )
    if not flags.any():
        raise ValueError("mask_var is true for no variable: there is nothing to fit.")
    return np.flatnonzero(flags)


def attach(adata: Any, model: Any, Z: FloatArray, Z_std: FloatArray, key: str = "X_srflvm") -> None:
    """Put latents, their standard deviations and parameters of the model into an AnnData object."""
    adata.obsm[key], adata.obsm[f"{key}_std"] = np.array(Z), np.array(Z_std)
    adata.uns[key.removeprefix("X_")] = _summary(model)


def _summary(model: Any) -> dict[str, Any]:
    """Return the parameters of a model that a file can hold: numbers, texts and arrays."""
    given = model.get_params(deep=False)
    names = ("mixture_weights_", "mixture_means_", "mixture_covariances_", "frequencies_")
    learned = {name.rstrip("_"): np.array(getattr(model, name)) for name in names}
    return {
        "version": __version__,
        "params": {k: v if isinstance(v, _PLAIN) else repr(v) for k, v in given.items() if k != "callbacks"},
        "elbo": float(model.elbo_),
        "elbo_history": np.array(model.elbo_history_),
        "relevance": np.array(model.relevance_),
        "likelihood_parameters": {k: np.array(v) for k, v in model.likelihood_parameters_.items()},
        **learned,
    }
