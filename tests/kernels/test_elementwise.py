"""Norms, activation and conversions of the kernels, against float64.

The libraries keep these functions to themselves, so elementwise.c is compiled once more for every instruction set.
"""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.sets import BF16, F16, F32, LIBRARIES, ROOT, from_bf16, to_bf16

cffi = pytest.importorskip("cffi")

SIZES = [1, 2, 7, 8, 15, 16, 17, 31, 64, 80, 383, 512, 1280]
FLAGS = {
    "avx2": "-DWX_ISA_AVX2 -mavx2 -mfma -mf16c",
    "avx512": "-DWX_ISA_AVX512 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mavx512vnni",
}
FLAGS["avx512-bf16"] = FLAGS["avx512"].replace("AVX512 ", "AVX512_BF16 ") + " -mavx512bf16"
EMULATION = ["-DWX_EMULATED", "-Wno-psabi", f"-I{ROOT / 'backends/kernels/emulation'}"]
# f32 rounding of values of a few units.
NORM_ERROR = 3e-6
# The kernel's promise, times max(1, |x|); the result is then rounded to f32 once more.
GELU_ERROR = 2.5e-7

ffi = cffi.FFI()
ffi.cdef(
    """
    typedef struct wx_norm { const float * w, * b; } wx_norm;
    void wx_norm_row(const wx_norm * norm, const float * x, int32_t n, float * y);
    void wx_gelu(float * x, int64_t n);
    void wx_to_f32(const void * src, int32_t type, int64_t n, float * dst);
    void wx_to_bf16(const float * x, int64_t n, uint16_t * y);
    """
)


@pytest.fixture(scope="module", params=LIBRARIES or [None], ids=str)
def functions(request, tmp_path_factory, lacking):
    """Return elementwise.c's functions, compiled for one instruction set of this machine."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if request.param is None or compiler is None:
        lacking("no kernel library was built" if request.param is None else "there is no C compiler")
    source = ROOT / "backends/kernels/src/elementwise.c"
    target = Path(tmp_path_factory.mktemp("kernels")) / f"{request.param}.so"
    options = ["-O2", "-std=gnu11", "-fPIC", "-shared", "-ffp-contract=off"]
    flags = FLAGS[request.param.name].split()
    if request.param.emulated:
        flags = [flag for flag in flags if not flag.startswith("-mavx512")] + EMULATION
    options += flags
    subprocess.run([compiler, *options, "-o", str(target), str(source), "-lm"], check=True)
    return ffi.dlopen(str(target))


def at(array: np.ndarray, kind: str = "float *"):
    return ffi.cast(kind, array.ctypes.data)


def guarded(n: int, dtype=np.float32) -> np.ndarray:
    """Return n numbers to write and 32 more that must stay zero."""
    return np.zeros(n + 32, dtype=dtype)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("mean", [0.0, 30.0])
def test_norm_is_that_of_the_definition(functions, n, mean) -> None:
    random = np.random.default_rng(n)
    x, w, b = (random.standard_normal(n).astype(np.float32) for _ in range(3))
    x += np.float32(mean)
    y = guarded(n)
    functions.wx_norm_row(ffi.new("wx_norm *", {"w": at(w), "b": at(b)}), at(x), n, at(y))
    x64 = x.astype(np.float64)
    true = (x64 - x64.mean()) / np.sqrt(x64.var() + 1e-5) * w + b
    # What a large mean leaves of a number's digits is that of f32, too; a variance near zero makes it larger.
    rounding = mean * np.finfo(np.float32).eps / np.sqrt(x64.var() + 1e-5) * np.abs(w)
    assert (np.abs(y[:n] - true) < NORM_ERROR + 2 * rounding).all()
    assert not y[n:].any()


@pytest.mark.parametrize("n", SIZES)
def test_gelu_is_the_erf_form(functions, n) -> None:
    x = np.concatenate([np.linspace(-9, 9, n), [0.0]]).astype(np.float32)[:n]
    y = guarded(n)
    y[:n] = x
    functions.wx_gelu(at(y), n)
    true = np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x.astype(np.float64)])
    assert (np.abs(y[:n] - true) < GELU_ERROR * np.maximum(1, np.abs(x))).all()
    assert not y[n:].any()


def test_gelu_of_what_is_no_finite_number(functions) -> None:
    y = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30], dtype=np.float32)
    functions.wx_gelu(at(y), 5)
    assert np.isnan(y[0])
    assert y[1] == np.inf
    assert y[3] == np.float32(1e30)
    assert (np.abs(y[[2, 4]]) < 1e-6).all()


@pytest.mark.parametrize("n", SIZES)
def test_conversions_are_exact(functions, n) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    bits = guarded(n, np.uint16)
    functions.wx_to_bf16(at(x), n, at(bits, "uint16_t *"))
    np.testing.assert_array_equal(bits[:n], to_bf16(x))
    assert not bits[n:].any()
    for source, kind, true in [
        (x, F32, x),
        (x.astype(np.float16), F16, x.astype(np.float16).astype(np.float32)),
        (to_bf16(x), BF16, from_bf16(to_bf16(x))),
    ]:
        y = guarded(n)
        functions.wx_to_f32(at(source, "void *"), kind, n, at(y))
        np.testing.assert_array_equal(y[:n], true)
        assert not y[n:].any()


def test_bf16_rounds_to_even_and_keeps_what_is_no_number(functions) -> None:
    odd = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F800000, 0xFF800000, 0x7F7FFFFF], dtype=np.uint32)
    x = np.concatenate([odd.view(np.float32), np.array([0x7F800001, 0xFFC12345], dtype=np.uint32).view(np.float32)])
    bits = guarded(len(x), np.uint16)
    functions.wx_to_bf16(at(x), len(x), at(bits, "uint16_t *"))
    assert bits[:6].tolist() == [0x3F80, 0x3F82, 0x3F81, 0x7F80, 0xFF80, 0x7F80]
    assert np.isnan(from_bf16(bits[6:8])).all()
