"""Loaders: each reads files made here, in the layout of the archives and as publishers write them."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile

import numpy as np
import pytest
from scipy.io import savemat

from srflvm.exceptions import DataError
from srflvm_bench import datasets
from srflvm_bench.datasets import published
from srflvm_bench.datasets.folder import KNOWN_SUMS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SRFLVM_DATA", str(tmp_path))
    return tmp_path


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write_idx(path, array):
    content = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def test_no_folder_is_an_error_that_names_the_remedy(monkeypatch, tmp_path):
    monkeypatch.delenv("SRFLVM_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="argument folder, or set SRFLVM_DATA"):
        datasets.load_mnist()
    with pytest.raises(FileNotFoundError, match="nowhere, does not exist"):
        datasets.load_mnist(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("load", "file", "address"),
    [
        (datasets.load_bridges, "bridges.npz", "cityofnewyork"),
        (datasets.load_montreal, "comptagesvelo2015.csv", "montreal.ca"),
        (datasets.load_newsgroups, "newsgroups.npz", "20Newsgroups"),
        (datasets.load_mnist, "t10k-labels-idx1-ubyte", "lecun"),
        (datasets.load_cifar10, "cifar10_gray20.npz", "toronto"),
        (datasets.load_yale, "Yale_32x32.mat", "dengcai"),
        (datasets.load_brendan, "frey_rawface.mat", "roweis"),
    ],
)
def test_missing_files_are_named_with_folder_and_address(folder, load, file, address):
    with pytest.raises(FileNotFoundError) as caught:
        load()
    message = str(caught.value)
    assert file in message
    assert str(folder) in message
    assert address in message


def test_a_wrong_checksum_names_file_sums_and_remedy(folder):
    Y, labels = pixels(6, 1024), np.arange(6)
    np.savez(folder / "yale.npz", Y=Y, labels=labels)
    with pytest.raises(
        DataError, match=r"yale\.npz has the SHA-256 sum [0-9a-f]{64}.*848cb65c.*verify=False"
    ):
        datasets.load_yale()
    data = datasets.load_yale(verify=False)
    np.testing.assert_array_equal(np.rint(data.Y * 255), Y)
    np.testing.assert_array_equal(data.labels, labels)


def test_a_known_checksum_is_accepted(folder, monkeypatch):
    np.savez(folder / "brendan.npz", Y=pixels(5, 560))
    found = hashlib.sha256((folder / "brendan.npz").read_bytes()).hexdigest()
    monkeypatch.setitem(KNOWN_SUMS, "brendan.npz", found)
    assert datasets.load_brendan().Y.shape == (5, 560)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_from_idx(folder, suffix):
    train, test = pixels(1200, 28, 28), pixels(30, 28, 28, seed=1)
    labels = pixels(1230, seed=2) % 10
    write_idx(folder / f"train-images-idx3-ubyte{suffix}", train)
    write_idx(folder / f"t10k-images-idx3-ubyte{suffix}", test)
    write_idx(folder / f"train-labels-idx1-ubyte{suffix}", labels[:1200])
    write_idx(folder / f"t10k-labels-idx1-ubyte{suffix}", labels[1200:])
    data = datasets.load_mnist(verify=False)
    assert (data.name, data.likelihood, data.image_shape) == ("mnist", "gaussian", (28, 28))
    np.testing.assert_array_equal(np.rint(data.Y[1200:] * 255), test.reshape(30, -1))
    np.testing.assert_array_equal(data.labels, labels)
    index = np.random.RandomState(3).permutation(1230)[:1000]
    subset = datasets.load_mnist(subset="paper", random_state=3, verify=False)
    np.testing.assert_array_equal(subset.Y, data.Y[index])
    np.testing.assert_array_equal(subset.labels, labels[index])


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte.gz", "train-images.idx3-ubyte", "data_batch_1"])
def test_files_of_publishers_are_compared_with_their_known_sums(folder, monkeypatch, name):
    load = datasets.load_cifar10 if name == "data_batch_1" else datasets.load_mnist
    write_idx(folder / name, pixels(2, 28, 28))
    with pytest.raises(DataError, match=rf"{name} has the MD5 sum [0-9a-f]{{32}}.*verify=False"):
        load()
    content = gzip.decompress((folder / name).read_bytes()) if name.endswith("gz") else None
    found = hashlib.md5(content or (folder / name).read_bytes()).hexdigest()
    known_name = "data_batch_1" if name == "data_batch_1" else "train-images-idx3-ubyte"
    monkeypatch.setitem(published.PUBLISHED_SUMS, known_name, found)
    assert len(published.read_bytes(folder / name, verify=True)) == 16 + 2 * 28 * 28


def test_damaged_idx_is_refused(tmp_path):
    write_idx(tmp_path / "images", pixels(3, 4, 4))
    content = (tmp_path / "images").read_bytes()
    for wrong, words in [
        (content[:-1], "cut short"),
        (b"\1" + content[1:], "not an IDX"),
        (b"", "not an IDX"),
    ]:
        (tmp_path / "images").write_bytes(wrong)
        with pytest.raises(DataError, match=words):
            published.read_idx(tmp_path / "images")


@pytest.fixture
def batches():
    """More than 400 images of class 0 and fewer of the others."""
    labels = [np.minimum(pixels(500, seed=seed + 10) % 14, 10) % 10 for seed in range(6)]
    return [(pixels(500, 3072, seed=seed), labels[seed]) for seed in range(6)]


CIFAR_NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def test_cifar_from_python_and_binary_batches(folder, batches):
    binary = folder / "cifar-10-batches-bin"
    binary.mkdir()
    for name, (images, labels) in zip(CIFAR_NAMES, batches, strict=True):
        (binary / f"{name}.bin").write_bytes(np.column_stack([labels, images]).tobytes())
    from_binary = datasets.load_cifar10(size=32)
    assert from_binary.Y.shape == (3000, 1024)
    for name, (images, labels) in zip(CIFAR_NAMES, batches, strict=True):
        content = pickle.dumps({b"data": images, b"labels": labels.tolist()}, protocol=2)
        (folder / name).write_bytes(content)
    for batch in binary.iterdir():
        batch.unlink()
    from_pickles = datasets.load_cifar10(size=32, verify=False)
    np.testing.assert_array_equal(from_pickles.Y, from_binary.Y)
    np.testing.assert_array_equal(from_pickles.labels, np.concatenate([labels for _, labels in batches]))
    subset = datasets.load_cifar10(subset="paper", verify=False)
    assert subset.image_shape == (20, 20)
    counts = np.bincount(from_pickles.labels)
    assert counts[0] > 400 > counts[1]
    np.testing.assert_array_equal(np.bincount(subset.labels), np.minimum(counts[:5], 400))
    zeros = datasets.load_cifar10(verify=False).Y[from_pickles.labels == 0]
    np.testing.assert_array_equal(subset.Y[subset.labels == 0], zeros[:400])


def test_grey_and_smaller_images_agree_with_pillow():
    image = pytest.importorskip("PIL.Image")
    colour = pixels(20, 3, 32, 32)
    pictures = [
        image.fromarray(np.ascontiguousarray(each.transpose(1, 2, 0))).convert("L") for each in colour
    ]
    grey = published.to_grey(colour)
    np.testing.assert_array_equal(grey, [np.asarray(each) for each in pictures])
    small = [np.asarray(each.resize((20, 20), image.Resampling.BILINEAR)) for each in pictures]
    np.testing.assert_array_equal(published.shrink(grey, 20), small)


class Trap:
    def __reduce__(self):
        return (print, ("ran",))


def test_pickles_run_no_code(folder, capsys):
    (folder / "data_batch_1").write_bytes(pickle.dumps({b"data": Trap()}))
    with pytest.raises(DataError, match=r"builtins\.print is not allowed"):
        datasets.load_cifar10(verify=False)
    assert capsys.readouterr().out == ""
    (folder / "data_batch_1").write_bytes(pickle.dumps({b"data": [1]}))
    with pytest.raises(DataError):
        datasets.load_cifar10(verify=False)


def test_faces_from_mat_are_upright(folder):
    faces, frames = pixels(4, 32, 32), pixels(6, 28, 20)
    down_columns = np.array([face.T.ravel() for face in faces])
    savemat(folder / "Yale_32x32.mat", {"fea": down_columns.astype(float), "gnd": [[1], [1], [2], [2]]})
    savemat(folder / "frey_rawface.mat", {"ff": frames.reshape(6, -1).T})
    yale, brendan = datasets.load_yale(), datasets.load_brendan()
    np.testing.assert_array_equal(np.rint(yale.Y * 255).reshape(-1, *yale.image_shape), faces)
    np.testing.assert_array_equal(yale.labels, [0, 0, 1, 1])
    np.testing.assert_array_equal(np.rint(brendan.Y * 255).reshape(-1, *brendan.image_shape), frames)
    assert brendan.labels is None


def test_bicycles_from_csv(folder):
    bridges = "Date,Day,Brooklyn Bridge,Manhattan Bridge,Williamsburg Bridge,Queensboro Bridge\n"
    bridges += '4/1/2017,Saturday,606,"1,446","1,915","1,430"\n4/3/17,Monday,"3,021",2,3,4\n'
    (folder / "bridges.csv").write_text(bridges)
    data = datasets.load_bridges()
    np.testing.assert_array_equal(data.Y, [[606, 1446, 1915, 1430], [3021, 2, 3, 4]])
    np.testing.assert_array_equal(data.labels, [0, 1])
    assert data.likelihood == "negative_binomial"
    lanes = "Berri1,Brébeuf,Maisonneuve_2,Maisonneuve_3,Rachel / Hôtel de Ville,Rachel / Papineau"
    montreal = f"Date,,{lanes},René-Lévesque,Totem_Laurier,University\n"
    montreal += "01/02/2015,00:00,1,,2,3,4,5,6,7,8\n14/07/2015,00:00,9,9,9,9,9,9,9,9,9\n"
    montreal += "16/11/2015,00:00,1,1,1,1,1,1,1,1,1\n"
    for encoding in ("utf-8", "latin-1"):
        (folder / "comptagesvelo2015.csv").write_text(montreal, encoding=encoding)
        data = datasets.load_montreal()
        np.testing.assert_array_equal(data.Y, [[1, 2, 3, 4, 5, 6, 7, 8], [9] * 8])
        np.testing.assert_array_equal(data.labels, [0, 2])
    (folder / "bridges.csv").write_text("Date,Brooklyn\n4/1/2017,1\n")
    with pytest.raises(DataError, match="no column 'Manhattan'"):
        datasets.load_bridges()
    (folder / "bridges.csv").write_text(bridges + "Total\n")
    with pytest.raises(DataError, match=r"bridges\.csv, line 4 has no entry in column 'Brooklyn'"):
        datasets.load_bridges()
    (folder / "bridges.csv").write_text("")
    with pytest.raises(DataError, match=r"bridges\.csv is empty"):
        datasets.load_bridges()


TEXTS = {
    "20news-bydate-test/alt.atheism/3": "Apple apple pear rare",
    "20news-bydate-train/sci.med/2": "every fig pear",
    "20news-bydate-train/sci.med/1": "Every fig, fig; naïf",
    "20news-bydate-train/rec.autos/4": "every wheel",
    "20news-bydate-train/comp.sys.mac.hardware/9": "every apple I a",
    **{f"20news-bydate-test/sci.med/{n}": "every naïf pear" for n in range(5, 12)},
}


def write_texts(path):
    with tarfile.open(path, "w:gz") as archive:
        top = tarfile.TarInfo("./")
        top.type, top.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(top)
        for name, text in TEXTS.items():
            content = text.encode("latin-1")
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def test_words_of_newsgroups_are_counted_in_archive_and_folders(folder):
    """Words in fewer than 10 % or more than 90 % of the texts, and words of one letter, are not counted.

    Eleven texts are of the three groups: "every" is in ten of them, "rare" in one.
    """
    write_texts(folder / "20news-bydate.tar.gz")
    data = datasets.load_newsgroups(verify=False)
    # columns apple, fig, naïf, pear; rows for training first, then by group and by name:
    # comp 9, sci 1, sci 2; alt 3, sci 10, 11, 5, ..., 9
    expected = [[1, 0, 0, 0], [0, 2, 1, 0], [0, 1, 0, 1], [2, 0, 0, 1], *[[0, 0, 1, 1]] * 7]
    np.testing.assert_array_equal(data.Y, expected)
    np.testing.assert_array_equal(data.labels, [1, 2, 2, 0, *[2] * 7])
    with tarfile.open(folder / "20news-bydate.tar.gz") as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (folder / "20news-bydate.tar.gz").unlink()
    unpacked = datasets.load_newsgroups(verify=False)
    np.testing.assert_array_equal(unpacked.Y, data.Y)
    np.testing.assert_array_equal(unpacked.labels, data.labels)


def test_newsgroups_with_texts_missing_or_an_archive_cut_short_are_refused(folder):
    path = folder / "20news-bydate.tar.gz"
    write_texts(path)
    with pytest.raises(DataError, match=r"has 11 texts of alt\.atheism.*there are 2752.*verify=False"):
        datasets.load_newsgroups()
    whole = path.read_bytes()
    for damaged in (whole[:-40], whole[:60] + bytes(20) + whole[80:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"20news-bydate\.tar\.gz cannot be read .*fetch it again"):
            datasets.load_newsgroups()


def test_bad_arguments_are_refused(folder):
    with pytest.raises(ValueError, match='"paper"'):
        datasets.load_mnist(subset="small")
    with pytest.raises(ValueError, match="20 or 32"):
        datasets.load_cifar10(size=28)
