"""Numbers and texts survive packing to the precision that is promised."""

import numpy as np
import pytest
from helpers.explore_pages import unpack_array, unpack_codes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from srflvm import DataError
from srflvm.explore.packing import base64_length, pack_array, pack_codes, sound_text

KINDS = ("uint8", "uint16", "int16", "float32", "float64")
SIZES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)


@given(st.data(), st.sampled_from(KINDS), st.booleans())
def test_arrays_come_back_in_the_order_of_rows(data, kind, transposed):
    values = data.draw(arrays.arrays(kind, SIZES))
    values = values.T if transposed else values
    block = pack_array(values, kind)
    assert len(block["data"]) == base64_length(values.nbytes)
    np.testing.assert_array_equal(unpack_array(block), values.ravel())


ENTRIES = st.floats(-1e38, 1e38) | st.just(np.nan)


@given(arrays.arrays(np.float64, st.integers(0, 20), elements=ENTRIES))
def test_codes_are_within_half_a_step(values):
    coded = pack_codes(values)
    found, seen = unpack_codes(coded), values[~np.isnan(values)]
    np.testing.assert_array_equal(np.isnan(found), np.isnan(values))
    largest = np.max(np.abs(seen), initial=0.0)
    tolerance = 0.5 * coded["step"] * (1.0 + 1e-9) + 1e-15 * largest
    assert np.all(np.abs(found - values)[~np.isnan(values)] <= tolerance)
    assert coded["step"] <= max(1.0, np.ptp(seen) / 65534 * (1.0 + 1e-9)) if len(seen) else True


@given(st.integers(-(10**9), 10**9), st.lists(st.integers(0, 254) | st.none(), max_size=30))
def test_neighbouring_whole_numbers_are_exact(low, steps):
    values = np.array([np.nan if step is None else low + step for step in steps], float)
    np.testing.assert_array_equal(unpack_codes(pack_codes(values)), values)


@given(st.text(st.characters()))
def test_texts_without_halves_of_characters_are_kept(text):
    sound = sound_text(text)
    sound.encode("utf-8")
    assert sound_text(sound) == sound
    if not any(0xD800 <= ord(character) < 0xE000 for character in text):
        assert sound == text


def test_numbers_that_single_precision_cannot_hold_are_refused():
    with pytest.raises(DataError, match=r"holds numbers beyond 3\.4e\+38.* larger units"):
        pack_array(np.array([1.0, 1e300]), "float32")
    assert np.isinf(unpack_array(pack_array(np.array([np.inf]), "float32")))
