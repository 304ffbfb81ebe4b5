"""Plan of a fit: decided once, from the parameters and from facts about the data.

Everything that later depends on what kind of fit it is follows from the plan: the problem that is built, the
options with which it is run, the memory that is asked for, and whether rows are seen in batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.compression import LARGEST_EXACT, MOST_DIRECTIONS, MOST_DOUBLE_SCORES, ColumnMoments
from srflvm.data.encoding import Layout
from srflvm.data.reading import row_log_sizes
from srflvm.data.sources import Source, available, in_gb
from srflvm.exceptions import DataError
from srflvm.inference.facts import DataFacts, Survey, TrainingData
from srflvm.inference.params import LANDMARK_STARTS, Options, Params
from srflvm.inference.problems.gaussian import CompleteGaussianProblem, MissingGaussianProblem, Problem
from srflvm.inference.problems.shared_basis import SharedBasisProblem
from srflvm.inference.problems.sites import SiteProblem
from srflvm.inference.progress import Callback, _PrintProgress
from srflvm.likelihoods.columns import Choice
from srflvm.numerics.features import chunk_shape
from srflvm.numerics.nystrom import Sketch
from srflvm.parallel.communicator import Communicator
from srflvm.posterior.chunks import CHUNK

if TYPE_CHECKING:
    from srflvm.inference.checkpoints import Checkpoints

MOST_FREQUENCIES = 300

# With a site for every entry a step costs rows times columns times the square of the features. Beyond so
# many numbers weights in a shared basis take the place of sites if open.
MOST_FREQUENCIES_WITH_SITES = 50
_MOST_SITE_NUMBERS = 1e9

# An affine part explains what is smooth, and few waves what is left: more of them predicted no better.
FREQUENCIES_BESIDE_AFFINE = 25

# More rows than this: a neighbour start is usually made on a random subset whose model embeds the others. In
# batches fewer where every entry has a site, since steps cost far more there.
MOST_LANDMARKS = 5000
MOST_LANDMARKS_WITH_SITES = 2000

# Rows of a batch if none are asked for: whole chunks of the programs that embed rows.
USUAL_BATCH = 2048

# A fit with an affine part makes as many sweeps as visit so many observed entries, within bounds: those of
# small tables cost little.
_ENTRIES_OF_SWEEPS = 2_000_000

# Below so many rows sweeps cost little, and more of them are made.
_FEW_ROWS = 1000


class FitKind(Enum):
    """Distinguish fits by how the weights are treated."""

    COMPLETE_GAUSSIAN = "exact evidence of complete Gaussian data with one noise"
    GAUSSIAN_MISSING = "Gaussian data with one noise whose missing entries are filled"
    SITES = "a site for every entry"
    SHARED_BASIS = "weights of any likelihoods with covariances in a shared basis"
    LINEAR = "Gaussian data that are linear in the latents, over the observed entries alone"

    @classmethod
    def of(cls, params: Params, facts: DataFacts) -> FitKind:
        """Return how the weights are treated in a fit of all rows at once."""
        if params.is_linear:
            return cls.LINEAR
        if _may_be_exact(params, facts.is_plain):
            return cls.COMPLETE_GAUSSIAN if facts.first_missing is None else cls.GAUSSIAN_MISSING
        if params.inference == "shared_basis":
            return cls.SHARED_BASIS
        has_many = not _affords_sites(params, facts.n_rows, facts.n_columns)
        is_open = params.inference == "auto" and params.affine is not True
        return cls.SHARED_BASIS if is_open and has_many else cls.SITES

    @property
    def in_batches(self) -> FitKind:
        """Return how the weights are treated in batches of rows: the sums that these keep are of sites."""
        return FitKind.SITES if self is FitKind.SHARED_BASIS else self

    @property
    def has_channels(self) -> bool:
        """Tell whether likelihoods decide what columns become, and each channel has weights of its own."""
        return self in (FitKind.SITES, FitKind.SHARED_BASIS)


# Sweeps of fits of many rows, 25 if not said otherwise.
_FEWEST_SWEEPS = {FitKind.COMPLETE_GAUSSIAN: 12, FitKind.SHARED_BASIS: 40}


@dataclass(frozen=True)
class Batching:
    """Hold the rows of a batch, and the most epochs (passes over all rows)."""

    n_rows: int
    n_epochs: int

    @classmethod
    def of(cls, params: Params, n_rows: int) -> Batching:
        """Return batches and epochs as asked for, or as usual."""
        size = USUAL_BATCH if params.batch_size in ("auto", None) else int(params.batch_size)
        automatic = int(np.clip(200_000 // n_rows, 2, 10))
        return cls(min(size, n_rows), automatic if params.max_iter == "auto" else int(params.max_iter))

    @classmethod
    def of_stream(cls, params: Params, n_rows: int) -> Batching:
        """Return the batches of the first rows of a stream: no epochs if they can all be landmarks."""
        planned = cls.of(params, n_rows)
        most = _n_landmarks(params, MOST_LANDMARKS_WITH_SITES)
        return replace(planned, n_epochs=0) if n_rows <= most else planned


@dataclass(frozen=True)
class FitPlan:
    """Hold the decisions about a fit: its kind, its batches (None: all rows at once) and its processes."""

    params: Params
    kind: FitKind
    batching: Batching | None
    communicator: Communicator

    def route(self, choice: Choice) -> str:
        """Return how sites are found for these likelihoods."""
        return choice.route(self.params.inference)

    @property
    def has_affine(self) -> bool:
        """Tell whether the latents themselves are among the features."""
        return self.params.affine is True and self.kind.has_channels

    @property
    def n_landmarks(self) -> int:
        """Return on how many rows a start is made, if there are more."""
        is_reduced = self.batching is not None and self.kind is FitKind.SITES
        return _n_landmarks(self.params, MOST_LANDMARKS_WITH_SITES if is_reduced else MOST_LANDMARKS)

    @property
    def callbacks(self) -> tuple[Callback, ...]:
        """Return what is called after each sweep."""
        given = tuple(self.params.callbacks or ())
        if self.params.verbose and self.communicator.is_first:
            return (*given, _PrintProgress(int(self.params.verbose)))
        return given

    def for_landmarks(self, survey: Survey, facts: DataFacts) -> FitPlan:
        """Return the plan for the landmarks of a fit in batches, given what a pass over all rows told."""
        is_complete = survey.n_observed == facts.n_rows * facts.n_columns
        is_exact = is_complete and _may_be_exact(self.params, facts.is_plain)
        return replace(self, kind=FitKind.COMPLETE_GAUSSIAN if is_exact else FitKind.SITES)

    def build_problem(self, data: TrainingData, facts: DataFacts) -> Problem:
        """Build the problem of the kind that was planned."""
        params = self.params
        if self.kind is FitKind.COMPLETE_GAUSSIAN:
            assert facts.moments is not None
            dtype = np.dtype(params.dtype)
            return CompleteGaussianProblem.of(
                data.source, facts.moments, params.compression, dtype, self.communicator
            )
        Y = _whole_table(data.source)
        if self.kind is FitKind.GAUSSIAN_MISSING:
            return MissingGaussianProblem.of(Y, params.compression, params.n_components)
        data.choice.check(Y, data.names)
        layout = Layout.from_data(Y, data.choice)
        layout = replace(layout, size_method=layout.choose_size_method(params.size_factors, Y))
        log_sizes = data.log_sizes(Y, slice(None), layout)
        problem = SharedBasisProblem if self.kind is FitKind.SHARED_BASIS else SiteProblem
        route = self.route(data.choice)
        return problem.of(
            Y, layout, log_sizes, params.compression, params.n_components, route, self.has_affine
        )

    def options(self, problem: Problem, checkpoints: Checkpoints | None = None) -> Options:
        """Resolve all parameters for a problem of all rows."""
        params = self.params
        init = params.init if isinstance(params.init, str) else params.initial_latents(problem.n_rows)
        return self._options(problem, init, checkpoints, params.max_iter)

    def landmark_options(
        self, problem: Problem, index: np.ndarray, n_rows: int, checkpoints: Checkpoints | None
    ) -> Options:
        """Resolve all parameters for a problem of the rows `index` of `n_rows`.

        With epochs to come, `max_iter` is their number, and the landmarks make their sweeps as if it were
        "auto".
        """
        params = self.params
        init = params.init if isinstance(params.init, str) else params.initial_latents(n_rows)[index]
        has_epochs = self.batching is not None and self.batching.n_epochs > 0
        return self._options(problem, init, checkpoints, "auto" if has_epochs else params.max_iter)

    def _options(
        self, problem: Problem, init: Any, checkpoints: Checkpoints | None, max_iter: int | str
    ) -> Options:
        params = self.params
        options = Options(
            n_components=int(params.n_components),
            n_frequencies=_n_frequencies(params, problem.n_rows, self.kind),
            n_mixture=int(params.n_mixture),
            frequency_sampling=params.frequency_sampling,
            covariance_type=params.covariance_type,
            latent_covariance_type=params.resolved_covariance_type,
            n_samples=int(params.n_samples),
            n_directions=params.compression,
            max_iter=self._automatic_sweeps(problem) if max_iter == "auto" else int(max_iter),
            tol=float(params.tol),
            n_init=int(params.n_init),
            init=init,
            n_landmarks=_n_landmarks(params),
            learning_rate=self._learning_rate(problem),
            dtype=np.dtype(params.dtype),
            has_affine=self.has_affine,
            callbacks=self.callbacks,
            checkpoints=checkpoints,
            fewest_share=self._fewest_share(problem, max_iter),
        )
        return replace(options, pilot=self._pilot(options, problem, max_iter))

    def _pilot(self, options: Options, problem: Problem, max_iter: int | str) -> Options:
        """Return the options of a pilot, with frequencies as Gaussian data have them.

        Where sweeps are many because weights follow with a delay, it has the schedule of Gaussian data.
        """
        kind = FitKind.COMPLETE_GAUSSIAN
        n_frequencies = _n_frequencies(self.params, problem.n_rows, kind)
        pilot = replace(options, n_frequencies=n_frequencies)
        if self.kind is not FitKind.SHARED_BASIS or max_iter != "auto":
            return pilot
        gaussian = replace(self, kind=kind)
        return replace(
            pilot,
            max_iter=gaussian._automatic_sweeps(problem),
            learning_rate=gaussian._learning_rate(problem),
            fewest_share=0.0,
        )

    def _automatic_sweeps(self, problem: Problem) -> int:
        """Return how many sweeps are made if it is left open.

        Where the evidence is exact, gradients are good enough for long steps, and few sweeps do. Weights in
        a shared basis follow the features with a delay, and their sweeps are cheap.
        """
        fewest = _FEWEST_SWEEPS.get(self.kind, 25)
        if self.has_affine:
            return int(np.clip(_ENTRIES_OF_SWEEPS // problem.n_entries, fewest, 8 * fewest))
        return int(np.clip(_FEW_ROWS * fewest // problem.n_rows, fewest, 4 * fewest))

    def _fewest_share(self, problem: Problem, max_iter: int | str) -> float:
        """Return the share of the sweeps before which a bound that no longer rises is not called converged.

        Large steps hold the bound down, and the smaller ones at the end of a schedule raise it again: who
        asks for many sweeps would else get a lower bound than from few, and so would small tables with a site
        for every entry. Other schedules that are automatic or short, and those of expensive sweeps, end at
        once. A pilot does as the fit it is for.
        """
        if max_iter == "auto":
            return 0.9 if self._has_cheap_sites(problem) or self.kind is FitKind.SHARED_BASIS else 0.0
        is_cheap = self.kind is FitKind.COMPLETE_GAUSSIAN or self._has_cheap_sites(problem)
        return 0.9 if is_cheap and int(max_iter) >= 20 else 0.0

    def _learning_rate(self, problem: Problem) -> float:
        """Return the first step size. Long steps need good gradients: of all columns, or of most at once."""
        if self.params.learning_rate == "auto":
            return 0.02 if self.kind.has_channels and not self._has_cheap_sites(problem) else 0.05
        return float(self.params.learning_rate)

    def _has_cheap_sites(self, problem: Problem) -> bool:
        """Tell whether a table with sites is small: few rows, and every step sees half of the columns."""
        is_small = problem.n_rows < _FEW_ROWS
        return is_small and self.kind is FitKind.SITES and problem.share_of_columns >= 0.5


def gather_facts(params: Params, data: TrainingData, communicator: Communicator) -> DataFacts:
    """Collect the facts that a plan depends on, by a pass over the entries if it depends on them.

    The pass is the first of those that a fit of complete Gaussian data makes, so that nothing is read twice.
    """
    facts = DataFacts.of(data)
    if not _may_be_exact(params, facts.is_plain) or params.batch_size not in ("auto", None):
        return facts
    row_log_sizes(None, np.empty((0, 0)), data.sizes, data.size_factors)
    need = Memory.of_fit(params, FitKind.COMPLETE_GAUSSIAN, facts.n_rows, facts.n_columns, communicator)
    need.refuse_excess(communicator.n_processes_here())
    return DataFacts.of(data, ColumnMoments.of(data.source, params.compression, communicator))


def plan_fit(params: Params, facts: DataFacts, communicator: Communicator) -> FitPlan:
    """Decide how to fit data of which these facts are known, and refuse what cannot be done."""
    kind = FitKind.of(params, facts)
    where = ""
    if facts.first_missing is not None:
        where = "Y has a missing entry at row {}, column {}.".format(*facts.first_missing)
        if communicator.n_processes > 1:
            raise DataError(f"{where} Several processes need complete data: use one process.")
    if kind is FitKind.LINEAR:
        params.refuse_linear_batches()
    batching = None if kind is FitKind.LINEAR else _plan_batching(params, facts, kind)
    kind = kind if batching is None else kind.in_batches
    if batching is None and kind is not FitKind.COMPLETE_GAUSSIAN:
        _refuse_files(
            facts, where or "The likelihood and the inference are not those of plain Gaussian data."
        )
        need = Memory.of_fit(params, kind, facts.n_rows, facts.n_columns, communicator)
        need.refuse_excess(communicator.n_processes_here())
    return FitPlan(params, kind, batching, communicator)


def _may_be_exact(params: Params, is_plain: bool) -> bool:
    return is_plain and params.inference == "auto" and params.affine is not True


def _plan_batching(params: Params, facts: DataFacts, kind: FitKind) -> Batching | None:
    """Return the batches of a fit that is to see some rows at a time.

    Left open, it is so where rows are not in memory and a fit of all of them would need a number or more for
    every entry.
    """
    if params.batch_size is None:
        return None
    if params.batch_size == "auto" and (kind is FitKind.COMPLETE_GAUSSIAN or facts.in_memory):
        return None
    if params.inference not in ("auto", "sites"):
        raise ValueError(
            f"inference={params.inference!r} is for fits of all rows at once, and a fit in batches uses "
            "sites. Set batch_size=None and give Y as an array, or use inference='auto'."
        )
    return Batching.of(params, facts.n_rows)


def _refuse_files(facts: DataFacts, reason: str) -> None:
    if not facts.in_memory:
        raise DataError(
            f"{reason} This fit needs all of Y in memory, and a file or a sparse matrix is not read as a "
            "whole unless you ask for it. Fit it in batches (batch_size='auto'), or, if it fits into memory, "
            "give the array itself (numpy.load(path), matrix.toarray(), pandas.read_parquet(path))."
        )


def _whole_table(source: Source) -> FloatArray:
    """Read all of Y, for fits that need it in memory; an array is not copied."""
    return source.read(0, source.n_rows)


def is_shared_out(params: Params, choice: Choice, n_rows: int, communicator: Communicator) -> bool:
    """Tell whether processes share out the rows; if not, the first one does all the work.

    What several processes cannot do together is refused.
    """
    most = _n_landmarks(params)
    if communicator.n_processes == 1:
        return n_rows > most
    if not _may_be_exact(params, choice.is_plain_gaussian):
        raise ValueError(
            "Several processes can only share the rows of Gaussian data with one noise for all columns "
            "(likelihood='gaussian', inference='auto'). Use one process for other likelihoods."
        )
    if params.batch_size not in ("auto", None):
        raise ValueError(
            "A fit in batches (batch_size) runs in one process. Set batch_size=None for several."
        )
    if n_rows > most and params.init_name not in LANDMARK_STARTS:
        raise ValueError(
            f"With more than {most} rows, several processes start from landmarks: "
            "use init='auto' or 'neighbors', or one process."
        )
    return n_rows > most


def _n_frequencies(params: Params, n_rows: int, kind: FitKind) -> int:
    """Return the number of frequencies of a fit of so many rows."""
    if params.n_frequencies != "auto":
        return int(params.n_frequencies)
    if kind.has_channels and params.affine is True:
        return FREQUENCIES_BESIDE_AFFINE
    usual = _usual_frequencies(n_rows)
    return min(usual, MOST_FREQUENCIES_WITH_SITES) if kind is FitKind.SITES else usual


def _usual_frequencies(n_rows: int) -> int:
    """Return how many frequencies so many rows tell apart, within bounds."""
    return int(np.clip(n_rows // 4, 25, MOST_FREQUENCIES))


def _affords_sites(params: Params, n_rows: int, n_columns: int) -> bool:
    """Tell whether a matrix of all features for every column is affordable in every step."""
    is_open = params.n_frequencies == "auto"
    usual = min(_usual_frequencies(n_rows), MOST_FREQUENCIES_WITH_SITES)
    n_features = 2 * (usual if is_open else int(params.n_frequencies))
    return n_rows * n_columns * n_features**2 <= _MOST_SITE_NUMBERS


def _n_landmarks(params: Params, usual: int | None = None) -> int:
    """Return on how many rows a start is made; `usual` is what "auto" means, `MOST_LANDMARKS` if None."""
    if params.n_landmarks != "auto":
        return int(params.n_landmarks)
    return MOST_LANDMARKS if usual is None else usual


# ---- memory ----------------------------------------------------------------------------------------

FILLED_BYTES, SITE_BYTES = 150.0, 220.0

# Of a shared basis: bytes an entry, bytes a row and feature, and more of them for larger programs.
_SHARED_BYTES, _SHARED_ROW_BYTES, _SHARED_PROGRAMS = 135.0, 27.0, 450e6

_PIECE_ENTRIES = 4e6
_PROGRAMS = 200e6


@dataclass(frozen=True)
class _Shape:
    """Hold what the need depends on: see `Memory`. `n_scores` is R, `item_bytes` s."""

    n_rows: int
    n_columns: int
    n_scores: int
    n_features: int
    n_latent: int
    diagonal: bool
    item_bytes: int
    n_landmarks: int


@dataclass(frozen=True)
class Memory:
    """Hold bytes by what they are for, beyond what the process holds before the fit and beyond Y itself.

    With N rows (of this process), M columns, R scores, L features, Q latents, chunks of B rows, s bytes a
    number of the fit and P = Q + Q^2 parameters of a row (2 Q with diagonal covariances), a fit of complete
    Gaussian data holds, in bytes,

        scores      N R (s' + s)   kept, and in chunks; s' is s where they are many, else 8
        latents     14 N P s       parameters, Adam's two moments, before and after a sweep (6), the best
                                   state (1), and gradients, steps and copies of XLA's program (7)
        embedding   24 N (Q + Q^2) means and factors in float64: of landmarks, of q(X), and at the end
        columns     40 M^2         Gram matrix, scaled copy and eigenvectors; 40 N^2 + 24 M R if rows are
                                   fewer, and 40 M (2 R + 50) for the sketch, if both are more than 3000 and
                                   2 R + 50
        features    100 L^2 + 8 B L s + 16384 (2 Q + 3) L
                                   algebra of the regression, features of a chunk, and of one at the end
        pieces      100 MB         rows as they are read, centred (25 N M where that is less)
        landmarks   16 K M         K = min(N, n_landmarks) rows in float64, and a copy
        programs    200 MB         compiled programs, and what compiling them takes

    With missing entries, or with a site for every entry, the arrays of all N M entries dominate: measured,
    150 and 220 bytes an entry, in place of scores and columns. With a shared basis 135 bytes an entry and
    27 N L were measured, and 450 MB of programs. A linear function has packed second moments
    of all rows, their covariances in float32 and those of the weights.
    """

    parts: dict[str, float]

    @property
    def total(self) -> float:
        """Return the sum of all parts, in bytes."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        largest = sorted(self.parts.items(), key=lambda part: -part[1])
        return f"{in_gb(self.total)} ({', '.join(f'{name} {in_gb(size)}' for name, size in largest)})"

    @classmethod
    def of_fit(
        cls, params: Params, kind: FitKind, n_rows: int, n_columns: int, communicator: Communicator
    ) -> Memory:
        """Predict what a fit of some kind needs, in this process."""
        named = {"auto": MOST_DIRECTIONS, "all": n_columns}
        directions = params.compression
        most = named[directions] if isinstance(directions, str) else int(directions)
        shape = _Shape(
            n_rows=-(-n_rows // communicator.n_processes),
            n_columns=n_columns,
            n_scores=min(n_rows, n_columns, most),
            n_features=2 * _n_frequencies(params, n_rows, kind),
            n_latent=int(params.n_components),
            diagonal=params.resolved_covariance_type == "diag",
            item_bytes=np.dtype(params.dtype).itemsize,
            n_landmarks=_n_landmarks(params),
        )
        if kind is FitKind.COMPLETE_GAUSSIAN:
            return cls.of_complete(shape)
        if kind is FitKind.LINEAR:
            return cls.of_linear(shape)
        if kind is FitKind.SHARED_BASIS:
            return cls.of_shared_basis(shape)
        return cls.of_entries(shape, has_sites=kind is FitKind.SITES)

    @classmethod
    def of_complete(cls, shape: _Shape) -> Memory:
        """Predict what a fit of complete Gaussian data needs."""
        kept = shape.item_bytes if shape.n_rows * shape.n_scores > MOST_DOUBLE_SCORES else 8
        scores = float(shape.n_rows * shape.n_scores * (kept + shape.item_bytes))
        columns = _of_columns(shape.n_rows, shape.n_columns, shape.n_scores)
        return cls(_of_every_fit(shape) | {"scores": scores, "columns": columns})

    @classmethod
    def of_entries(cls, shape: _Shape, *, has_sites: bool) -> Memory:
        """Predict what a fit needs that holds arrays of all entries: with sites, or with filled entries."""
        size = SITE_BYTES if has_sites else FILLED_BYTES
        return cls(_of_every_fit(shape) | {"entries": size * shape.n_rows * shape.n_columns})

    @classmethod
    def of_shared_basis(cls, shape: _Shape) -> Memory:
        """Predict what a fit needs of weights whose covariances share a basis."""
        entries = _SHARED_BYTES * shape.n_rows * shape.n_columns
        rows = _SHARED_ROW_BYTES * shape.n_rows * shape.n_features
        return cls(_of_every_fit(shape) | {"entries": entries, "rows": rows, "programs": _SHARED_PROGRAMS})

    @classmethod
    def of_linear(cls, shape: _Shape) -> Memory:
        """Predict what a fit of a linear function needs."""
        n, m, pairs = shape.n_rows, shape.n_columns, shape.n_latent**2
        return cls(
            {
                "latents": (0.5 * shape.item_bytes + 8.0) * n * pairs,
                "weights": (2.5 * shape.item_bytes + 12.0) * m * pairs,
                "matrices": 400e6,
                "entries": 80.0 * n * m,
                "columns": 40.0 * m**2,
                "programs": _PROGRAMS,
            }
        )

    def refuse_excess(self, n_sharing: int = 1) -> None:
        """Raise a `MemoryError` where there is not enough for a fit by so many processes on this machine."""
        room = available()
        if room is not None and n_sharing * self.total > room:
            each = f" in each of {n_sharing} processes here" if n_sharing > 1 else ""
            raise MemoryError(
                f"This fit needs about {self}{each}, but only {in_gb(room)} are free. Give fewer components, "
                "n_frequencies or directions (compression), take dtype='float32', spread the rows over more "
                "machines, or fit in batches (batch_size=1024)."
            )


def _of_every_fit(shape: _Shape) -> dict[str, float]:
    n, m, q, size = shape.n_rows, shape.n_columns, shape.n_latent, shape.item_bytes
    features, per_row = shape.n_features, 2 * q if shape.diagonal else q + q * q
    return {
        "latents": 14.0 * n * per_row * size,
        "embedding": 24.0 * n * (q + q * q),
        "features": 100.0 * features**2
        + 8.0 * chunk_shape(n)[1] * features * size
        + 8.0 * CHUNK * (2 * q + 3) * features,
        "pieces": 25.0 * min(n * m, _PIECE_ENTRIES),
        "landmarks": 16.0 * min(n, shape.n_landmarks) * m,
        "programs": _PROGRAMS,
    }


def _of_columns(n_rows: int, n_columns: int, n_scores: int) -> float:
    """Predict what finding the directions takes, by the ways of `data.compression`."""
    shorter = min(n_rows, n_columns)
    if shorter > LARGEST_EXACT and shorter > Sketch.n_tests(n_scores):
        return 40.0 * n_columns * Sketch.n_tests(n_scores)
    return 40.0 * n_columns**2 if n_columns <= n_rows else 40.0 * n_rows**2 + 24.0 * n_columns * n_scores
