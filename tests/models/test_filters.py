"""The mel filters are the ones that Whisper was trained with."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests import data
from tests.oracle.mel import slaney_filters
from whispyx.models.convert import mel_filters


@pytest.mark.parametrize("name", ["tiny.en", "base", "large"])
def test_filters_equal_those_of_a_published_file(name: str) -> None:
    content = data.or_skip(data.for_tests_model, name).read_bytes()
    n_mel, n_fft = struct.unpack_from("<2i", content, 48)
    published = np.frombuffer(content, "<f4", n_mel * n_fft, 56).reshape(n_mel, n_fft)
    ours = mel_filters(n_mel)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, published)


@pytest.mark.parametrize("n_mels", [80, 128])
def test_filters_of_the_tests_models_are_these(n_mels: int) -> None:
    """Forms that carry no filters get them from here, and give the same numbers as whisper.cpp's file only so."""
    np.testing.assert_array_equal(mel_filters(n_mels), slaney_filters(n_mels))


@pytest.mark.parametrize("n_mels", [80, 128])
def test_every_triangle_has_area_one_and_one_peak(n_mels: int) -> None:
    filters = mel_filters(n_mels)
    assert filters.shape == (n_mels, 201)
    assert (filters >= 0).all()
    peaks = filters.argmax(axis=1)
    assert (np.diff(peaks) >= 0).all()
    # Slaney's scaling gives each continuous triangle the area 1; a sum over bins of 40 Hz approaches it for wide ones.
    wide = np.flatnonzero((filters > 0).sum(axis=1) >= 8)
    assert len(wide) > 5
    np.testing.assert_allclose(filters[wide].sum(axis=1) * 40.0, 1.0, rtol=0.03)


def test_the_first_triangles_are_spaced_evenly_below_1_khz() -> None:
    # 82 corners from 0 to 8 kHz on Slaney's scale, where 1 kHz is 15 mel and a factor of 6.4 is 27 mel.
    top = 15 + 27 * np.log(8.0) / np.log(6.4)
    first_centre_hz = top / 81 * 200 / 3
    bins = np.arange(201) * 40.0
    rising = mel_filters(80)[0][bins < first_centre_hz]
    assert rising[0] == 0.0
    np.testing.assert_allclose(rising, bins[: len(rising)] / first_centre_hz / first_centre_hz, rtol=1e-5)
