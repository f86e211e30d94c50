"""`whispyx openvino-encoder` and `--encoder`, as a user runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.core.tiny import pair, recipe_of
from tests.encoders.openvino_kit import RECIPE, SOUND, mel, oracle, run
from tests.models.formats import same_weights
from tests.oracle.compare import assert_close
from tests.oracle.reader import read_model
from whispyx import Model
from whispyx.cli import Status, main
from whispyx.encoders import OpenVinoEncoder
from whispyx.errors import BackendUnsupportedError

pytestmark = pytest.mark.usefixtures("openvino")


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("storage", ["f16", "bf16", "f32"])
def test_it_writes_the_files_and_prints_where(capsys: pytest.CaptureFixture[str], model: str, storage: str) -> None:
    status, out, err = told(capsys, "openvino-encoder", model, "--type", storage)
    path = Path(model).with_name("ggml-tiny.random-encoder-openvino.xml")
    assert (status, out, err) == (Status.OK, f"{path}\n", "")
    matrices = sum(
        t.size for name, t in pair(RECIPE).model.tensors.items() if name.startswith("encoder.") and t.ndim > 1
    )
    size = path.with_suffix(".bin").stat().st_size
    assert size < matrices * (4 if storage == "f32" else 2) * 1.2
    window = mel()
    assert_close(storage, run(OpenVinoEncoder(path), window), oracle().encode(window).output, 5e-4)


def test_a_folder_or_a_file_may_be_named(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    for out, made in (("dir", "dir/ggml-tiny.random-encoder-openvino.xml"), ("new/é.xml", "new/é.xml")):
        status, said, _ = told(capsys, "openvino-encoder", model, "--out", tmp_path / out)
        assert status == Status.OK and said == f"{tmp_path / made}\n"
        assert (tmp_path / made).is_file() and (tmp_path / made).with_suffix(".bin").is_file()


@pytest.mark.parametrize("form", ["gguf", "huggingface"])
def test_the_encoder_of_every_form_is_the_same(
    capsys: pytest.CaptureFixture[str], model: str, form: str, tmp_path: Path
) -> None:
    """Other forms than whisper.cpp's were refused here, and nowhere else."""
    made = same_weights.MAKERS[form](read_model(Path(model)), tmp_path / f"model.{form}", None)
    for source, out in ((model, "ggml.xml"), (made, "other.xml")):
        assert told(capsys, "openvino-encoder", source, "--out", tmp_path / out)[0] == Status.OK
    window = mel()
    found, expected = (run(OpenVinoEncoder(tmp_path / name), window) for name in ("other.xml", "ggml.xml"))
    np.testing.assert_array_equal(found, expected)
    with Model(made, encoder=tmp_path / "other.xml", compute="exact") as opened:
        assert opened.info.encoder is not None
        assert opened.transcribe(SOUND, "en").complete


def test_what_cannot_be_done_has_its_exit_code(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    (tmp_path / "rubbish.bin").write_bytes(b"rubbish")
    for arguments, status in (
        ((tmp_path / "rubbish.bin",), Status.MODEL),
        ((tmp_path / "none.bin",), Status.MODEL),
        ((model, "--out", tmp_path / "encoder.onnx"), Status.USAGE),
        ((model, "--type", "int8"), Status.USAGE),
    ):
        assert told(capsys, "openvino-encoder", *arguments)[0] == status, arguments


def test_transcribe_and_info_take_an_encoder(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "sound.wav", SOUND, 16000, subtype="FLOAT")
    arguments = ("transcribe", tmp_path / "sound.wav", "-m", model, "--temperature-inc", "0")
    status, expected, _ = told(capsys, *arguments)
    assert status == Status.OK and expected.strip()
    assert told(capsys, *arguments, "--encoder", "openvino")[:2] == (Status.OK, expected)
    status, out, _ = told(capsys, "info", model, "--encoder", "openvino", "--json")
    assert status == Status.OK and json.loads(out)["encoder"].startswith("OpenVINO")
    assert "encodes    OpenVINO" in told(capsys, "info", model, "--encoder", "openvino")[1]
    assert told(capsys, *arguments, "--encoder", "openvino:TPU")[0] == Status.BACKEND
    assert told(capsys, *arguments, "--encoder", "nothing")[0] == Status.USAGE


def test_a_quantised_model_can_be_written_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recipe = recipe_of("q5_0", seed=5)
    model = shutil.copy(pair(recipe).path, tmp_path / "small-q5_0.bin")
    status, out, _ = told(capsys, "openvino-encoder", model, "--type", "f32")
    assert status == Status.OK
    window = mel()
    found = run(OpenVinoEncoder(out.strip()), window, (recipe.n_mels, recipe.n_audio_ctx, recipe.n_state))
    assert_close("q5_0", np.asarray(found), oracle(recipe).encode(window).output, 1e-9)


def test_errors_of_platforms_are_backend_errors(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "sound.wav", SOUND, 16000)
    status, _, err = told(capsys, "transcribe", tmp_path / "sound.wav", "-m", model, "--encoder", "coreml")
    assert status == Status.BACKEND and "macOS" in err
    assert BackendUnsupportedError.__name__ not in err
