"""Models to save, and model files that are written, read and changed without the checks of the library."""

import hashlib
import json
import warnings
from dataclasses import fields, is_dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from safetensors import safe_open
from safetensors.numpy import save as to_bytes
from sklearn.exceptions import ConvergenceWarning

from srflvm import SRFLVM
from srflvm.data.reading import read_data
from srflvm.data.sources import ArraySource
from srflvm.inference.facts import TrainingData
from srflvm.inference.params import Params
from srflvm.inference.plan import gather_facts, plan_fit
from srflvm.inference.result import FitResult
from srflvm.likelihoods import Binomial, Gaussian, StudentT
from srflvm.likelihoods.columns import choose
from srflvm.model import elbo
from srflvm.numerics import packed_symmetric
from srflvm.numerics.weight_covariances import PackedCovariances
from srflvm.parallel.communicator import Communicator
from srflvm.posterior.chunks import Embedding
from srflvm.posterior.sites import SitePosterior
from srflvm.storage.container import HEADER_DIGEST_KEY, HEADER_KEY, tensor_digest


def some_rows(n_rows=30):
    angle = np.linspace(0.0, 5.0, n_rows)
    clean = np.column_stack([np.sin(angle), np.cos(angle), angle, angle**2 / 5.0])
    return clean + 0.1 * np.random.RandomState(0).standard_normal(clean.shape)


def fit_briefly(Y, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SRFLVM(**{"max_iter": 3, "random_state": 0} | parameters).fit(Y)


def made_up(Y, **parameters):
    """Return a model with sites that has everything a fitted one has, with numbers that no fit has found.

    Compiling a fit takes half a minute of tests; nothing that is saved depends on where the numbers are from.
    """
    model = SRFLVM(**{"n_frequencies": 5, "n_mixture": 3} | parameters)
    random, values = np.random.RandomState(0), read_data(model, Y, reset=True)
    problem = problem_of(model, values)
    latents = random.standard_normal((len(values), model.n_components))
    state = made_up_state(problem, latents, random)
    learned = tuple({name: value + 0.1 for name, value in group.items()} for group in problem.parameters)
    result = FitResult(
        posterior=made_up_posterior(problem, latents, learned, random),
        embedding=Embedding(latents, np.tile(0.1 * np.eye(model.n_components), (len(values), 1, 1))),
        state=state,
        elbo=-10.0,
        history=np.array([-20.0, -10.0]),
        n_rejected=0,
        converged=False,
        interrupted=False,
        stopped=False,
        start="pca",
        start_elbos={"pca": -10.0, "neighbors": -15.0},
        sizes=problem.row_sizes,
    )
    vars(model).update(result.attributes())
    return model


def problem_of(model, values):
    """Return the problem that a fit of the model to these values would solve."""
    params = Params(**model.get_params(deep=False)).check()
    names = getattr(model, "feature_names_in_", None)
    choice = choose(model.likelihood, values.shape[1], names)
    data = TrainingData(ArraySource(values), choice, names, None, model.size_factors)
    facts = gather_facts(params, data, Communicator())
    return plan_fit(params, facts, Communicator()).build_problem(data, facts)


def made_up_state(problem, latents, random):
    start = elbo.StartingPoint("pca", latents, 1.0, 0.1, 0.1)
    types = {"covariance_type": "full", "latent_covariance_type": "full", "dtype": np.dtype(np.float32)}
    state = elbo.initial_state(start, random, n_frequencies=5, n_mixture=3, **types)
    state["parameters"] = problem.parameters
    state["log_amplitude"] = tuple(random.standard_normal(len(level)) for level in problem.levels)
    for name in ("weight_mean", "weight_log_std") if problem.route == "gradient" else ():
        weights = (random.standard_normal((len(level), 11)) for level in problem.levels)
        state[name] = tuple(part.astype(np.float32) for part in weights)
    return state


def made_up_posterior(problem, latents, learned, random):
    n_channels = problem.layout.n_channels
    factors = 0.1 * random.standard_normal((n_channels, 11, 15))
    packed = np.asarray(packed_symmetric.pack_form(factors @ factors.swapaxes(1, 2)))
    return SitePosterior(
        columns=problem.working.columns,
        frequencies=random.standard_normal((5, latents.shape[1])),
        anchors=latents,
        anchor_scores=problem.working.scores,
        table=problem.layout,
        weights=0.5 * random.standard_normal((11, n_channels)),
        covariance=PackedCovariances(packed.astype(np.float32)),
        level=np.concatenate(problem.levels),
        amplitude=random.uniform(0.5, 2.0, n_channels),
        parameters=learned,
    )


def rows_of_each_kind():
    """Return rows (30, 4) for every likelihood."""
    real = some_rows()
    counts, levels = np.round(2.0 * np.exp(0.5 * real)), np.digitize(real, [-0.5, 0.5]) * 1.0
    return {
        "gaussian": real,
        "student_t": real,
        "bernoulli": (real > 0.0) * 1.0,
        "binomial": counts,
        "negative_binomial": counts,
        "poisson": counts,
        "multinomial": counts,
        "ordinal": levels,
        "categorical": levels[:, :2] + levels[:, 2:],
    }


def table_of_all_kinds():
    """Return columns of all likelihoods by names; those of a likelihood are not next to each other."""
    rows = rows_of_each_kind()
    return pd.DataFrame({f"{kind} {j}": Y[:, j] for j in range(2) for kind, Y in rows.items()})


@lru_cache(maxsize=1)
def model_of_all_kinds():
    """Return a model that is made up, with all likelihoods."""
    chosen = {"gaussian": Gaussian("column"), "binomial": Binomial((90, 80)), "student_t": StudentT(3)}
    likelihood = {(f"{kind} 0", f"{kind} 1"): chosen.get(kind, kind) for kind in rows_of_each_kind()}
    return made_up(table_of_all_kinds(), likelihood=likelihood)


@lru_cache(maxsize=1)
def mixed_fit():
    """Return a fit to rows of mixed kinds with missing entries, by names, and those rows."""
    rows = rows_of_each_kind()
    Y = pd.DataFrame(
        {
            "größe": rows["gaussian"][:, 0],
            "kind": rows["categorical"][:, 0],
            "width": rows["gaussian"][:, 1],
        }
    )
    Y.iloc[3, 1] = Y.iloc[4, 2] = np.nan
    likelihood = {("größe", "width"): Gaussian("column"), "kind": "categorical"}
    # given latents spare the fit of a pilot
    settings = {"n_frequencies": 5, "n_mixture": 3, "max_iter": 1, "init": rows["gaussian"][:, :2]}
    return fit_briefly(Y, likelihood=likelihood, **settings), Y


@lru_cache(maxsize=1)
def rows_with_missing():
    Y = some_rows()
    Y[::4, 1] = np.nan
    return Y


@lru_cache(maxsize=1)
def fit_with_missing():
    return fit_briefly(rows_with_missing(), n_frequencies=5, max_iter=1, init="pca")


def outputs(model, Y):
    """Return the results of all methods of a model for some rows."""
    values = np.asarray(Y)
    missing = np.arange(values.size).reshape(values.shape) % 7 == 0
    Z, layout = model.transform(Y), model._posterior.layout
    found = [
        *model.transform(Y, return_std=True),
        model.transform(Y, mask=missing),
        *model.inverse_transform(Z, return_std=True),
        model.decode(Z, 0.1 * np.ones_like(Z)).variance,
        model.score_samples(Y),
        model.score_samples(Y, mask=missing),
        *model.impute(Y, mask=missing, return_std=True),
        model.impute(Y, mask=missing, n_draws=2, random_state=0),
        *model.sample(5, random_state=0, return_latents=True),
        *(model.kernel(Z, method=method) for method in ("mixture", "features")),
        model.spectral_density(Z),
    ]
    if all(group.channels.stop - group.channels.start == len(group.columns) for group in layout.groups):
        found.append(model.score_entries(Y, Y, mask=missing))
    return found


def assert_same_outputs(left, right, Y):
    for one, other in zip(outputs(left, Y), outputs(right, Y), strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def assert_same(left, right, where="model"):
    """Compare structure, types and every bit; a float of NumPy is as good as one of Python."""
    left, right = (value.item() if isinstance(value, np.float64) else value for value in (left, right))
    assert type(left) is type(right), where
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype, where
        np.testing.assert_array_equal(left, right, err_msg=where, strict=True)
        assert left.dtype == object or left.tobytes() == right.tobytes(), where
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same(left[key], right[key], f"{where}.{key}")
    elif isinstance(left, tuple):
        for index, pair in enumerate(zip(left, right, strict=True)):
            assert_same(*pair, f"{where}[{index}]")
    elif is_dataclass(left):
        # what is derived from the fields and kept beside them does not count
        for field in fields(left):
            assert_same(getattr(left, field.name), getattr(right, field.name), f"{where}.{field.name}")
    elif hasattr(left, "__dict__"):
        assert_same(vars(left), vars(right), where)
    else:
        assert left == right, where


def read(path):
    """Return the header and tensors of a file, without any of the checks of the library."""
    with safe_open(path, framework="numpy") as container:
        header = json.loads(container.metadata()[HEADER_KEY])
        return header, {name: container.get_tensor(name) for name in container.keys()}  # noqa: SIM118


def write(path, header, tensors, *, sign=True):
    """Write a file with the checksums that belong to its content, whatever it is."""
    if sign:
        header = header | {"tensors_sha256": tensor_digest(tensors)}
    text = json.dumps(header)
    digest = hashlib.sha256(text.encode()).hexdigest()
    metadata = {HEADER_KEY: text, HEADER_DIGEST_KEY: digest}
    path.write_bytes(to_bytes({n: np.asarray(t, order="C") for n, t in tensors.items()}, metadata))


def rewrite(path, change):
    """Change the content of a file in place; its checksums are right again."""
    header, tensors = read(path)
    change(header, tensors)
    write(path, header, tensors)


# Changes of what `read` returns: functions of a header and tensors.


def change_plain(entry, name, value):
    def change(header, tensors):
        header["model"][entry][name] = value

    return change


def change_entry(name, value):
    def change(header, tensors):
        header["model"][name] = value

    return change


def change_header(**entries):
    def change(header, tensors):
        header.update(entries)

    return change


def change_tensor(name, function):
    def change(header, tensors):
        tensors[name] = np.asarray(function(tensors[name]))

    return change


def change_tensors(names, function):
    def change(header, tensors):
        for name in names:
            change_tensor(name, function)(header, tensors)

    return change


def drop(*names):
    def change(header, tensors):
        for name in names:
            del tensors[name]

    return change


def set_first(value):
    def change(tensor):
        changed = np.array(tensor)
        changed.flat[0] = value
        return changed

    return change
