"""One self-contained web page to explore a fitted model in, offline and by double click.

The page holds the latents, the frozen frequencies and the posterior of the weights, and decodes points of the
latent space in the browser. It loads nothing from anywhere. The scripts are in the folder `page`.

This package imports `posterior` and the layers below it, and writes files with `storage.atomic`. It is given
a fitted estimator and does not import it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from srflvm.exceptions import check_positive, warn_caller
from srflvm.explore.page import assemble
from srflvm.explore.payload import build_payload
from srflvm.storage.atomic import write_whole

__all__ = ["write_page"]


def write_page(
    model: Any,
    path: str | os.PathLike[str],
    *,
    data: Any = None,
    labels: Any = None,
    ids: Any = None,
    dims: tuple[int, int] | None = None,
    image_shape: tuple[int, int] | None = None,
    title: str | float | None = None,
    max_megabytes: float = 50.0,
) -> Path:
    """Write a page that shows the latents of the training rows and decodes live wherever one points.

    The page decodes the means and standard deviations of `model.decode(Z)`, to 1e-4 of a column's standard
    deviation. Latents, frequencies and weights are shipped in single precision. Covariances of the weights
    are 16-bit integers where this moves no variance of the function by more than 5e-5, else in single
    precision. Columns of a likelihood that has no decoder in the browser are named in the page and not shown.

    Parameters
    ----------
    model : SRFLVM
        A fitted model.
    path : str or path
        The HTML file to write. It appears whole or not at all; an older file is replaced.
    data : array-like of shape (N, M), default=None
        The training rows, to colour by their values and to export them; NaN where not observed. Levels of a
        data frame are shown as their codes. Without the rows, columns are coloured by what the model decodes
        at each of them.
    labels : array-like of shape (N,), default=None
        Classes or numbers to colour by; None and NaN are allowed.
    ids : array-like of shape (N,), default=None
        Names of the rows; their numbers from 0 on without.
    dims : pair of int, default=None
        The latent dimensions first shown: the two of highest relevance without. Others can be chosen in the
        page.
    image_shape : pair of int, default=None
        Height and width, if a row is an image.
    title : str or number, default=None
        Heading of the page.
    max_megabytes : float, default=50
        Size that the page must not exceed. If it would, data columns are left out first, then the columns
        that vary least over the rows; a warning and the page say which share is left. Where that is not
        enough, or the rows are images, nothing is written.

    Returns
    -------
    Path
        Where the page is.

    Raises
    ------
    DataError
        `data`, `labels` or `ids` do not belong to the rows of the model.
    ValueError
        An option cannot be used with this model, or the page would be too large.
    """
    check_is_fitted(model)
    limit = int(1e6 * check_positive("max_megabytes", max_megabytes))
    payload = build_payload(
        model,
        limit,
        data=data,
        labels=labels,
        ids=ids,
        dims=dims,
        image_shape=image_shape,
        title=title,
    )
    text = assemble(payload)
    if len(text) > limit:
        raise ValueError(
            f"The page takes {len(text) / 1e6:.1f} MB, more than max_megabytes={max_megabytes:g}. Give "
            "a larger one, or shorter ids."
        )
    for note in payload["left_out"]:
        warn_caller(note)
    write_whole(path, text)
    return Path(path)
