"""Posterior of a model fitted by sites: every channel has a Gaussian over weights of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.linalg import get_lapack_funcs

from srflvm._typing import FloatArray
from srflvm.data.encoding import GroupRows, Layout
from srflvm.likelihoods.base import gauss_hermite
from srflvm.numerics import packed_symmetric
from srflvm.numerics.features import cubature_points, layer_features
from srflvm.numerics.jit import in_float64, quickly_compiled
from srflvm.numerics.weight_covariances import WeightCovariances
from srflvm.posterior.base import N_NEIGHBOURS, Decoded, Posterior
from srflvm.posterior.chunks import Embedding, PaddedChunks, row_chunks
from srflvm.posterior.embedding import FrozenFunction, embed_rows
from srflvm.posterior.joint_draws import Chain
from srflvm.posterior.votes import UNKNOWN, Electorate

# Rows are those of the fit if they are embedded where these were, up to rounding.
_SAME_LATENTS = 1e-6

# Scale of the waves below which the function is linear in the latents to all digits.
_NO_WAVES = 1e-10

# Rows that vote on the classes of a column, and on those of all columns; with fewer than so many for each
# column there are no votes.
_MOST_VOTERS = 1000
_MOST_VOTERS_OF_ALL = 20_000
_FEWEST_VOTERS = 30

# Indicators of categories are multiplied by this in distances: two different ones are as far apart as numbers
# are that differ by twice their standard deviation.
_CATEGORY_SCALE = 2.0**0.5

# Numbers of the matrices of rows under a linear function that are held at a time.
_MOST_NUMBERS = 10_000_000


@dataclass(frozen=True)
class SitePosterior(Posterior):
    """Posterior with weights (L, C), the constant's last, and a covariance of them for each channel.

    Levels and amplitudes are (C,); `parameters` are the learned parameters of each group of the `table`;
    `affine` (1 + Q,) are the scales of waves and latents among the features, or (0,) if latents are not.
    `votes` are those of training rows on columns of classes, if there are any.
    """

    table: Layout
    weights: FloatArray
    covariance: WeightCovariances
    level: FloatArray
    amplitude: FloatArray
    parameters: tuple[dict[str, FloatArray], ...]
    affine: FloatArray = field(default_factory=lambda: np.zeros(0))
    votes: Electorate | None = None

    shares_covariance = False

    def _build_layout(self) -> Layout:
        return self.table

    def _build_function(self) -> FrozenFunction:
        return FrozenFunction(
            self.frequencies,
            self.affine,
            self.weights,
            self.level,
            self.parameters,
            self.covariance,
        )

    @property
    def covariances(self) -> WeightCovariances:
        """Return the covariances of the weights of all channels."""
        return self.covariance

    @property
    def mean_amplitude(self) -> float:
        """Return the prior variance of the function, a mean over the channels."""
        return float(np.mean(self.amplitude))

    @property
    def noise_variance(self) -> FloatArray | None:
        """Return the noise variances of Gaussian columns in squared units of Y, if there are any."""
        return self.learned_parameters().get("noise_variance")

    def learned_parameters(self) -> dict[str, FloatArray]:
        """Return the learned parameters of all columns that are single channels, on their natural scales."""
        by_column: dict[str, FloatArray] = {}
        for group, learned in zip(self.layout.groups, self.parameters, strict=True):
            for name, values in group.likelihood.natural_parameters(learned, group.units).items():
                column = by_column.setdefault(name, np.full(self.layout.n_columns, np.nan))
                column[group.columns] = values
        return by_column

    def state_entries(self) -> dict[str, Any]:
        """Return the learned parameters and the log amplitudes of each group."""
        amplitudes = tuple(np.log(self.amplitude[group.channels]) for group in self.layout.groups)
        return {"parameters": self.parameters, "log_amplitude": amplitudes}

    def layer_features(self, latents: FloatArray) -> FloatArray:
        """Compute all features (n, L) of the linear layer."""
        return layer_features(latents, self.frequencies, self.affine)

    def function_moments(self, latents: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute mean and variance (n, C) of f, without offsets."""
        features = self.layer_features(latents)
        return features @ self.weights + self.level, self.covariance.variances(features)

    def unknown_share(self, latents: FloatArray) -> FloatArray:
        """Compute the share of the function's prior variance that is left, a mean over channels, (n,)."""
        variances = [self.function_moments(latents[rows])[1] for rows in row_chunks(len(latents))]
        # the prior variance is the amplitude times phi'phi, which is two without an affine part
        squares = 0.5 * np.sum(self.layer_features(latents) ** 2, axis=1)
        return np.mean(np.concatenate(variances) / self.amplitude, axis=1) / squares

    def relative_variance_form(self) -> FloatArray:
        """Return the packed form (P,) of the function's variance as a share of its prior variance."""
        # without an affine part the prior variance of f is the amplitude times phi'phi = 2: one of the
        # Fourier features, one of the constant
        return self.covariance.weighted_form(1.0 / (2.0 * self.amplitude)) / len(self.amplitude)

    @property
    def is_linear(self) -> bool:
        """Tell whether the function is linear in the latents, and its columns Gaussian in one group."""
        has_waves = not len(self.affine) or self.affine[0] > _NO_WAVES
        return (
            not has_waves and len(self.channel_likelihoods) == 1 and self.channel_likelihoods[0].is_quadratic
        )

    def embed_encoded(self, encoded: tuple[GroupRows, ...]) -> Embedding:
        """Embed rows given by their channels."""
        if not self.is_linear:
            return super().embed_encoded(encoded)
        precision = 1.0 / np.broadcast_to(self._noise_of_linear, self.level.shape)
        return _embed_linear(self.function, encoded[0].y - self.level, precision)

    @property
    def _noise_of_linear(self) -> FloatArray:
        """Return the noise variances of the channels of a linear function."""
        group = self.layout.groups[0]
        found = group.likelihood.straight.natural_parameters(self.parameters[0], group.units)
        return found["noise_variance"] / group.units.scale**2

    # ---- decoding ---------------------------------------------------------------------------------

    def decode(
        self, latents: FloatArray, cholesky: FloatArray | None = None, log_sizes: FloatArray | None = None
    ) -> Decoded:
        """Compute mean and variances of Y at the latents, or at N(latents_n, C_n C_n')."""
        return self._decode_rows(latents, cholesky, self._encode_nothing(len(latents), log_sizes))

    def decode_data(self, embedding: Embedding, Y: FloatArray, log_sizes: FloatArray | None) -> Decoded:
        """Decode the embedding of raw rows, with the constants (such as totals) of those rows."""
        return self._decode_rows(embedding.mean, embedding.cholesky, self.layout.encode(Y, log_sizes))

    def category_probabilities(
        self, latents: FloatArray, cholesky: FloatArray | None = None
    ) -> dict[int, FloatArray]:
        """Compute the probabilities (n, C) of the codes of each categorical column."""
        groups = [group for group in self.layout.groups if group.likelihood.has_categories]
        if not groups:
            return {}

        def tables(points: FloatArray, known: Any) -> tuple[FloatArray, ...]:
            means = self._channel_moments(points, known)[0]
            return tuple(
                table
                for group in groups
                for table in group.likelihood.probabilities(means[:, :, group.channels])
            )

        found = self._by_chunks(tables, latents, cholesky, self._encode_nothing(len(latents)))
        columns = np.concatenate([group.columns for group in groups]).tolist()
        return dict(zip(columns, found, strict=True))

    def _encode_nothing(self, n_rows: int, log_sizes: FloatArray | None = None) -> tuple[GroupRows, ...]:
        """Return rows of which nothing is observed, as channels."""
        return self.layout.encode(np.full((n_rows, self.layout.n_columns), np.nan), log_sizes)

    def _decode_rows(
        self, latents: FloatArray, cholesky: FloatArray | None, encoded: tuple[GroupRows, ...]
    ) -> Decoded:
        # moments of transformed columns are not linear in those of their channels
        if self.is_linear and not self.layout.groups[0].likelihood.transforms:
            return self._decode_linear(latents, cholesky)
        return Decoded(*self._by_chunks(self._decode_chunk, latents, cholesky, encoded))

    def _decode_linear(self, latents: FloatArray, cholesky: FloatArray | None) -> Decoded:
        group = self.layout.groups[0]
        mean, of_latents, of_weights = _linear_moments(self.function, latents, cholesky)
        square = group.units.scale**2
        return Decoded(
            group.units.location + group.units.scale * mean,
            square * of_latents,
            square * of_weights,
            np.broadcast_to(square * self._noise_of_linear, mean.shape),
        )

    def _by_chunks(
        self,
        function: Callable[[FloatArray, Any], tuple[FloatArray, ...]],
        latents: FloatArray,
        cholesky: FloatArray | None,
        encoded: tuple[GroupRows, ...],
    ) -> tuple[FloatArray, ...]:
        """Apply `function` to the rows chunk by chunk and concatenate the results.

        Its arguments are the points (K, n, Q) of their latents, and the constants and offset of each group.
        """
        points = latents[None] if cholesky is None else cubature_points(latents, cholesky)
        numbers = points.shape[0] * self.covariance.numbers_per_row
        chunks = PaddedChunks.for_rows(len(latents), numbers)
        known = tuple((rows.constants, rows.offset) for rows in encoded)
        with in_float64():
            return chunks.join(
                [
                    function(np.moveaxis(np.asarray(some), 1, 0), known_of_some)
                    for some, known_of_some in chunks.cut((np.moveaxis(points, 0, 1), known))
                ]
            )

    def _channel_moments(
        self, points: FloatArray, known: Any, variance: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Compute E[E(y | f)], Var[E(y | f)] and E[Var(y | f)] of channels at points (K, n, Q).

        Each is (K, n, C). The variances of f, most of the work, may be given: (n, C), the same at all points.
        """
        # what a compiled program depends on
        channels = [group.channels for group in self.layout.groups]
        plan = tuple(
            (likelihood, own.start, own.stop)
            for likelihood, own in zip(self.channel_likelihoods, channels, strict=True)
        )
        outputs = []
        for point in points:
            if variance is None:
                mean, spread = self.function_moments(point)
            else:
                mean, spread = self.layer_features(point) @ self.weights + self.level, variance
            moments = _output_moments(plan, self.parameters, known, mean, spread)
            outputs.append([np.asarray(part) for part in moments])
        means, weight, noise = (np.stack(part) for part in zip(*outputs, strict=True))
        return means, weight, noise

    def _decode_chunk(self, points: FloatArray, known: Any) -> tuple[FloatArray, ...]:
        """Compute mean, latent, weight and noise variance of columns (n, M) at points (K, n, Q)."""
        channels = self._channel_moments(points, known)
        mean, latent, weight, noise = (np.zeros((points.shape[1], self.layout.n_columns)) for _ in range(4))
        for group, (constants, _) in zip(self.layout.groups, known, strict=True):
            own = (part[:, :, group.channels] for part in channels)
            means, of_weights, of_noise = group.likelihood.transform_moments(*own)
            if group.likelihood.columns_are_channels:
                parts = (
                    means.mean(axis=0),
                    means.var(axis=0),
                    of_weights.mean(axis=0),
                    of_noise.mean(axis=0),
                )
            else:
                parts = group.likelihood.columns_from_moments(means, of_weights, constants)
            square = group.units.scale**2
            mean[:, group.columns] = group.units.location + group.units.scale * parts[0]
            for target, part in zip((latent, weight, noise), parts[1:], strict=True):
                target[:, group.columns] = square * part
        return mean, latent, weight, noise

    # ---- votes of similar rows --------------------------------------------------------------------

    @cached_property
    def voting_columns(self) -> list[int]:
        """Return the columns whose classes have no order: categories, and columns of two codes."""
        columns = self.level_columns.items()
        return [column for column, codes in columns if column in self._category_columns or len(codes) == 2]

    @property
    def has_votes(self) -> bool:
        """Tell whether training rows vote on the classes of others."""
        return self.votes is not None

    def suits(self, votes: Electorate) -> bool:
        """Tell whether votes are on the columns of this posterior that have classes."""
        sizes = np.array([len(self.level_columns[column]) for column in self.voting_columns])
        n_columns, _, n_entries = votes.points.shape
        if (n_columns, n_entries) != (len(sizes), len(self._owners)):
            return False
        are_codes = (votes.codes == np.round(votes.codes)) & (votes.codes < sizes[:, None])
        return bool(are_codes.all() and np.all(votes.shares <= 1.0))

    def with_votes(
        self, encoded: tuple[GroupRows, ...], latents: FloatArray, rng: np.random.RandomState
    ) -> SitePosterior:
        """Return the posterior with the votes of training rows, given as channels and embedded at latents."""
        columns, n_rows = self.voting_columns, len(latents)
        n_voters = min(_MOST_VOTERS, n_rows, _MOST_VOTERS_OF_ALL // max(len(columns), 1))
        if not columns or n_voters < _FEWEST_VOTERS:
            return self
        voters = np.sort(rng.permutation(n_rows)[:n_voters])
        some = tuple(rows.take_rows(voters) for rows in encoded)
        codes = np.stack([self._codes(some, column) for column in columns])
        # each voter once for every column of which it has a class, as if it had none
        places, rows = np.nonzero(codes != UNKNOWN)
        hidden = self._channels_of([columns[place] for place in places])
        without = _rows_without(tuple(group.take_rows(rows) for group in some), hidden)
        filled = tuple(group.filled() for group in without)
        starts = np.repeat(latents[voters][rows][:, None], N_NEIGHBOURS, axis=1)
        embedding = embed_rows(self.channel_likelihoods, self.function, filled, starts, n_rounds=1)
        points, tables = self._completed(without, embedding)
        of_voters, probabilities = np.zeros((len(columns), n_voters, points.shape[1])), []
        for place, column in enumerate(columns):
            mine = places == place
            of_voters[place, rows[mine]] = self._compared(points[mine], column)
            table = np.zeros((n_voters, tables[column].shape[1]))
            table[rows[mine]] = tables[column][mine]
            probabilities.append(table)
        return replace(self, votes=Electorate.assemble(of_voters, codes, probabilities))

    def voted_probabilities(
        self, Y: FloatArray, log_sizes: FloatArray | None, embedding: Embedding
    ) -> dict[int, FloatArray]:
        """Compute the probabilities (n, C) of the codes of columns on which similar rows vote.

        They vote where a column is missing; elsewhere the probabilities are those of the model alone.
        """
        if self.votes is None:
            return {}
        points, tables = self._completed(self.layout.encode(Y, log_sizes), embedding)
        found = {column: tables[column].copy() for column in self.voting_columns}
        for place, (column, table) in enumerate(found.items()):
            missing = np.isnan(Y[:, column])
            table[missing] = self.votes.mix(place, self._compared(points[missing], column), table[missing])
        return found

    def _codes(self, encoded: tuple[GroupRows, ...], column: int) -> FloatArray:
        """Return the codes (n,) of a column of rows given by their channels, UNKNOWN where missing."""
        place, own = self._places[column]
        group, y = self.layout.groups[place], encoded[place].y
        known = ~np.isnan(y[:, own.start])
        if column not in self._category_columns:
            return np.where(known, y[:, own.start], UNKNOWN)
        codes = group.likelihood.columns_from_draws(np.nan_to_num(y), {})
        return np.where(known, codes[:, group.columns.tolist().index(column)], UNKNOWN)

    def _channels_of(self, columns: list[int]) -> np.ndarray:
        """Tell which of all channels (n, C) belong to each of some voting columns."""
        found = np.zeros((len(columns), len(self.level)), bool)
        for row, column in enumerate(columns):
            place, own = self._places[column]
            first = self.layout.groups[place].channels.start
            found[row, first + own.start : first + own.stop] = True
        return found

    @cached_property
    def _places(self) -> dict[int, tuple[int, slice]]:
        """Return of each voting column its group, and the slice of the group's channels that it becomes."""
        found = {}
        for place, group in enumerate(self.layout.groups):
            start = 0
            for column in group.columns.tolist():
                is_category = column in self._category_columns
                width = len(self.level_columns[column]) - 1 if is_category else 1
                if column in self.voting_columns:
                    found[column] = place, slice(start, start + width)
                start += width
        return found

    def _completed(
        self, encoded: tuple[GroupRows, ...], embedding: Embedding
    ) -> tuple[FloatArray, dict[int, FloatArray]]:
        """Return points (n, E) to compare rows by, and the probabilities of the codes of voting columns.

        Points are what is observed of all columns, and expected where it is not, on a scale for distances,
        and behind them the latents. Both parts are divided by the roots of their numbers of columns.
        """
        categories = [group for group in self.layout.groups if group.likelihood.has_categories]

        def expected(points: FloatArray, known: Any) -> tuple[FloatArray, ...]:
            variance = self.function_moments(points.mean(axis=0))[1]
            means = self._channel_moments(points, known, variance)[0]
            shares = [group.likelihood.probabilities(means[:, :, group.channels]) for group in categories]
            return means.mean(axis=0), *(table for tables in shares for table in tables)

        means, *shares = self._by_chunks(expected, embedding.mean, embedding.cholesky, encoded)
        names = [column for group in categories for column in group.columns.tolist()]
        tables = dict(zip(names, shares, strict=True))
        parts = []
        for group, rows in zip(self.layout.groups, encoded, strict=True):
            mine = means[:, group.channels]
            y = np.where(rows.observed, rows.y, mine)
            if group.likelihood.has_categories:
                parts += [_CATEGORY_SCALE * table for table in group.likelihood.probabilities(y[None])]
                continue
            parts.append(group.likelihood.working(y / np.exp(rows.offset)) / group.spread)
            for channel, column in enumerate(group.columns.tolist()):
                if column in self.voting_columns:
                    tables[column] = np.stack([1.0 - mine[:, channel], mine[:, channel]], axis=1)
        values = np.concatenate(parts, axis=1)
        latents = embedding.mean / embedding.mean.shape[1] ** 0.5
        return np.concatenate([values / values.shape[1] ** 0.5, latents], axis=1), tables

    def _compared(self, points: FloatArray, column: int) -> FloatArray:
        """Return points (n, E) with zeros in the place of a column, whose classes are to be found."""
        return np.where(self._owners == column, 0.0, points)

    @cached_property
    def _owners(self) -> np.ndarray:
        """Return the voting column that each entry (E,) of the points belongs to, -1 for all others."""
        parts = []
        for group in self.layout.groups:
            columns = [column if column in self.voting_columns else -1 for column in group.columns.tolist()]
            if group.likelihood.has_categories:
                parts.append(np.repeat(columns, [len(self.level_columns[column]) for column in columns]))
            else:
                n_channels = group.channels.stop - group.channels.start
                parts.append(columns if len(columns) == n_channels else np.full(n_channels, -1))
        return np.concatenate([*parts, np.full(self.frequencies.shape[1], -1)])

    def _straightened(self) -> SitePosterior:
        """Return the posterior whose columns are their channels, where they are transformed."""
        if not any(group.likelihood.transforms for group in self.table.groups):
            return self
        groups = tuple(replace(group, likelihood=group.likelihood.straight) for group in self.table.groups)
        return replace(self, table=replace(self.table, groups=groups))

    # ---- draws ------------------------------------------------------------------------------------

    def draw(
        self, latents: FloatArray, rng: np.random.RandomState, log_sizes: FloatArray | None = None
    ) -> FloatArray:
        """Draw rows at given latents: the whole function once, then an observation of each entry."""
        unknown = np.full((len(latents), self.layout.n_columns), np.nan)
        return self.draw_data(latents, rng, unknown, log_sizes)

    def draw_data(
        self, latents: FloatArray, rng: np.random.RandomState, Y: FloatArray, log_sizes: FloatArray | None
    ) -> FloatArray:
        """Draw rows that might have been in the place of raw ones, with the constants of those rows."""
        encoded = self.layout.encode(Y, log_sizes)
        f = self.layer_features(latents) @ (self.weights + self.covariance.draw(rng)) + self.level
        return self._observe(f, encoded, rng)

    def draw_filled(
        self,
        Y: FloatArray,
        log_sizes: FloatArray | None,
        n_draws: int,
        rng: np.random.RandomState,
        training_latents: FloatArray | None = None,
    ) -> FloatArray:
        """Return copies of Y filled with draws; of the training rows, with joint ones if it is affordable."""
        if training_latents is not None and training_latents.shape[0] == len(Y) and np.isnan(Y).any():
            encoded = self.layout.encode(Y, log_sizes)
            chain = Chain(self.layout, encoded, self.frequencies, self.affine, self.level, self.amplitude)
            if chain.is_affordable():
                embedding = self.embed_encoded(encoded)
                if np.allclose(embedding.mean, training_latents, rtol=0.0, atol=_SAME_LATENTS):
                    return self._draw_jointly(chain, embedding, Y, n_draws, rng)
        return super().draw_filled(Y, log_sizes, n_draws, rng)

    def _draw_jointly(
        self, chain: Chain, embedding: Embedding, Y: FloatArray, n_draws: int, rng: np.random.RandomState
    ) -> FloatArray:
        """Return copies of the training rows Y filled with draws of a chain."""
        draws = chain.draws(embedding.mean, self.weights, self.parameters, rng)
        copies = []
        for draw in islice(draws, n_draws):
            f = self.layer_features(draw.latents) @ draw.weights + self.level
            copies.append(np.where(np.isnan(Y), self._observe(f, chain.encoded, rng, draw.parameters), Y))
        return np.stack(copies) if copies else np.empty((0, *Y.shape))


def _rows_without(encoded: tuple[GroupRows, ...], hidden: np.ndarray) -> tuple[GroupRows, ...]:
    """Return rows given by their channels without some of these (n, C)."""
    found, start = [], 0
    for rows in encoded:
        gone = hidden[:, start : start + rows.y.shape[1]]
        start += rows.y.shape[1]
        found.append(rows._replace(y=np.where(gone, np.nan, rows.y), observed=rows.observed & ~gone))
    return tuple(found)


@partial(quickly_compiled, is_rare=True, is_heavy=True, static_argnames="plan")
def _output_moments(
    plan: Any, parameters: Any, known: Any, mean: Array, variance: Array
) -> tuple[Array, ...]:
    """Compute E[E(y | f)], Var[E(y | f)] and E[Var(y | f)] over f ~ N(mean, variance), (n, C) each."""
    parts = []
    for (likelihood, start, stop), learned, (constants, offset) in zip(plan, parameters, known, strict=True):
        arguments = {**constants, **learned}

        def outputs(f: Array, likelihood=likelihood, arguments=arguments) -> tuple[Array, Array, Array]:
            given = likelihood.moments(f, arguments)
            return given.mean, given.mean**2, given.variance

        first, second, noise = gauss_hermite(outputs, mean[:, start:stop] + offset, variance[:, start:stop])
        parts.append((first, jnp.maximum(second - first**2, 0.0), noise))
    return tuple(jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True))


# ---- linear functions -------------------------------------------------------------------------------


def _embed_linear(function: FrozenFunction, residuals: FloatArray, precision: FloatArray) -> Embedding:
    """Embed rows of a linear function given by y without levels (n, C), NaN where not observed.

    With features g = (scales * x, constant), weights h_m ~ N(mean_m, V_m) and the precisions lambda (C,) of
    the entries r_nm, what `posterior.embedding` climbs is quadratic, and its optimum is

        q(x_n) = N(S_n shift_n, S_n),   S_n^-1 = I + sum_m lambda_m E[a_m a_m'],
        shift_n = sum_m lambda_m (r_nm E a_m - E[a_m b_m]),

    with a_m = scales * (weights of the latents), b_m the weight of the constant, and sums over the observed
    entries. Covariances are returned in single precision: there is one for every row, of many latents.
    """
    n_rows, size, n_latent = len(residuals), len(function.weights), function.frequencies.shape[1]
    first = size - 1 - n_latent - n_latent % 2
    latents, scales = slice(first, first + n_latent), np.asarray(function.affine[1:], np.float64)
    observed = ~np.isnan(residuals)
    weighted = np.where(observed, residuals, 0.0) * precision
    slopes = function.weights[latents]
    means, roots = np.empty((n_rows, n_latent)), np.empty((n_rows, n_latent, n_latent), np.float32)
    outer = _packed_outer(function.weights)
    moments = precision[:, None] * (_forms(function) + outer)
    for rows in _pieces(n_rows, size):
        second = packed_symmetric.unpack(observed[rows] @ moments, size, form=True)
        inner = second[:, latents, latents] * scales[:, None] * scales
        shift = scales * (weighted[rows] @ slopes.T - second[:, latents, -1])
        for place, (matrix, pull) in enumerate(zip(inner, shift, strict=True), start=rows.start):
            matrix[range(n_latent), range(n_latent)] += 1.0
            root = _inverse_root(matrix)
            means[place], roots[place] = root @ (pull @ root), root
    return Embedding(means, roots)


def _forms(function: FrozenFunction) -> FloatArray:
    """Return the packed forms (C, P) of the covariances of the weights."""
    covariance: Any = function.covariance
    return np.asarray(covariance.forms(), np.float64)


def _linear_moments(
    function: FrozenFunction, latents: FloatArray, cholesky: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Compute of a linear f the mean, and its variances by latents and by weights, (n, C) each.

    The latents are known, or N(latents_n, C_n C_n'). The variances are E a_m' C_n C_n' E a_m, and
    sum_ij V_m,ij E[g_i g_j]: products of packed symmetric matrices.
    """
    n_rows, n_latent = latents.shape
    size, n_channels = function.weights.shape
    first = size - 1 - n_latent - n_latent % 2
    features = np.asarray(function.features(latents))
    mean = features @ function.weights + function.level
    of_latents, of_weights = np.zeros((n_rows, n_channels)), np.empty((n_rows, n_channels))
    inside, scales = slice(first, first + n_latent), np.asarray(function.affine[1:], np.float64)
    # both sides of a product of packed matrices cannot have their pairs doubled
    twice = _pair_counts(size)
    covariance, outer = _forms(function), _packed_outer(function.weights) / twice
    halved = covariance / twice
    for rows in _pieces(n_rows, size):
        some = features[rows]
        of_weights[rows] = packed_symmetric.quadratic_forms(some, covariance).T
        if cholesky is not None:
            roots = scales[:, None] * cholesky[rows]
            spread: Any = np.zeros((len(some), size, size))
            spread[:, inside, inside] = roots @ np.swapaxes(roots, 1, 2)
            packed = np.asarray(packed_symmetric.pack_form(spread))
            of_latents[rows] = packed @ outer.T
            of_weights[rows] += packed @ halved.T
    return mean, np.maximum(of_latents, 0.0), np.maximum(of_weights, 0.0)


def _packed_outer(weights: FloatArray) -> FloatArray:
    """Return the packed forms (C, P) of the weights' means times themselves."""
    parts = []
    for some in _pieces(weights.shape[1], len(weights)):
        outer: Any = weights.T[some, :, None] * weights.T[some, None, :]
        parts.append(np.asarray(packed_symmetric.pack_form(outer)))
    return np.concatenate(parts)


def _pair_counts(size: int) -> FloatArray:
    """Return how many entries of a symmetric matrix each packed one stands for, (P,)."""
    ones: Any = np.ones((1, size, size))
    return np.asarray(packed_symmetric.pack_form(ones))[0]


def _pieces(n_rows: int, size: int) -> list[slice]:
    """Return slices of so many rows that matrices (size, size) of them fit into a bounded memory."""
    step = max(1, _MOST_NUMBERS // size**2)
    return [slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step)]


def _inverse_root(matrix: FloatArray) -> FloatArray:
    """Return the lower triangular C with C C' = matrix^-1.

    With the order of rows and columns reversed, the Cholesky factor is upper triangular, and the transpose of
    its inverse is C.
    """
    factorise, invert = get_lapack_funcs(("potrf", "trtri"), (matrix,))
    factor: Any = factorise(np.asfortranarray(matrix[::-1, ::-1]), lower=1, clean=1)[0]
    return np.ascontiguousarray(invert(factor, lower=1)[0][::-1, ::-1].T)
