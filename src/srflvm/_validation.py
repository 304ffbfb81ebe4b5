"""Checks of parameters and data, with messages that say what, where and what to do."""

from __future__ import annotations

import math
import numbers
import os
from typing import Any

import numpy as np

from srflvm._likelihood_choice import INFERENCES, check_likelihood
from srflvm._types import FloatArray
from srflvm.exceptions import DataError
from srflvm.site_posterior import SitePosterior
from srflvm.spectral import SAMPLERS
from srflvm.starts import LATENTS

COVARIANCE_TYPES = ("full", "diag")
DTYPES = ("float32", "float64")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """A string out of a few."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is not known. Choose one of {listed}.")
    return value


def check_count(name: str, value: Any, smallest: int = 1) -> int:
    """An integer of at least `smallest`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < smallest:
        raise ValueError(f"{name}={value!r} must be an integer of at least {smallest}.")
    return int(value)


def check_positive(name: str, value: Any, *, allow_zero: bool = False) -> float:
    """A finite positive number."""
    good = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    if not good or value < 0 or (value == 0 and not allow_zero):
        kind = "non-negative" if allow_zero else "positive"
        raise ValueError(f"{name}={value!r} must be a {kind} finite number.")
    return float(value)


def check_parameters(estimator: Any) -> None:
    """All constructor parameters that can be judged without data."""
    for name in ("n_components", "n_mixture", "n_samples", "n_init"):
        check_count(name, getattr(estimator, name))
    for name, other in {"max_iter": ("auto",), "batch_size": ("auto", None)}.items():
        if getattr(estimator, name) not in other:
            check_count(name, getattr(estimator, name))
    check_likelihood(estimator.likelihood)
    check_choice("inference", estimator.inference, INFERENCES)
    if estimator.size_factors is not None:
        check_choice("size_factors", estimator.size_factors, ("auto", "totals", "ratios"))
    check_choice("frequency_sampling", estimator.frequency_sampling, tuple(SAMPLERS))
    check_choice("covariance_type", estimator.covariance_type, COVARIANCE_TYPES)
    check_choice("latent_covariance_type", estimator.latent_covariance_type, ("auto", *COVARIANCE_TYPES))
    for name, smallest in {"n_frequencies": 1, "n_landmarks": 10}.items():
        if getattr(estimator, name) != "auto":
            check_count(name, getattr(estimator, name), smallest)
    if estimator.compression not in ("auto", "all"):
        check_count("compression", estimator.compression)
    if estimator.learning_rate != "auto":
        check_positive("learning_rate", estimator.learning_rate)
    check_positive("tol", estimator.tol, allow_zero=True)
    if estimator.init is None or isinstance(estimator.init, str):
        check_choice("init", estimator.init, ("auto", *LATENTS))
    _check_dtype(estimator.dtype)
    _check_callbacks(estimator.callbacks)
    if not isinstance(estimator.checkpoint_dir, str | os.PathLike | None):
        raise ValueError(
            f"checkpoint_dir={estimator.checkpoint_dir!r} must be the path of a folder, or None."
        )


def _check_dtype(dtype: Any) -> None:
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    check_choice("dtype", name, DTYPES)


def _check_callbacks(callbacks: Any) -> None:
    for callback in callbacks or ():
        if not callable(callback):
            raise TypeError(f"callbacks: {callback!r} cannot be called. Give functions of one argument.")


def check_initial_latents(init: Any, n_rows: int, n_components: int) -> FloatArray:
    """An array of starting latents of the right shape."""
    latents = np.asarray(init, dtype=np.float64)
    if latents.shape != (n_rows, n_components):
        raise ValueError(
            f"init has shape {latents.shape} but must be (rows of Y, n_components) = "
            f"({n_rows}, {n_components})."
        )
    check_finite(latents, "init")
    return latents


def check_warm_state(state: Any, options: Any, n_rows: int) -> None:
    """A further fit can only go on from a state of the shapes it asks for."""
    factor_axes = {"full": 3, "diag": 2}
    wanted = {
        "rows and components": ((n_rows, options.n_components), state["latent_mean"].shape),
        "frequencies and mixture components": (
            (options.n_frequencies, options.n_mixture),
            state["logits"].shape,
        ),
        "axes of the latent covariances": (
            factor_axes[options.latent_covariance_type],
            state["latent_factor"].ndim,
        ),
        "axes of the mixture covariances": (
            factor_axes[options.covariance_type],
            state["mixture_factor"].ndim,
        ),
    }
    for what, (now, before) in wanted.items():
        if now != before:
            raise ValueError(
                f"warm_start=True goes on from the last fit, which had {what} {before}, but Y and the "
                f"parameters now ask for {now}. Set warm_start=False or the parameters back."
            )


def refuse_warm_batches(state: Any) -> None:
    """Batches have no state of all rows to go on from."""
    if state is not None:
        raise ValueError(
            "warm_start=True goes on from the state of all rows, which a fit in batches does not hold. Use "
            "partial_fit to go on with more rows, set warm_start=False to begin anew, or batch_size=None."
        )


def check_warm_layer(posterior: Any, state: Any, problem: Any) -> None:
    """A further fit can only go on from a fit of the same likelihoods to the same columns."""
    before, now = (
        [(g.likelihood, g.columns.tolist(), g.channels) for g in layout.groups] if layout else []
        for layout in (
            posterior.layout if isinstance(posterior, SitePosterior) else None,
            getattr(problem, "layout", None),
        )
    )
    if before != now or ("weight_mean" in state) != ("weight_mean" in problem.layer.owns):
        raise ValueError(
            "warm_start=True goes on from the last fit, but the likelihoods, the columns that have them or "
            "the inference are not those of that fit. Set warm_start=False or set them back."
        )


def check_latents(Z: Any, n_components: int) -> FloatArray:
    """Latent points given by the user."""
    latents = np.asarray(Z, dtype=np.float64)
    if latents.ndim != 2 or latents.shape[1] != n_components:
        raise ValueError(
            f"Z has shape {latents.shape} but must be (n, {n_components}): one row a point of the "
            f"{n_components}-dimensional latent space. A single point z is given as [z]."
        )
    check_finite(latents, "Z")
    return latents


def check_finite(values: FloatArray, name: str, column_names: Any = None) -> None:
    """Refuse NaN and infinity, naming the first place and how many there are."""
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    row, column = (int(i) for i in np.argwhere(bad)[0])
    value = values[row, column]
    kind = "NaN (a missing value)" if np.isnan(value) else "infinity"
    label = "" if column_names is None else f" ({column_names[column]!r})"
    raise DataError(
        f"{name} contains {kind} at row {row}, column {column}{label}; {int(bad.sum())} of its "
        f"{values.size} entries are NaN or infinity. Drop those rows or columns, or fill the entries first."
    )
