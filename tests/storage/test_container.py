"""Containers give back every array bit for bit, or say that they are damaged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors import SafetensorError
from safetensors.numpy import load as from_bytes

from srflvm.storage.container import Container, SchemaError, encode, tensor_digest

KINDS = [
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
]
DTYPES = st.sampled_from(KINDS).map(np.dtype)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
HEADERS = st.dictionaries(
    st.text().filter(lambda name: name not in ("format", "tensors_sha256")),
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    max_size=4,
)


@st.composite
def layouts(draw, orders=("C", "F", "strided", "reversed")):
    """Draw an array of any type and shape, in any order in memory."""
    array = draw(arrays.arrays(DTYPES, SHAPES))
    order = draw(st.sampled_from(orders))
    if order == "F":
        return np.asfortranarray(array) if array.ndim else array
    if order == "strided" and array.ndim:
        return np.repeat(array, 2, axis=0)[::2]
    return array[..., ::-1] if order == "reversed" and array.ndim else array


TENSORS = st.dictionaries(
    st.text(min_size=1).filter(lambda name: name != "__metadata__"), layouts(), max_size=5
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("containers") / "container"


def assert_equal_bits(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name].dtype == expected[name].dtype
        assert found[name].shape == expected[name].shape
        assert found[name].tobytes() == expected[name].tobytes()


@given(HEADERS, TENSORS)
def test_headers_and_arrays_come_back(path, header, tensors):
    content = encode(header | {"format": "test"}, tensors)
    path.write_bytes(content)
    container = Container.open(path)
    found = container.header("test")
    assert found == header | {"format": "test", "tensors_sha256": tensor_digest(tensors)}
    for name, stored in container.tensors.items():
        form = (stored.shape, stored.dtype, stored.size)
        assert form == (tensors[name].shape, tensors[name].dtype, tensors[name].size)
    assert_equal_bits(container.read(found), tensors)
    assert_equal_bits(from_bytes(content), tensors)
    assert encode(header | {"format": "test"}, dict(reversed(tensors.items()))) == content


@given(TENSORS)
def test_order_in_memory_and_of_bytes_do_not_change_the_content(tensors):
    expected = encode({}, {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in tensors.items()})
    assert encode({}, tensors) == expected
    swapped = {name: array.astype(array.dtype.newbyteorder()) for name, array in tensors.items()}
    assert encode({}, swapped) == expected


@given(TENSORS.filter(bool), st.data())
def test_checksums_tell_arrays_apart(tensors, data):
    name = data.draw(st.sampled_from(sorted(tensors)))
    other = data.draw(arrays.arrays(DTYPES, SHAPES))
    same = (other.dtype, other.shape) == (tensors[name].dtype, tensors[name].shape)
    same = same and other.tobytes() == tensors[name].tobytes()
    assert (tensor_digest(tensors | {name: other}) == tensor_digest(tensors)) == same


SOUND = encode({"format": "test", "n": 1}, {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(3, np.float32)})


@given(st.integers(0, len(SOUND) - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed_or_changes_nothing(path, place, mask):
    content = bytearray(SOUND)
    content[place] ^= mask
    path.write_bytes(content)
    try:
        container = Container.open(path)
        found = container.header("test")
        tensors = container.read(found)
    except (SafetensorError, SchemaError):
        return
    assert found["n"] == 1
    assert_equal_bits(tensors, {"a": np.arange(6.0).reshape(2, 3), "b": np.ones(3, np.float32)})


@given(st.integers(0, len(SOUND) - 1))
def test_a_file_cut_short_is_refused(path, length):
    path.write_bytes(SOUND[:length])
    with pytest.raises(SafetensorError):
        Container.open(path)


def test_a_header_of_another_format_is_refused(path):
    path.write_bytes(SOUND)
    with pytest.raises(SchemaError, match="does not say 'other'"):
        Container.open(path).header("other")


def test_numbers_that_json_does_not_have_are_not_written():
    with pytest.raises(ValueError, match="JSON"):
        encode({"a": np.inf}, {})
