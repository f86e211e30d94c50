"""Types of weights: which tensor gets which, what is lost, and that whisper.cpp reads the outcome."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import data
from tests.oracle.quants import ENCODINGS, encode
from tests.oracle.reader import ModelFile, read_model
from tests.oracle.tiny_model import TinyModel
from whispyx import Model
from whispyx.conversion import TYPES, Report, TypeChoice, convert, quantize
from whispyx.errors import ParamsError

K_TYPES = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k")
BLOCKS_OF_32 = tuple(name for name in TYPES if name not in K_TYPES)
EMBEDDING = "decoder.token_embedding.weight"
TRANSCRIBE = """
import sys
from pywhispercpp.model import Model
model = Model(sys.argv[1], n_threads=2, print_progress=False, print_realtime=False, redirect_whispercpp_logs_to=None)
print("TEXT:", " ".join(segment.text for segment in model.transcribe(sys.argv[2], language="en")))
"""

# Root mean square of what is lost over that of the weights, for weights that spread like a bell: steps of a peak of
# about 2.1 (32 values) cut into as many levels as the bits have, with their uniform error.
WORST = {
    "f32": 0.0, "f16": 3e-4, "bf16": 2.5e-3, "q8_0": 8e-3, "q6_k": 0.03, "q5_k": 0.06, "q5_1": 0.06, "q5_0": 0.06,
    "q4_k": 0.12, "q4_1": 0.11, "q4_0": 0.12, "q3_k": 0.25, "q2_k": 0.5,
}  # fmt: skip


def tiny(weight_type: str = "f32", n_state: int = 64, **changes: Any) -> TinyModel:
    return TinyModel(
        weight_type=weight_type, n_state=n_state, n_head=n_state // 32, n_audio_layer=1, n_text_layer=1, **changes
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny().write(tmp_path_factory.mktemp("model") / "model.bin")


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with rows of 256 weights."""
    return tiny(n_state=256).write(tmp_path_factory.mktemp("model") / "wide.bin")


def is_matrix(file: ModelFile, name: str) -> bool:
    return file[name].ndim == 2 and 1 not in file[name].shape and "positional" not in name


def check_report(report: Report, before: ModelFile, after: ModelFile) -> None:
    """Every figure against what the two files hold, decoded by the oracle."""
    assert [tensor.name for tensor in report.tensors] == list(after.tensors)
    for tensor in report.tensors:
        old, new = before[tensor.name].astype(np.float64), after[tensor.name].astype(np.float64)
        assert tensor.shape == old.shape == new.shape
        assert (tensor.before, tensor.after) == (before.types[tensor.name], after.types[tensor.name])
        for kind, size in ((tensor.before, tensor.bytes_before), (tensor.after, tensor.bytes_after)):
            assert size == old.size // ENCODINGS[kind].block * ENCODINGS[kind].block_bytes
        error = np.sqrt(np.square(new - old).mean() / np.square(old).mean())
        assert tensor.error == pytest.approx(error, rel=1e-6, abs=1e-12), tensor.name
        assert tensor.largest_error == pytest.approx(np.abs(new - old).max(), rel=1e-6, abs=1e-12), tensor.name
    assert report.bytes_before == sum(tensor.bytes_before for tensor in report.tensors)
    assert report.bytes_after == sum(tensor.bytes_after for tensor in report.tensors)
    worst = max(report.tensors, key=lambda tensor: tensor.error)
    assert report.largest_error == (worst if worst.error else None)


@pytest.mark.parametrize("kind", list(TYPES))
def test_matrices_get_the_type_and_the_report_is_true(kind: str, model: Path, wide: Path, tmp_path: Path) -> None:
    source = wide if kind in K_TYPES else model
    report = quantize(source, tmp_path / "a.bin", kind)
    before, after = read_model(source), read_model(tmp_path / "a.bin")
    check_report(report, before, after)
    for tensor in report.tensors:
        if is_matrix(before, tensor.name):
            assert tensor.after == kind
            assert tensor.error <= WORST[kind], tensor.name
        elif before[tensor.name].ndim == 3:
            assert tensor.after == ("f32" if kind == "f32" else "f16")
        else:
            assert (tensor.after, tensor.error) == ("f32", 0)
    assert after.settings["ftype"] == TinyModel(weight_type=kind).file_type
    assert after.tokens == before.tokens
    assert report.readable_by_whisper_cpp
    assert report.to_dict()["tensors"][0]["name"] == report.tensors[0].name


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_halves_are_rounded_to_the_nearest(kind: str, model: Path, tmp_path: Path) -> None:
    quantize(model, tmp_path / "a.bin", kind)
    before, after = read_model(model), read_model(tmp_path / "a.bin")
    raw = encode(kind, before[EMBEDDING])
    assert encode(kind, after[EMBEDDING]) == raw


def test_a_quantised_model_can_be_quantised_again_and_stays_what_it_is(model: Path, tmp_path: Path) -> None:
    quantize(model, tmp_path / "a.bin", "q8_0")
    same = quantize(tmp_path / "a.bin", tmp_path / "b.bin", "q8_0")
    assert same.largest_error is None and (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()
    report = quantize(tmp_path / "a.bin", tmp_path / "c.bin", "q4_0")
    check_report(report, read_model(tmp_path / "a.bin"), read_model(tmp_path / "c.bin"))
    convert(tmp_path / "a.bin", tmp_path / "d.bin")
    assert (tmp_path / "d.bin").read_bytes() == (tmp_path / "a.bin").read_bytes()


def test_the_number_of_threads_and_the_form_of_the_file_change_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantize(model, tmp_path / "a.bin", "q5_0")
    monkeypatch.setattr("whispyx.conversion.job.usable_cores", lambda: 5)
    quantize(model, tmp_path / "b.bin", "q5_0")
    convert(model, tmp_path / "model.gguf")
    quantize(tmp_path / "model.gguf", tmp_path / "c.bin", "q5_0")
    quantize(model, tmp_path / "d.gguf", "q5_0")
    convert(tmp_path / "d.gguf", tmp_path / "d.bin")
    assert len({(tmp_path / f"{name}.bin").read_bytes() for name in "abcd"}) == 1


def test_sides_and_exceptions(model: Path, tmp_path: Path) -> None:
    keep = [("decoder.*.mlp.*", "q5_1"), ("*.mlp.0.weight", "f32"), (EMBEDDING, "f16")]
    report = quantize(model, tmp_path / "a.bin", "q4_1", encoder="q8_0", keep=keep)
    after = read_model(tmp_path / "a.bin").types
    assert after["encoder.blocks.0.attn.query.weight"] == "q8_0"
    assert after["encoder.blocks.0.mlp.0.weight"] == "f32"  # an exception comes before its side
    assert after["encoder.blocks.0.mlp.2.weight"] == "q8_0"
    assert after["decoder.blocks.0.attn.query.weight"] == "q4_1"
    assert after["decoder.blocks.0.mlp.0.weight"] == "q5_1"  # the first that matches counts
    assert after[EMBEDDING] == "f16"
    assert after["decoder.blocks.0.mlp.0.bias"] == after["decoder.positional_embedding"] == "f32"
    assert after["encoder.conv1.weight"] == "f16"
    assert not report.readable_by_whisper_cpp
    check_report(report, read_model(model), read_model(tmp_path / "a.bin"))
    convert(model, tmp_path / "b.bin", TypeChoice(decoder="q8_0"))
    after = read_model(tmp_path / "b.bin").types
    assert {after["encoder.blocks.0.attn.query.weight"], after["encoder.conv1.weight"]} == {"f32", "f16"}
    assert after[EMBEDDING] == "q8_0"
    with Model(tmp_path / "a.bin") as loaded:
        loaded.transcribe(np.zeros(16000, np.float32), "en")


@pytest.mark.parametrize("kind", K_TYPES)
def test_rows_that_blocks_do_not_divide_are_named(kind: str, model: Path, tmp_path: Path) -> None:
    for name in ("a.bin", "a.gguf"):
        with pytest.raises(ParamsError, match=r"packs 256 numbers together, and rows of encoder\.\S+ have 64: choose"):
            quantize(model, tmp_path / name, kind)
    with pytest.raises(ParamsError, match=EMBEDDING.replace(".", r"\.")):
        convert(model, tmp_path / "a.bin", TypeChoice("q8_0", keep=[(EMBEDDING, kind)]))
    # Where an exception takes care of the narrow rows, the others fit: 4 x 64.
    keep = [("*.mlp.2.weight", kind), ("*", "q8_0")]
    quantize(model, tmp_path / "b.bin", "f16", keep=keep)
    assert read_model(tmp_path / "b.bin").types["encoder.blocks.0.mlp.2.weight"] == kind
    assert [path.name for path in tmp_path.iterdir()] == ["b.bin"]


@pytest.mark.parametrize("wrong", ["", "Q8_0", "q9", "i8", "q8_k"])
def test_types_that_are_none_are_named(wrong: str, model: Path, tmp_path: Path) -> None:
    for keywords in ({"type": wrong}, {"encoder": wrong}, {"decoder": wrong}, {"keep": [("*", wrong)]}):
        with pytest.raises(ParamsError, match="is no type of weights"):
            TypeChoice(**keywords)  # type: ignore[arg-type]
    with pytest.raises(ParamsError, match="is no type of weights"):
        quantize(model, tmp_path / "a.bin", wrong)
    with pytest.raises(TypeError):
        quantize(model, tmp_path / "a.bin", "q8_0", side="encoder")
    assert not list(tmp_path.iterdir())


def test_k_types_do_not_fit_tiny_models(tmp_path: Path) -> None:
    """tiny has rows of 384 numbers, one and a half blocks."""
    with pytest.raises(ParamsError, match="have 384"):
        quantize(data.or_skip(data.model_file, "tiny.en"), tmp_path / "a.bin", "q4_k")


@pytest.mark.parametrize("kind", ["q8_0", "q5_1", "q4_0"])
def test_whisper_cpp_hears_the_same_in_a_quantised_real_model(
    kind: str, whispercpp_python: Path, tmp_path: Path
) -> None:
    wav = data.or_skip(data.jfk_wav)
    report = quantize(data.or_skip(data.model_file, "tiny.en"), tmp_path / "model.bin", kind)
    assert report.readable_by_whisper_cpp
    result = subprocess.run(
        [str(whispercpp_python), "-c", TRANSCRIBE, str(tmp_path / "model.bin"), str(wav)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    theirs = result.stdout.rpartition("TEXT:")[2]
    with Model(tmp_path / "model.bin", compute="exact") as model:
        ours = " ".join(segment.text.strip() for segment in model.transcribe(wav, "en"))
    assert "your country" in ours
    assert re.sub(r"\s+", " ", ours).strip() == re.sub(r"\s+", " ", theirs).strip()


def test_what_is_lost_in_a_real_model(tmp_path: Path) -> None:
    source = data.or_skip(data.model_file, "tiny.en")
    report = quantize(source, tmp_path / "model.bin", "q5_0")
    check_report(report, read_model(source), read_model(tmp_path / "model.bin"))
