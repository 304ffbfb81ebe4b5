import copy

import numpy as np
import pytest
from helpers.model_files import some_rows
from scipy import sparse
from typer.testing import CliRunner

import srflvm.anndata
from srflvm import SRFLVM, DataError, choose_n_components
from srflvm.cli import app
from srflvm.data.reading import _CheckedSource as CheckedSource
from srflvm.data.reading import read_source
from srflvm.data.tables.formats import open_table, write_filled, write_table
from srflvm.data.tables.h5ad import open_matrix
from srflvm.data.tables.table import ReadOptions, Table

anndata = pytest.importorskip("anndata")
pandas = pytest.importorskip("pandas")

GENES = ["actb", "cd4", "gapdh", "myc"]


def cells(values=None):
    values = some_rows() if values is None else values
    obs = pandas.DataFrame({"kind": ["x", "y"] * 15}, index=[f"c{n}" for n in range(30)])
    return anndata.AnnData(values, obs, pandas.DataFrame(index=GENES))


def test_the_scanpy_way_gives_what_the_estimator_gives(model, tmp_path):
    adata = cells()
    with pytest.warns(UserWarning, match="still rising"):
        found = srflvm.anndata.srflvm(adata, max_iter=3, random_state=0, decoded_layer="decoded", copy=True)
    assert not adata.obsm
    np.testing.assert_array_equal(found.obsm["X_srflvm"], model.embedding_)
    np.testing.assert_array_equal(found.obsm["X_srflvm_std"], model.embedding_std_)
    np.testing.assert_array_equal(found.layers["decoded"], model.inverse_transform(model.embedding_))
    found.write_h5ad(tmp_path / "c.h5ad")
    again = anndata.read_h5ad(tmp_path / "c.h5ad")
    np.testing.assert_array_equal(again.obsm["X_srflvm"], model.embedding_)
    np.testing.assert_array_equal(again.uns["srflvm"]["elbo_history"], model.elbo_history_)
    assert again.uns["srflvm"]["params"]["random_state"] == 0


def test_the_estimator_takes_anndata_with_the_names_of_its_variables():
    model = SRFLVM()
    np.testing.assert_array_equal(read_source(model, cells(), reset=True).read(0, 30), some_rows())
    assert list(model.feature_names_in_) == GENES
    read_source(model, cells(), reset=False)


def named_model():
    """Return an estimator that knows the genes, as after a fit."""
    model = SRFLVM()
    model.feature_names_in_, model.n_features_in_ = np.array(GENES, dtype=object), len(GENES)
    return model


def kept(adata, way, folder):
    """Return an AnnData object as it is, in an open file, or as a path."""
    if way == "memory":
        return adata
    adata.write_h5ad(folder / "kept.h5ad")
    return anndata.read_h5ad(folder / "kept.h5ad", backed="r") if way == "backed" else folder / "kept.h5ad"


WAYS = ("memory", "backed", "path")
FORMS = {"dense": np.asarray, "csr": sparse.csr_matrix, "csc": sparse.csc_matrix}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
def test_matrices_of_all_forms_are_read_in_files_and_in_memory(way, form, tmp_path):
    given = kept(cells(FORMS[form](some_rows())), way, tmp_path)
    model = SRFLVM()
    source = read_source(model, given, reset=True)
    assert list(model.feature_names_in_) == GENES
    np.testing.assert_array_equal(source.read(3, 9), some_rows()[3:9])
    np.testing.assert_array_equal(source.take(np.array([2, 3, 17])), some_rows()[[2, 3, 17]])
    assert isinstance(source, CheckedSource) == ((way, form) != ("memory", "dense"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
def test_genes_are_found_by_name_in_any_order_and_among_others(way, form, tmp_path):
    more = np.hstack([np.full((30, 1), 7.0), some_rows()[:, [2, 0, 3, 1]], np.full((30, 2), 8.0)])
    adata = anndata.AnnData(FORMS[form](more))
    adata.var_names = ["x", "gapdh", "actb", "myc", "cd4", "y", "z"]
    source = read_source(named_model(), kept(adata, way, tmp_path), reset=False)
    np.testing.assert_array_equal(source.read(0, 30), some_rows())


def test_masks_follow_the_genes():
    mask = np.zeros((30, 4), bool)
    mask[5, 1] = True
    order = [2, 0, 3, 1]
    adata = cells()[:, order]
    source = read_source(named_model(), adata, mask[:, order], reset=False)
    np.testing.assert_array_equal(source.read(0, 30), np.where(mask, np.nan, some_rows()))


@pytest.mark.parametrize("way", ["memory", "backed"])
def test_a_mask_of_dense_cells_in_a_file(way, tmp_path):
    mask = np.eye(30, 4, dtype=bool)
    source = read_source(SRFLVM(), kept(cells(), way, tmp_path), mask, reset=True)
    np.testing.assert_array_equal(source.read(0, 30), np.where(mask, np.nan, some_rows()))


def test_genes_that_are_missing_are_named():
    with pytest.raises(DataError, match=r"no variable 'cd4', 'myc'.*\(2 of 4 are missing\)"):
        read_source(named_model(), cells()[:, ["gapdh", "actb"]], reset=False)


def test_genes_of_one_name_are_refused_only_where_they_are_looked_for():
    twice = ["actb", "cd4", "actb", "myc"]
    adata = cells()
    adata.var_names = twice
    model = SRFLVM()
    read_source(model, adata, reset=True)
    np.testing.assert_array_equal(read_source(model, adata, reset=False).read(0, 30), some_rows())
    with pytest.raises(DataError, match=r"several have the name 'actb'.*var_names_make_unique"):
        read_source(model, cells(), reset=False)
    with pytest.raises(DataError, match=r"several have the name 'actb'.*var_names_make_unique"):
        read_source(named_model(), adata, reset=False)
    others_twice = anndata.AnnData(np.hstack([np.zeros((30, 2)), some_rows()]))
    others_twice.var_names = ["x", "x", *GENES]
    np.testing.assert_array_equal(
        read_source(named_model(), others_twice, reset=False).read(0, 30), some_rows()
    )
    with pytest.raises(ValueError, match=r"'actb', but 2 columns of Y have that name \(0, 2\)"):
        SRFLVM(likelihood={"actb": "gaussian", ("cd4", "myc"): "student_t"}).fit(adata)


def test_frames_in_another_order_are_refused_as_scikit_learn_does():
    frame = cells().to_df()
    model = SRFLVM()
    read_source(model, frame, reset=True)
    with pytest.raises(ValueError, match="must be in the same order"):
        read_source(model, frame[frame.columns[::-1]], reset=False)


def test_a_choice_of_components_takes_cells(monkeypatch):
    """Count entries of categories over named columns."""
    seen = []
    monkeypatch.setattr(SRFLVM, "fit", lambda self, Y, **options: seen.append(Y) or self)
    monkeypatch.setattr(SRFLVM, "score_entries", lambda self, Y, *_, **options: np.zeros((30, 4)))
    monkeypatch.setattr(SRFLVM, "interrupted_", False, raising=False)
    monkeypatch.setattr(SRFLVM, "relevance_", np.ones(1), raising=False)
    counts = cells(np.arange(120).reshape(30, 4) % 3.0)
    choice = {("actb", "cd4"): "categorical", ("gapdh", "myc"): "gaussian"}
    assert choose_n_components(SRFLVM(likelihood=choice), counts, [1]).n_components == 1
    assert seen[0].names == GENES


@pytest.fixture
def fits(monkeypatch):
    """Return a list of the sources that `fit` is given; the estimator learns nothing."""
    given = []

    def fit(self, table):
        given.append(read_source(self, table, reset=True))
        self.embedding_, self.embedding_std_ = np.zeros((30, 2)), np.ones((30, 2))
        return self

    monkeypatch.setattr(SRFLVM, "fit", fit)
    monkeypatch.setattr(SRFLVM, "inverse_transform", lambda self, Z: np.full((30, self.n_features_in_), 5.0))
    monkeypatch.setattr(srflvm.anndata, "_summary", lambda model: {"genes": list(model.feature_names_in_)})
    return given


@pytest.mark.parametrize("way", ["memory", "backed"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("named", [True, False])
def test_some_genes_are_used(way, form, named, fits, tmp_path):
    adata = cells(FORMS[form](some_rows()))
    flags = np.array([True, False, True, True])
    adata.var["variable"] = flags
    found = kept(adata, way, tmp_path)
    srflvm.anndata.srflvm(found, mask_var="variable" if named else flags, decoded_layer="decoded")
    np.testing.assert_array_equal(fits[0].read(0, 30), some_rows()[:, flags])
    assert found.uns["srflvm"]["genes"] == ["actb", "gapdh", "myc"]
    np.testing.assert_array_equal(found.layers["decoded"][0], [5.0, np.nan, 5.0, 5.0])


@pytest.mark.parametrize("way", ["memory", "backed"])
def test_the_raw_matrix_is_used(way, fits, tmp_path):
    adata = cells()
    adata.raw = adata
    found = kept(adata[:, :2].copy(), way, tmp_path)
    changed = srflvm.anndata.srflvm(found, use_raw=True, copy=True)
    np.testing.assert_array_equal(fits[0].read(0, 30), some_rows())
    assert changed.uns["srflvm"]["genes"] == GENES
    assert "X_srflvm" not in found.obsm


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask_var": "variable"}, "mask_var='variable' is no column of adata.var"),
        ({"mask_var": [True, False]}, "mask_var must be 4 booleans"),
        ({"mask_var": [1, 0, 1, 1]}, "mask_var must be 4 booleans"),
        ({"mask_var": [False] * 4}, "true for no variable"),
        ({"use_raw": True}, "adata.raw, which is not set"),
        ({"use_raw": True, "layer": "counts"}, "two matrices"),
        ({"use_raw": True, "decoded_layer": "decoded"}, "decoded_layer has the variables of adata"),
    ],
)
def test_choices_of_genes_that_mean_nothing_are_refused(options, message, fits):
    with pytest.raises(ValueError, match=message):
        srflvm.anndata.srflvm(cells(), **options)
    assert not fits


def test_genes_that_a_model_does_not_know_are_left_out_on_the_command_line(model, tmp_path):
    with_names = copy.deepcopy(model)
    with_names.feature_names_in_ = np.array(GENES, dtype=object)
    with_names.save(tmp_path / "m.srflvm")
    values = some_rows()
    values[4, 2] = np.nan
    more = anndata.AnnData(np.hstack([np.full((30, 1), np.nan), values[:, [2, 0, 3, 1]]]))
    more.var_names = ["x", "gapdh", "actb", "myc", "cd4"]
    more.write_h5ad(tmp_path / "c.h5ad")
    paths = {name: str(tmp_path / name) for name in ("m.srflvm", "c.h5ad", "z.csv", "f.h5ad")}
    said = []
    for arguments in (
        ["transform", paths["m.srflvm"], paths["c.h5ad"], "-o", paths["z.csv"]],
        ["impute", paths["c.h5ad"], "--model", paths["m.srflvm"], "-o", paths["f.h5ad"]],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        said.append(result.output)
    assert all("ignored 1 column that the model does not know: x" in text for text in said)
    assert "1 missing entries" in said[1]
    np.testing.assert_allclose(
        open_table(tmp_path / "z.csv", ReadOptions(id_column="id")).values, with_names.transform(more)
    )
    filled = anndata.read_h5ad(tmp_path / "f.h5ad")
    np.testing.assert_array_equal(filled.X[:, 1:], with_names.impute(more)[:, [2, 0, 3, 1]])
    assert np.isnan(filled.X[:, 0]).all()


def test_sparse_matrices_are_read_in_pieces_with_their_names():
    model = SRFLVM()
    source = read_source(model, cells(sparse.csr_matrix(some_rows())), reset=True)
    assert isinstance(source, CheckedSource)
    np.testing.assert_array_equal(source.read(3, 9), some_rows()[3:9])
    assert list(model.feature_names_in_) == GENES
    assert model.n_features_in_ == 4


def test_layers_are_found_by_name():
    adata = cells()
    adata.layers["raw"] = np.ones((30, 4))
    assert open_matrix(adata, "raw").values[0, 0] == 1.0
    with pytest.raises(DataError, match="no layer 'counts'"):
        srflvm.anndata.srflvm(adata, layer="counts")


def test_files_come_and_go_through_the_command_line(model, tmp_path):
    adata = cells(np.zeros((30, 4)))
    adata.layers["values"] = some_rows()
    adata.write_h5ad(tmp_path / "c.h5ad")
    with_names = copy.deepcopy(model)
    with_names.feature_names_in_ = np.array(GENES, dtype=object)
    with_names.save(tmp_path / "m.srflvm")
    steps = [
        ["transform", "m.srflvm", "c.h5ad", "--layer", "values", "-o", "z.h5ad"],
        ["transform", "m.srflvm", "c.h5ad", "--layer", "values", "-o", "z.csv"],
    ]
    for arguments in steps:
        given = [str(tmp_path / a) if "." in a else a for a in arguments]
        result = CliRunner().invoke(app, given)
        assert result.exit_code == 0, result.output
    found = anndata.read_h5ad(tmp_path / "z.h5ad")
    np.testing.assert_array_equal(found.obsm["X_srflvm"], model.embedding_)
    assert found.obs["kind"].tolist() == adata.obs["kind"].tolist()
    assert open_table(tmp_path / "z.csv").ids[2] == "c2"


def test_filled_files_keep_their_annotations(tmp_path):
    values = some_rows()
    values[3, 1] = np.nan
    cells(values).write_h5ad(tmp_path / "c.h5ad")
    table = open_table(tmp_path / "c.h5ad", ReadOptions(keep=True))
    filled = np.where(np.isnan(table.values), 7.0, table.values)
    write_filled(tmp_path / "f.h5ad", table, filled)
    found = anndata.read_h5ad(tmp_path / "f.h5ad")
    np.testing.assert_array_equal(found.X, np.where(np.isnan(values), 7.0, values))
    assert found.obs["kind"].tolist() == ["x", "y"] * 15
    write_table(tmp_path / "n.h5ad", Table(table.rows, table.columns, table.ids))
    assert open_table(tmp_path / "n.h5ad").ids == [f"c{n}" for n in range(30)]


def test_neighbours_and_leiden_of_scanpy_find_the_groups_of_a_count_matrix():
    scanpy = pytest.importorskip("scanpy")
    pytest.importorskip("igraph")
    means = np.array([[2.0, 60.0, 9.0, 30.0], [50.0, 3.0, 8.0, 90.0], [20.0, 20.0, 90.0, 2.0]])
    adata = cells(np.random.RandomState(0).poisson(np.repeat(means, 10, axis=0)).astype(float))
    adata.layers["log"] = np.log1p(adata.X)
    with pytest.warns(UserWarning, match="still rising"):
        srflvm.anndata.srflvm(adata, "log", max_iter=3, random_state=0)
    scanpy.pp.neighbors(adata, n_neighbors=5, use_rep="X_srflvm", method="gauss", random_state=0)
    scanpy.tl.leiden(adata, resolution=0.3, flavor="igraph", n_iterations=2, directed=False, random_state=0)
    found = adata.obs["leiden"].to_numpy().reshape(3, 10)
    assert [len(set(row)) for row in found] == [1, 1, 1]
    assert len(set(found[:, 0])) == 3


def test_draws_are_a_data_set_with_named_dimensions(model):
    pytest.importorskip("xarray")
    draws = model.to_xarray(some_rows()[:6], n_draws=400, random_state=0)
    assert dict(draws.sizes) == {"chain": 1, "draw": 400, "row": 6, "component": 2, "column": 4}
    mean, std = model.transform(some_rows()[:6], return_std=True)
    error = np.abs(draws["latent"].mean(("chain", "draw")).to_numpy() - mean)
    assert np.all(error < 5.0 * std / 20.0)
    np.testing.assert_allclose(draws["latent"].std(("chain", "draw")).to_numpy(), std, rtol=0.25)
