"""The public face: the scikit-learn contract, parameters, hostile input, interruption, numerics."""

import pickle

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from helpers.fitted_models import N_COLUMNS, quick_fit, small_data, small_model
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from srflvm import SRFLVM, DataError, NumericalError, Progress, bcd
from srflvm.likelihoods import Gaussian
from srflvm.parallel.communicator import Communicator


def test_fitted_attributes_are_numpy_and_of_the_right_shape():
    model = small_model()
    shapes = {
        "embedding_": (60, 2),
        "embedding_std_": (60, 2),
        "elbo_history_": (4,),
        "frequencies_": (25, 2),
        "mixture_weights_": (10,),
        "mixture_means_": (10, 2),
        "mixture_covariances_": (10, 2, 2),
    }
    for name, shape in shapes.items():
        value = getattr(model, name)
        assert type(value) is np.ndarray
        assert value.shape == shape
        assert value.dtype == np.float64
        assert value.flags.writeable
    for name in ("elbo_", "noise_variance_", "amplitude_", "concentration_"):
        assert type(getattr(model, name)) is float
    assert model.mixture_weights_.sum() == pytest.approx(1.0)
    assert model.n_iter_ == 4
    assert model.n_rejected_steps_ == 0
    assert model.start_ == "pca"
    assert model.n_features_in_ == N_COLUMNS


def test_elbo_is_in_the_units_of_the_data():
    Y = small_data()[0]
    scaled = quick_fit(100.0 * Y + 3.0)
    assert scaled.elbo_ == pytest.approx(small_model().elbo_ - Y.size * np.log(100.0), rel=1e-6)
    assert scaled.noise_variance_ == pytest.approx(1e4 * small_model().noise_variance_, rel=1e-4)


def test_fit_transform_equals_transform_and_fit_then_transform():
    Y = small_data()[0]
    model = clone(small_model())
    with pytest.warns(ConvergenceWarning, match="max_iter=4"):
        Z = model.fit_transform(Y)
    assert np.array_equal(Z, model.transform(Y))
    assert np.array_equal(Z, small_model().embedding_)


@pytest.mark.parametrize("library", [pd, pl])
def test_data_frames_and_set_output(library):
    Y = small_data()[0]
    names = [f"gene {i}" for i in range(N_COLUMNS)]
    frame = library.DataFrame(dict(zip(names, Y.T, strict=True)))
    model = quick_fit(frame)
    assert list(model.feature_names_in_) == names
    assert list(model.get_feature_names_out()) == ["srflvm0", "srflvm1"]
    Z = model.set_output(transform="pandas" if library is pd else "polars").transform(frame)
    assert isinstance(Z, library.DataFrame)
    assert list(Z.columns) == ["srflvm0", "srflvm1"]
    assert np.array_equal(np.asarray(Z), model.embedding_)
    renamed = library.DataFrame(dict(zip(names[::-1], Y.T, strict=True)))
    with pytest.raises(ValueError, match="feature names"):
        model.transform(renamed)


def test_works_in_a_pipeline():
    Y, new_rows = small_data()
    labels = (Y[:, 0] > 0).astype(int)
    model = SRFLVM(max_iter=4, n_frequencies=25, init="pca", random_state=0)
    pipeline = make_pipeline(StandardScaler(), model, KNeighborsClassifier(3))
    with pytest.warns(ConvergenceWarning):
        pipeline.fit(Y, labels)
    assert pipeline.predict(new_rows).shape == (20,)
    assert pipeline[:-1].get_feature_names_out().tolist() == ["srflvm0", "srflvm1"]


def test_same_seed_same_result_and_other_seed_other_result():
    Y = small_data()[0]
    again, other = quick_fit(Y), quick_fit(Y, random_state=1)
    assert np.array_equal(again.embedding_, small_model().embedding_)
    assert again.elbo_ == small_model().elbo_
    assert not np.array_equal(other.embedding_, small_model().embedding_)


def test_fit_does_not_change_the_input():
    Y = small_data()[0].copy()
    quick_fit(Y)
    assert np.array_equal(Y, small_data()[0])


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("n_components", 0, "n_components=0 must be an integer of at least 1"),
        ("n_components", 2.5, "integer"),
        ("n_components", True, "integer"),
        ("likelihood", "cauchy", "likelihood='cauchy' is not known"),
        ("n_frequencies", -3, "n_frequencies=-3"),
        ("n_frequencies", "many", "n_frequencies='many'"),
        ("n_mixture", 0, "n_mixture=0"),
        ("frequency_sampling", "exact", "'mixture', 'moment'"),
        ("covariance_type", "tied", "'full', 'diag'"),
        ("latent_covariance_type", None, "'full', 'diag'"),
        ("n_samples", 0, "n_samples=0"),
        ("compression", "none", "compression='none'"),
        ("max_iter", 0, "max_iter=0"),
        ("tol", -1e-3, "tol=-0.001 must be a non-negative"),
        ("n_init", 0, "n_init=0"),
        ("n_landmarks", 9, "n_landmarks=9 must be an integer of at least 10"),
        ("n_landmarks", "all", "n_landmarks='all'"),
        ("init", "umap", "'auto', 'pca', 'neighbors', 'random'"),
        ("init", None, "init=None"),
        ("init", np.zeros((3, 2)), r"must be \(rows of Y, n_components\) = \(60, 2\)"),
        ("init", np.full((60, 2), np.nan), "init contains NaN"),
        ("learning_rate", 0.0, "learning_rate=0.0 must be a positive"),
        ("learning_rate", np.inf, "finite"),
        ("dtype", "float16", "'float32', 'float64'"),
        ("dtype", "number", "'float32', 'float64'"),
        ("random_state", "seed", "seed"),
    ],
)
def test_bad_parameters_are_refused_by_name(parameter, value, message):
    with pytest.raises(ValueError, match=message):
        SRFLVM(**{parameter: value}).fit(small_data()[0])


def test_callbacks_must_be_callable():
    with pytest.raises(TypeError, match="cannot be called"):
        SRFLVM(callbacks=[3]).fit(small_data()[0])


def with_entry(value, row=7, column=2):
    Y = small_data()[0].copy()
    Y[row, column] = value
    return Y


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (with_entry(-np.inf), "infinity at row 7, column 2; 1 of its 480"),
        (with_entry(np.nan, row=slice(None)), "no observed entry in column 2"),
        (np.zeros((5, 3)), "All rows of Y are equal"),
        (np.empty((0, 3)), "0 sample"),
        (np.empty((3, 0)), "0 feature"),
        (np.ones((1, 3)), "1 sample"),
        (np.arange(5.0), "1D array"),
        (np.ones((2, 2, 2)), "dim 3"),
        (
            np.array([["a", "b"], ["c", "d"]]),
            r"Column 0 holds text: 'a' at row 0.*\{0: 'categorical', ...\}",
        ),
        (1e150 * small_data()[0], "Rescale Y"),
    ],
)
def test_bad_data_are_refused_with_the_place_and_the_remedy(Y, message):
    with pytest.raises(ValueError, match=message):
        SRFLVM().fit(Y)


def test_bad_rows_name_the_column_of_a_data_frame():
    frame = pd.DataFrame(with_entry(np.inf), columns=[f"g{i}" for i in range(N_COLUMNS)])
    with pytest.raises(DataError, match="Column 2 \\('g2'\\) holds infinity at row 7"):
        SRFLVM().fit(frame)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.transform(np.ones((3, 5))), "5 features.*expecting 8"),
        (lambda m: m.score_samples(with_entry(np.inf)), "infinity"),
        (lambda m: m.inverse_transform(np.ones((3, 3))), r"Z has shape \(3, 3\) but must be \(n, 2\)"),
        (lambda m: m.inverse_transform(np.ones(2)), "given as \\[z\\]"),
        (lambda m: m.inverse_transform([[np.nan, 0.0]]), "Z contains NaN"),
        (lambda m: m.decode(np.ones((3, 2)), np.ones((2, 2))), "shape of Z"),
        (lambda m: m.decode(np.ones((3, 2)), -np.ones((3, 2))), "non-negative"),
        (lambda m: m.sample(0), "n_samples=0"),
        (lambda m: m.kernel(np.ones((2, 2)), method="exact"), "'mixture', 'features'"),
        (lambda m: m.kernel(np.ones((2, 2)), np.ones((2, 3))), "must be"),
        (lambda m: m.spectral_density(np.ones((2, 5))), "must be"),
    ],
)
def test_bad_arguments_of_fitted_models(call, message):
    with pytest.raises(ValueError, match=message):
        call(small_model())


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.transform(np.ones((2, 2))),
        lambda m: m.inverse_transform(np.ones((2, 2))),
        lambda m: m.decode(np.ones((2, 2))),
        lambda m: m.sample(),
        lambda m: m.score_samples(np.ones((2, 2))),
        lambda m: m.score(np.ones((2, 2))),
        lambda m: m.kernel(np.ones((2, 2))),
        lambda m: m.spectral_density(np.ones((2, 2))),
        lambda m: m.save("nowhere"),
        lambda m: m.get_feature_names_out(),
    ],
)
def test_unfitted_models_say_so(call):
    with pytest.raises(NotFittedError):
        call(SRFLVM())


def test_callbacks_see_progress_and_can_stop_the_fit():
    seen: list[Progress] = []

    def stop_at_three(progress):
        seen.append(progress)
        return progress.iteration == 3

    model = quick_fit(small_data()[0], callbacks=[stop_at_three], max_iter=9)
    assert [p.iteration for p in seen] == [1, 2, 3]
    assert {p.stage for p in seen} == {"fit"}
    assert seen[-1].elbo == model.elbo_history_[-1]
    assert seen[-1].n_iterations == 9
    assert model.n_iter_ == 3


@pytest.mark.parametrize("init", ["pca", "auto"])
def test_ctrl_c_keeps_the_best_state(init):
    def interrupt(progress):
        if progress.iteration == 2:
            raise KeyboardInterrupt

    model = quick_fit(small_data()[0], callbacks=[interrupt], init=init)
    assert model.interrupted_
    assert model.n_iter_ <= 2
    assert np.isfinite(model.embedding_).all()


def test_ctrl_c_that_was_noted_for_all_processes_ends_the_fit(monkeypatch):
    monkeypatch.setattr(Communicator, "is_interrupted", True)
    model = quick_fit(small_data()[0])
    assert model.interrupted_
    assert model.n_iter_ == 1


def test_a_callback_can_stop_the_fit_while_starts_are_compared():
    model = quick_fit(small_data()[0], callbacks=[lambda p: p.iteration == 2], init="auto", max_iter=9)
    assert model.n_iter_ == 2
    assert not model.interrupted_
    assert set(model.start_elbos_) <= {"pca", "neighbors"}


def test_ctrl_c_before_anything_is_worth_keeping_is_passed_on(monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(bcd, "_one_sweep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        quick_fit(small_data()[0])


def test_verbose_prints_where_the_fit_is(capsys):
    quick_fit(small_data()[0], verbose=10)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[-1].startswith("[srflvm] fit: sweep 4/4, bound per entry ")


def test_auto_keeps_the_start_with_the_best_bound():
    model = quick_fit(small_data()[0], init="auto")
    assert set(model.start_elbos_) == {"pca", "neighbors"}
    assert model.start_ == max(model.start_elbos_, key=model.start_elbos_.__getitem__)


def test_init_array_and_random_and_n_init():
    Y = small_data()[0]
    placed = quick_fit(Y, init=small_model().embedding_)
    assert placed.start_ == "array"
    several = quick_fit(Y, init="random", n_init=3)
    assert several.start_ in {"random", "random 2", "random 3"}
    assert set(several.start_elbos_) == {"random", "random 2", "random 3"}
    assert several.elbo_ >= quick_fit(Y, init="random").elbo_ - 30


def test_warm_start_goes_on_where_the_last_fit_ended():
    Y = small_data()[0]
    model = quick_fit(Y, warm_start=True)
    first = model.elbo_
    with pytest.warns(ConvergenceWarning):
        model.fit(Y)
    assert model.start_ == "warm"
    assert model.elbo_history_[0] > small_model().elbo_history_[0]
    assert model.elbo_ > first
    with pytest.raises(ValueError, match="rows and components"):
        model.fit(Y[:40])
    with pytest.raises(ValueError, match="frequencies and mixture components"):
        model.set_params(n_mixture=4).fit(Y)
    with pytest.raises(
        ValueError, match="the likelihoods, the columns that have them, the affine part or the inference"
    ):
        quick_fit(Y, warm_start=True).set_params(likelihood="student_t").fit(Y)


def test_pickled_models_give_the_same_answers():
    copy = pickle.loads(pickle.dumps(small_model()))
    assert np.array_equal(copy.transform(small_data()[1]), small_model().transform(small_data()[1]))


@pytest.fixture
def compiled():
    """Return a list that grows by one with every program that is compiled."""
    found = []

    def listen(event, seconds, **_):
        if event.endswith("backend_compile_duration"):
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)


def test_a_second_fit_of_the_same_shape_compiles_nothing(compiled):
    Y, new_rows = small_data()
    small_model().transform(new_rows)
    quick_fit(Y, random_state=4)
    compiled.clear()
    quick_fit(Y, random_state=5).transform(new_rows)
    assert compiled == []
    quick_fit(Y[:-1], random_state=5)
    assert compiled


def test_a_table_of_the_same_shape_with_other_steps_and_categories_compiles_nothing(compiled):
    """Numbers are recorded in other steps, and the categories that are told best are others."""
    random = np.random.RandomState(0)
    codes = random.randint(3, size=40)
    noise = random.standard_normal((40, 2))
    for step, favourite in ((0.1, 0), (0.25, 2)):
        numbers = step * np.rint((noise + 5.0 * (codes == favourite)[:, None]) / step)
        likelihood = {(0, 1): Gaussian(noise="column", scale="column"), 2: "categorical"}
        compiled.clear()
        model = SRFLVM(likelihood=likelihood, n_components=1, affine=True, init="pca", max_iter=2, tol=0.0)
        model.fit(np.c_[numbers, codes]).impute(np.array([[np.nan, 0.0, 1.0]]))
    assert compiled == []
    assert model._posterior.layout.groups[-1].likelihood.stick_order[0] == 2


def test_steps_that_are_not_finite_are_rejected_counted_and_survived(monkeypatch):
    sweep, n_sweeps = bcd._one_sweep, []

    def failing_once(model, run, key, data, schedule):
        n_sweeps.append(1)
        if len(n_sweeps) == 2:
            data = data._replace(smallest_ratio=data.smallest_ratio * np.nan)
        return sweep(model, run, key, data, schedule)

    monkeypatch.setattr(bcd, "_one_sweep", failing_once)
    model = quick_fit(small_data()[0], max_iter=10)
    assert model.n_rejected_steps_ == 6
    assert np.isfinite(model.embedding_).all()
    assert np.isfinite(model.elbo_)


def test_lasting_failure_is_retried_in_float64_and_then_reported(monkeypatch):
    dtypes = []
    sweep = bcd._one_sweep

    def failing(model, run, key, data, schedule):
        dtypes.append(str(data.targets.scores.dtype))
        return sweep(model, run, key, data._replace(smallest_ratio=data.smallest_ratio * np.nan), schedule)

    monkeypatch.setattr(bcd, "_one_sweep", failing)
    with pytest.raises(NumericalError, match="not finite"):
        quick_fit(small_data()[0])
    assert set(dtypes) == {"float32", "float64"}


@pytest.mark.parametrize(("n_components", "n_axes"), [(8, 3), (9, 2)])
def test_covariances_of_many_latents_are_diagonal_while_fitting(n_components, n_axes):
    model = quick_fit(np.random.default_rng(0).normal(size=(40, 20)), n_components=n_components, init="pca")
    assert model._state["latent_factor"].ndim == n_axes
    assert model.embedding_std_.shape == (40, n_components)
