"""Annotated matrices of single cells: fits in the manner of scanpy. Needs the package anndata."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from srflvm._types import FloatArray
from srflvm.exceptions import DataError

_PLAIN = (bool, int, float, str)


def srflvm(
    adata: Any,
    layer: str | None = None,
    n_components: int = 2,
    *,
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
    key_added : str, default="X_srflvm"
        Where in `obsm` the latents go; their standard deviations go beside them, with "_std" added, and
        settings and results into `uns`, under the same name without "X_".
    decoded_layer : str, default=None
        A layer for what the model decodes from the latents: expected entries, for counts with size factors
        those of a row of size one.
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
    from srflvm.anndata_source import table_of
    from srflvm.estimator import SRFLVM

    require_anndata()
    found = (adata.to_memory() if adata.isbacked else adata.copy()) if copy else adata
    model = SRFLVM(n_components, **settings).fit(table_of(found, layer))
    attach(found, model, model.embedding_, model.embedding_std_, key_added)
    if decoded_layer is not None:
        found.layers[decoded_layer] = model.inverse_transform(model.embedding_)
    return found if copy else None


def attach(adata: Any, model: Any, Z: FloatArray, Z_std: FloatArray, key: str = "X_srflvm") -> None:
    """Put latents, their standard deviations and what the model has learned into an AnnData object."""
    adata.obsm[key], adata.obsm[f"{key}_std"] = np.array(Z), np.array(Z_std)
    adata.uns[key.removeprefix("X_")] = _summary(model)


def matrix_of(adata: Any, layer: str | None) -> Any:
    """X or a layer of an AnnData object, or X of its `raw`."""
    if layer is not None and layer not in adata.layers:
        have = ", ".join(repr(name) for name in adata.layers if name is not None) or "none"
        raise DataError(f"The AnnData object has no layer {layer!r}. Its layers: {have}.")
    values = adata.X if layer is None else adata.layers[layer]
    if values is None:
        raise DataError("The AnnData object has no matrix X. Give one of its layers, or set X.")
    return values


def open_file(path: Path, backed: Literal["r"] | None = None) -> Any:
    """The AnnData object in a file; `backed` leaves its matrix X there."""
    anndata = require_anndata()
    try:
        return anndata.read_h5ad(path, backed=backed)
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path} cannot be read as an AnnData file ({error}).") from error


def require_anndata() -> Any:
    """The package, or an error that says what to install."""
    try:
        import anndata
    except ImportError as error:
        raise ImportError(
            "AnnData objects need the package anndata: pip install 'srflvm[anndata]', or pip install anndata."
        ) from error
    return anndata


def _summary(model: Any) -> dict[str, Any]:
    """What a file can hold: numbers, texts and arrays."""
    from srflvm._version import __version__

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
