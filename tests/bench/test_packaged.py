"""Systems from packages: each on data made for it."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from srflvm.datasets import make_s_curve_gp
from srflvm.exceptions import DataError
from srflvm_bench.baselines import SYSTEMS, make, packaged


def blobs():
    Y, labels = make_blobs(90, 8, centers=3, cluster_std=0.5, random_state=0)
    return Y, labels


def topics():
    """Words of three topics, each with its own words and a few that all share."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 30)
    rates = np.full((3, 12), 0.3)
    for topic in range(3):
        rates[topic, 4 * topic : 4 * topic + 4] = 6.0
    return rng.poisson(rates[labels]).astype(float), labels


def accuracy(Z, labels):
    return cross_val_score(KNeighborsClassifier(3), Z, labels, cv=3).mean()


def linear_r2(Z, X):
    """Return the share of the variance of X that a linear map of Z explains."""
    design = np.column_stack([Z, np.ones(len(Z))])
    residual = X - design @ np.linalg.lstsq(design, X, rcond=None)[0]
    return 1 - residual.var() / X.var()


@pytest.mark.parametrize("name", ["PCA", "Isomap", "t-SNE"])
def test_groups_stay_apart(name):
    Y, labels = blobs()
    Z = make(name, random_state=0).fit_transform(Y)
    assert Z.shape == (90, 2)
    assert Z.dtype == np.float64
    assert accuracy(Z, labels) == 1.0


def test_isomap_places_rows_among_those_it_has_room_for():
    t = np.random.default_rng(0).uniform(0.0, 3.0, 300)
    Y = np.column_stack([np.cos(t), np.sin(t), 0.2 * t])
    all_rows, some = (make("Isomap", n_components=1, max_rows=most, random_state=0) for most in (300, 100))
    Z = some.fit_transform(Y)
    assert Z.shape == (300, 1)
    assert abs(np.corrcoef(Z[:, 0], all_rows.fit_transform(Y)[:, 0])[0, 1]) > 0.99
    assert abs(np.corrcoef(Z[:, 0], t)[0, 1]) > 0.99


UMAP_PROGRAM = """
import sys, numpy as np
from srflvm_bench.baselines import make
system = make("UMAP", random_state=0, n_epochs=30, n_neighbors=8)
np.save(sys.argv[2], system.fit_transform(np.load(sys.argv[1])))
"""


def test_umap_keeps_groups_apart(tmp_path):
    """UMAP runs in a process of its own without its compiler, which takes longer than all of this."""
    if importlib.util.find_spec("umap") is None:
        pytest.skip("umap-learn is not installed")
    Y, labels = blobs()
    np.save(tmp_path / "Y.npy", Y[:60])
    command = [sys.executable, "-c", UMAP_PROGRAM, str(tmp_path / "Y.npy"), str(tmp_path / "Z.npy")]
    subprocess.run(command, check=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    assert accuracy(np.load(tmp_path / "Z.npy"), labels[:60]) == 1.0


@pytest.mark.parametrize("name", ["LDA", "NMF", "HPF"])
def test_topics_are_found(name):
    if name == "HPF":
        pytest.importorskip("hpfrec")
    Y, labels = topics()
    Z = make(name, n_components=3, random_state=0).fit_transform(Y)
    assert Z.shape == (90, 3)
    assert (Z >= 0).all()
    assert accuracy(Z, labels) > 0.95
    np.testing.assert_array_equal(make(name, n_components=3, random_state=0).fit_transform(Y), Z)


def test_hpf_keeps_rows_and_columns_of_zeros():
    pytest.importorskip("hpfrec")
    Y, _ = topics()
    Y[-1] = Y[:, -1] = 0
    Z = make("HPF", random_state=0).fit_transform(Y)
    assert Z.shape == (90, 2)
    assert np.isfinite(Z).all()


@pytest.fixture(scope="module")
def s_curve():
    return make_s_curve_gp(60, 12, random_state=0)


@pytest.mark.parametrize("name", ["GPLVM", "BGPLVM"])
def test_gaussian_processes_find_the_latents(name, s_curve):
    pytest.importorskip("GPy")
    before = np.random.get_state()[1].copy()
    settings = {"n_inducing": 15} if name == "BGPLVM" else {}
    Z = make(name, random_state=0, max_iter=60, **settings).fit_transform(s_curve.Y)
    assert Z.shape == (60, 2)
    assert linear_r2(Z, s_curve.X) > 0.9
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_bgplvm_fills_holes(s_curve):
    pytest.importorskip("GPy")
    holes = np.random.default_rng(1).random(s_curve.Y.shape) < 0.1
    system = make("BGPLVM", random_state=0, max_iter=30, n_inducing=12)
    filled = system.reconstruct(np.where(holes, np.nan, s_curve.Y))
    error = np.mean((filled - s_curve.Y)[holes] ** 2)
    assert error < 0.3 * s_curve.Y[holes].var()


def test_unsuitable_entries_are_refused():
    for name in ("LDA", "HPF", "NMF"):
        with pytest.raises(DataError, match=f"{name} takes"):
            make(name).fit_transform(-np.ones((5, 3)))
    with pytest.raises(DataError, match="whole numbers"):
        make("LDA").fit_transform(np.full((5, 3), 0.5))
    with pytest.raises(DataError, match="missing"):
        make("PCA").fit_transform(np.array([[1.0, np.nan]]))


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "hpfrec", None)
    with pytest.raises(ImportError, match=r"pip install srflvm\[bench\]"):
        packaged.HPF().fit_transform(np.ones((4, 3)))


def test_the_list_of_systems():
    paper = {"PCA", "LDA", "Isomap", "NMF", "HPF", "VAE", "CVQ-VAE", "NBVAE", "BGPLVM", "GPLVM-SVI", "DCA"}
    paper |= {f"{kind}-{name}" for kind in "GNB" for name in ("RFLVM", "OURS")}
    assert paper | {"t-SNE", "UMAP", "GPLVM"} <= set(SYSTEMS)
    ours = make("N-OURS", n_components=3, random_state=1)
    assert (ours.likelihood, ours.n_components, ours.random_state) == ("negative_binomial", 3, 1)
    with pytest.raises(ValueError, match="'PCB' is not a system"):
        make("PCB")
