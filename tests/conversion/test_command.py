"""`whispyx convert` and `whispyx quantize`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.models.formats.same_weights import huggingface
from tests.oracle.reader import read_model
from tests.oracle.tiny_model import TinyModel
from whispyx.cli import main
from whispyx.conversion import quantize

EMBEDDING = "decoder.token_embedding.weight"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(n_audio_layer=1, n_text_layer=3).write(tmp_path_factory.mktemp("model") / "model.bin")


def test_a_folder_becomes_a_file_and_says_so(model: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = huggingface(read_model(model), tmp_path / "folder")
    assert main(["convert", str(folder), str(tmp_path / "a.gguf")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == str(tmp_path / "a.gguf") and out[1].endswith("(f16, f32), gguf") and len(out) == 2
    assert main(["convert", str(tmp_path / "a.gguf"), str(tmp_path / "b.gguf"), "--to", "ggml"]) == 0
    assert read_model(tmp_path / "b.gguf").types == read_model(model).types


def test_quantize_takes_every_argument_and_lists_the_worst(model: Path, tmp_path: Path, capsys: Capture) -> None:
    source, keep = str(model), ["--keep", f"{EMBEDDING}=f16", "--keep", "*.mlp.*=q4_0"]
    sides = ["--encoder-type", "q8_0", "--decoder-type", "q5_0"]
    assert main(["quantize", source, str(tmp_path / "a.bin"), "--type", "q4_1", *keep, *sides]) == 0
    out = capsys.readouterr().out
    assert "whisper.cpp does not read such a file" in out
    worst = out.split("largest errors", 1)[1].splitlines()[1:]
    assert len(worst) == 5 and all(".mlp." in line and "q4_0" in line for line in worst)
    quantize(model, tmp_path / "b.bin", "q4_1", encoder="q8_0", decoder="q5_0",
             keep=[(EMBEDDING, "f16"), ("*.mlp.*", "q4_0")])  # fmt: skip
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()


def test_the_report_comes_as_json(model: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["quantize", str(model), str(tmp_path / "a.bin"), "--type", "q8_0", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    again = quantize(model, tmp_path / "a.bin", "q8_0").to_dict()
    assert report == json.loads(json.dumps(again))
    assert report["format"] == "ggml" and report["readable_by_whisper_cpp"] is True
    assert report["bytes_after"] < report["bytes_before"]


def test_wrong_arguments_are_named_and_leave_nothing(model: Path, tmp_path: Path, capsys: Capture) -> None:
    target = str(tmp_path / "a.bin")
    for arguments, status, told in (
        (["quantize", str(model), target, "--type", "q4_k"], 2, "packs 256 numbers"),
        (["quantize", str(model), target, "--type", "q9"], 2, "no type of weights"),
        (["convert", str(model), target, "--keep", "q8_0"], 2, "--keep takes PATTERN=TYPE"),
        (["convert", str(model), target, "--keep", "=q8_0"], 2, "--keep takes PATTERN=TYPE"),
        (["convert", str(tmp_path / "no.bin"), target], 3, "no model file"),
        (["convert", str(tmp_path), target], 3, "folder"),
        (["convert", str(model), str(tmp_path)], 2, "is a folder"),
    ):
        assert main(arguments) == status, arguments
        assert told in capsys.readouterr().err
        assert not list(tmp_path.iterdir())
    assert main(["quantize", str(model), target]) == 2
    assert "--type" in capsys.readouterr().err
