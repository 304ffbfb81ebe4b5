"""Linear models: the number of dimensions that a table has, and the fit of a model without waves.

Without waves Gaussian columns are linear in the latents, with exact missing entries. The posterior is that of
a model with an affine part (`SitePosterior`) whose waves have no scale: it keeps one frequency, so that all
that is told of frequencies has a value.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.compression import compress
from srflvm.data.encoding import Columns, Layout
from srflvm.exceptions import DataError
from srflvm.inference.facts import Survey, TrainingData
from srflvm.inference.params import Params
from srflvm.inference.plan import FitPlan
from srflvm.inference.progress import Progress
from srflvm.inference.result import FitResult
from srflvm.model.elbo import StartingPoint, initial_state
from srflvm.model.evidence_layers import affine_scales
from srflvm.numerics import packed_symmetric
from srflvm.numerics.bayesian_pca import LinearFactors
from srflvm.numerics.jit import one_blas_thread
from srflvm.numerics.matrix_factors import MatrixFactors
from srflvm.numerics.weight_covariances import PackedCovariances
from srflvm.posterior.sites import SitePosterior

_LOG_SCALE_OF_NO_WAVES = -60.0
_MOST_ROUNDS = 24
_MOST_ANCHORS = 2000

# Columns whose covariances are packed at a time.
_COLUMNS_AT_ONCE = 64

_COUNTED_ROWS = 2000

# Dimensions are counted in tables with at most so many columns. In wider ones, such as images, it costs as
# much to find that some are not relevant as to fit them: they get a third as many as columns, within a bound.
_COUNTED_COLUMNS = 64
_MOST_IN_WIDE = 128

# A dimension counts if what it explains, over all standardised columns, is more than this: the variance of
# one column is 1.
_SMALLEST_VARIANCE = 0.03


def automatic_components(params: Params, data: TrainingData, rng: np.random.RandomState) -> int:
    """Return how many dimensions a linear model finds relevant, and one more for what is not linear.

    Never as many as there are columns: a model with so many could copy each of them. A model without waves
    begins with as many as are affordable, and drops those that tell nothing.
    """
    if params.is_linear:
        return max(1, MatrixFactors.affordable_components(data.n_rows, data.source.n_columns))
    index = np.sort(rng.permutation(data.n_rows)[:_COUNTED_ROWS])
    rows = data.source.take(index)
    if np.isnan(rows).all(axis=0).any():
        _, rows = Survey.of(data).draw_landmarks(data, _COUNTED_ROWS, rng)
    data.choice.check(rows, data.names)
    layout = Layout.from_data(rows, data.choice)
    values = layout.working(layout.encode(rows))
    n_columns = rows.shape[1]
    most = max(1, min(n_columns - 1, len(rows) // 3))
    if n_columns > _COUNTED_COLUMNS:
        return min(most, n_columns // 3, _MOST_IN_WIDE)
    if most == 1:
        return 1
    factors = LinearFactors.fit(values - np.nanmean(values, axis=0), most, rng)
    relevant = int(np.sum(values.shape[1] * factors.relevance > _SMALLEST_VARIANCE))
    return min(relevant + 1, most)


def fit(plan: FitPlan, data: TrainingData, rng: np.random.RandomState) -> FitResult:
    """Fit all rows, in memory."""
    params = plan.params
    _refuse_what_has_no_effect(params)
    _refuse_other_columns(data)
    Y = data.source.read(0, data.n_rows)
    data.choice.check(Y, data.names)
    # one noise for all columns would save nothing here
    layout = Layout.from_data(Y, [(replace(one, noise="column"), columns) for one, columns in data.choice])
    group = layout.groups[0]
    rows = layout.encode(Y)[0]
    level, _ = group.likelihood.start(rows.y, rows.constants)
    # refuses rows that are all equal; the rest of it is kept to compare rows by, and no embedding needs it
    compressed = compress(np.where(rows.observed, rows.y, level) / group.spread, params.compression)
    log_scale, n_observed = layout.log_scale_total(Y), int(np.sum(rows.observed))
    n_rounds = _MOST_ROUNDS if params.max_iter == "auto" else int(params.max_iter)
    callbacks, started, told = plan.callbacks, time.perf_counter(), []

    def tell(bound: float) -> bool:
        told.append(bound)
        seconds = time.perf_counter() - started
        progress = Progress("fit", len(told), n_rounds, bound - log_scale, n_observed, seconds)
        wishes = [bool(callback(progress)) for callback in callbacks]
        return any(wishes)

    with one_blas_thread():
        factors, bounds, converged, interrupted = MatrixFactors.fit(
            rows.y - level,
            int(params.n_components),
            n_rounds,
            float(params.tol),
            dtype=np.dtype(params.dtype),
            tell=tell,
        )
        posterior = _posterior(factors, layout, level, rng)
        embedding = posterior.embed_encoded((rows,))
    anchors = np.sort(rng.permutation(len(Y))[:_MOST_ANCHORS])
    posterior = replace(
        posterior,
        columns=compressed.columns,
        anchors=embedding.mean[anchors],
        anchor_scores=compressed.scores[anchors],
    )
    start = StartingPoint("pca", embedding.mean, 1.0, 1.0, 1.0, cholesky=embedding.cholesky)
    state = initial_state(
        start,
        rng,
        n_frequencies=1,
        n_mixture=int(params.n_mixture),
        covariance_type=params.covariance_type,
        latent_covariance_type="diag",
        dtype=np.dtype(params.dtype),
    )
    state |= posterior.state_entries() | {"log_affine": _log_affine(factors)}
    history = np.array(bounds) - log_scale
    return FitResult(
        posterior=posterior,
        embedding=embedding,
        state=state,
        elbo=float(history[-1]),
        history=history,
        n_rejected=0,
        converged=converged,
        interrupted=interrupted,
        stopped=not (converged or interrupted) and len(bounds) < n_rounds,
        start="pca",
    )


def _refuse_what_has_no_effect(params: Params) -> None:
    """Refuse parameters that this fit does not follow."""
    for name in ("checkpoint_dir", "warm_start"):
        value = getattr(params, name)
        if value:
            raise ValueError(
                f"{name}={value!r}: a linear model (n_frequencies=0) is fitted in one go, from the start. "
                f"Leave {name} out, or give n_frequencies='auto'."
            )


def _refuse_other_columns(data: TrainingData) -> None:
    """Refuse columns that are not all of one kind of Gaussian."""
    if len(data.choice) > 1 or not data.choice[0][0].is_quadratic:
        raise DataError(
            "n_frequencies=0, a linear model, is for Gaussian columns of one kind. Give n_frequencies='auto' "
            "for other columns."
        )


def _log_affine(factors: MatrixFactors) -> FloatArray:
    return np.append(_LOG_SCALE_OF_NO_WAVES, np.zeros(factors.loadings.shape[1]))


def _posterior(
    factors: MatrixFactors,
    layout: Layout,
    level: FloatArray,
    rng: np.random.RandomState,
) -> SitePosterior:
    """Return the posterior of the weights, without anchors.

    A latent's feature is the latent times its scale s, so that weights are loadings / s with the prior
    variance / s^2. Those of the waves stay at their prior.
    """
    n_columns, n_latent = factors.loadings.shape
    affine = affine_scales({"log_affine": _log_affine(factors)}, np.float64)
    scale = float(affine[1])
    amplitude = factors.variance / scale**2
    size = 3 + n_latent + n_latent % 2
    inside = slice(2, 2 + n_latent)
    weights = np.zeros((size, n_columns))
    weights[inside] = factors.loadings.T / scale
    weights[-1] = factors.offset
    rounding = np.asarray(layout.encode(np.zeros((1, n_columns)))[0].constants.get("rounding", 0.0))
    noise = np.asarray(factors.noise, np.float64)
    packed = np.empty((n_columns, size * (size + 1) // 2), np.float32)
    for first in range(0, n_columns, _COLUMNS_AT_ONCE):
        some = slice(first, first + _COLUMNS_AT_ONCE)
        covariances: Any = np.zeros((len(noise[some]), size, size))
        covariances[:, range(size), range(size)] = amplitude
        covariances[:, inside, inside] = factors.covariances[some] / scale**2
        covariances[:, -1, -1] = factors.offset_variance[some]
        packed[some] = np.asarray(packed_symmetric.pack_form(covariances))
    learned = np.maximum(noise - rounding.ravel(), 1e-3 * noise)
    return SitePosterior(
        columns=Columns(np.zeros(n_columns), 1.0, np.zeros((n_columns, 0))),
        frequencies=rng.standard_normal((1, n_latent)),
        anchors=np.zeros((0, n_latent)),
        anchor_scores=np.zeros((0, 0)),
        table=layout,
        weights=weights,
        covariance=PackedCovariances(packed),
        level=level,
        amplitude=np.full(n_columns, amplitude),
        parameters=({"log_noise": np.log(learned)},),
        affine=affine,
    )
