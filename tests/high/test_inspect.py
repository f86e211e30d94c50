"""What a model is, told without loading it: the same for every form of one model, and true."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.core.tiny import pair
from tests.models.formats import folder_maker, torch_maker
from tests.models.formats.same_weights import FOLDERS, HEADS, MAKERS, weights_of
from tests.oracle.reader import read_model
from tests.oracle.tiny_model import TinyModel
from whispyx import Model, ModelError, ModelFormatError, ModelNotFoundError, inspect_model, plugins
from whispyx._core import kernels
from whispyx.cli import main
from whispyx.conversion import TypeChoice, convert

if TYPE_CHECKING:
    from whispyx._core.kernels import Compute

Capture = pytest.CaptureFixture[str]
SIZES = (
    "n_vocab",
    "n_audio_state",
    "n_audio_layer",
    "n_text_layer",
    "n_mels",
    "type",
    "languages",
    "special",
    "memory",
)


@pytest.fixture(scope="module")
def shape() -> TinyModel:
    return TinyModel(n_vocab=51865)


@pytest.fixture(scope="module")
def ggml(shape: TinyModel) -> Path:
    return pair(shape).path


@pytest.fixture(scope="module")
def gguf(ggml: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("forms") / "model.gguf"
    convert(str(ggml), path)
    return path


@pytest.fixture(scope="module")
def openai() -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        for name, size in (("WIDTH", 64), ("N_AUDIO_CTX", 100), ("N_TEXT_CTX", 448)):
            patch.setattr(torch_maker, name, size)
        return torch_maker.Checkpoint().encoded()


def test_a_file_of_whisper_cpp_is_described(ggml: Path, shape: TinyModel) -> None:
    found = inspect_model(ggml)
    assert (found.format, found.name, found.path) == ("ggml", str(ggml), str(ggml))
    assert (found.n_vocab, found.n_audio_state, found.n_mels) == (51865, shape.n_state, 80)
    assert found.multilingual and len(found.languages) == 99 and found.special["sot"] == 50258
    # in a layer of the encoder 15 tensors, of the decoder 24; 6 of them and 10 are matrices
    matrices = 2 * 6 + 3 * 10 + 1 + 2
    counts = {one.type: one.n_tensors for one in found.types}
    assert counts == {"f16": matrices, "f32": 11 + 2 * 15 + 3 * 24 - matrices}
    assert sum(one.n_bytes for one in found.types) == found.weight_bytes < ggml.stat().st_size
    assert [(one.path, one.n_bytes, one.sha256) for one in found.files] == [(str(ggml), ggml.stat().st_size, None)]
    assert found.alignment_heads is None and found.metadata == {}


@pytest.mark.parametrize("compute", ["f32", "bf16", "mixed", "int8"])
def test_what_packed_weights_take_is_near_what_a_loaded_model_says(ggml: Path, compute: Compute) -> None:
    if kernels.name() is None:
        plugins.load()
    if kernels.name() is None:
        pytest.skip("there are no kernels for this machine")
    need = inspect_model(ggml).memory[compute]
    with Model(ggml, "cpu", compute=compute) as model:
        # panels and blocks are filled up: a few hundred KB, whatever the model
        assert abs(model.info.weight_bytes - need.weights) < 0.01 * need.weights + (3 << 20)


def test_every_form_of_a_model_has_the_same_sizes(ggml: Path, gguf: Path) -> None:
    known, other = inspect_model(ggml), inspect_model(gguf)
    assert other.format == "gguf" and {one.type for one in other.types} == {"f16", "f32"}
    for name in SIZES:
        assert getattr(other, name) == getattr(known, name), name
    for source in (gguf.read_bytes(), io.BytesIO(gguf.read_bytes()), bytearray(ggml.read_bytes())):
        found = inspect_model(source)
        assert found.path is None and found.n_parameters == known.n_parameters
        assert found.name == f"<{type(source).__name__}>" and found.files[0].path is None


@pytest.mark.parametrize("weight_type", ["f32", "q8_0", "q5_1"])
def test_types_are_those_of_the_file(ggml: Path, weight_type: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    report = convert(str(ggml), path, TypeChoice(weight_type))
    found = inspect_model(path)
    assert {one.type for one in found.types} == {tensor.after for tensor in report.tensors}
    assert found.weight_bytes == report.bytes_after
    assert found.n_parameters == sum(int(np.prod(tensor.shape)) for tensor in report.tensors)


def test_a_checkpoint_of_openai_is_described(openai: bytes) -> None:
    found = inspect_model(openai)
    assert found.format == "openai" and not found.multilingual and found.languages == ("en",)
    assert found.n_vocab == 51864 and found.types[0].type == "f16"


@pytest.mark.parametrize("form", ["ggml", "gguf"])
def test_what_exact_weights_take_is_what_a_loaded_model_says(form: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(form)
    need = inspect_model(path).memory["exact"]
    with Model(path, "cpu", compute="exact") as model:
        n_tensors = inspect_model(path).n_tensors
        # each tensor is placed at a multiple of 32 bytes
        assert need.weights <= model.info.weight_bytes <= need.weights + 32 * n_tensors
    assert need.total == need.weights + need.caches + need.working


@pytest.mark.parametrize("form", ["ggml", "gguf", "openai"])
def test_hashes_are_those_of_the_files(form: str, request: pytest.FixtureRequest) -> None:
    source = request.getfixturevalue(form)
    content = source if isinstance(source, bytes) else source.read_bytes()
    told: list[tuple[int, int | None]] = []
    found = inspect_model(source, hash=True, progress=lambda done, total, work: told.append((done, total)))
    assert [one.sha256 for one in found.files] == [hashlib.sha256(content).hexdigest()]
    assert isinstance(source, bytes) or told[-1] == (len(content), len(content))


def test_a_folder_is_told_with_the_files_beside_its_weights(tmp_path: Path) -> None:
    folder = folder_maker.write(tmp_path / "model", folder_maker.files())
    found = inspect_model(folder, hash=True)
    assert found.format == "huggingface" and found.path == str(folder)
    assert Path(found.files[0].path or "").name == "model.safetensors"
    assert {Path(one.path or "").name for one in found.files} == {path.name for path in folder.iterdir()}
    for one in found.files:
        content = Path(one.path or "").read_bytes()
        assert (one.n_bytes, one.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert inspect_model(folder / "model.safetensors").types == found.types


CARD = "---\nlicense: apache-2.0\nlanguage: [fi, sv]\nbase_model: openai/whisper-tiny\n---\n"


@pytest.fixture(scope="module")
def every(shape: TinyModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model in every form, folders with a card; GGUF is made from the folder, so that it has one too."""
    folder = tmp_path_factory.mktemp("every")
    file = read_model(shape.write(folder / "model.bin"))
    made = {"ggml": folder / "model.bin", "gguf": folder / "model.gguf"}
    for form in ("huggingface", "openai", "ctranslate2"):
        made[form] = MAKERS[form](file, folder / form, None)
    for form in FOLDERS:
        (made[form] / "README.md").write_text(CARD)
    convert(made["huggingface"], made["gguf"])
    return made


def bytes_read() -> int:
    """What this process has read from files so far."""
    return int(re.findall(r"rchar: (\d+)", Path("/proc/self/io").read_text())[0])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this system does not count what a process reads")
@pytest.mark.parametrize("form", ["ggml", "gguf", "huggingface", "openai", "ctranslate2"])
def test_everything_is_told_of_every_form_without_reading_weights(form: str, every: dict[str, Path]) -> None:
    known = inspect_model(every["ggml"])
    inspect_model(every[form])  # what is imported is read now
    before = bytes_read()
    found = inspect_model(every[form])
    n_read = bytes_read() - before
    weights = weights_of(every[form], form).stat().st_size
    print(f"{form}: {n_read} bytes read, the weights have {found.weight_bytes} of {weights}")
    beside = sum(one.n_bytes for one in found.files[1:])
    # The tokens of published models are read from a file of the package where a model brings none.
    assert n_read < weights - found.weight_bytes + beside + found.weight_bytes // 10
    assert found.format == form
    for name in SIZES:
        assert getattr(found, name) == getattr(known, name), name
    assert found.n_parameters == known.n_parameters
    # Convolutions' biases have another shape elsewhere, and tables of positions are stored as they are in all of them.
    assert {one.type for one in found.types} == {"f16", "f32"}
    assert found.memory["exact"].total == found.memory["exact"].weights + found.memory["exact"].state
    if form in ("gguf", *FOLDERS):
        assert found.metadata["license"] == "apache-2.0" and found.metadata["language"] == "fi, sv"
        assert found.metadata["base_model"] == "openai/whisper-tiny"
        assert found.alignment_heads == HEADS
    else:
        assert found.metadata == {} and found.alignment_heads is None
    hashed = inspect_model(every[form], hash=True)
    for one in hashed.files:
        assert one.sha256 == hashlib.sha256(Path(one.path or "").read_bytes()).hexdigest()


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "page.bin"
    path.write_text("<!doctype html><p>no model")
    with pytest.raises(ModelFormatError, match="web page"):
        inspect_model(path)
    with pytest.raises(ModelNotFoundError):
        inspect_model(tmp_path / "nothing.bin")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ModelError, match="only once"):  # and nothing waits for a writer
        inspect_model(pipe, hash=True)


def test_the_command_tells_it_to_people_and_to_programs(gguf: Path, capsys: Capture) -> None:
    assert main(["info", str(gguf), "--hash"]) == 0
    shown = capsys.readouterr().out
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    for expected in (r"format +gguf", rf"sha256 +{digest}", r"f16: \d+ tensors", r"exact: about", r"auto \(mixed\)"):
        assert re.search(expected, shown), expected
    assert main(["info", str(gguf), "--json", "--hash"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["files"] == [{"path": str(gguf), "n_bytes": gguf.stat().st_size, "sha256": digest}]
    assert found == json.loads(json.dumps(inspect_model(gguf, hash=True).to_dict()))
    assert found["memory"]["exact"]["total"] > found["weight_bytes"] and len(found["languages"]) == 99


def test_a_file_cannot_write_on_the_terminal(gguf: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    from whispyx.models.formats import opening

    read = opening.describe

    def with_escapes(source: Any) -> Any:
        manifest = read(source)
        manifest.metadata["license"] = "\x1b[2Jfree\nname       another"
        return manifest

    monkeypatch.setattr(opening, "describe", with_escapes)
    assert main(["info", str(gguf)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "license:  [2Jfree name       another" in out
