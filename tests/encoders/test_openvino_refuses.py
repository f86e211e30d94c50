"""OpenVINO's encoder: models that do not fit, files that are damaged, devices that are not there, caches."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whispyx
from tests.core.tiny import pair, recipe_of
from tests.encoders.openvino_kit import EXACT, RECIPE, SIZES, SOUND, mel, oracle, run
from tests.oracle.compare import assert_close
from whispyx.encoders import OpenVinoEncoder, openvino_ir
from whispyx.encoders import openvino as ours
from whispyx.errors import (
    BackendError,
    BackendLoadError,
    BackendNotFoundError,
    ComputeError,
    ModelError,
    ModelFormatError,
    ModelNotFoundError,
    ParamsError,
)

pytestmark = pytest.mark.usefixtures("openvino")


def child(code: str, *arguments: object, seconds: float = 300) -> str:
    """What a process prints; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


# ---- what does not fit


@pytest.mark.parametrize(
    "change", [{"n_mels": 128}, {"n_audio_ctx": 101}, {"n_state": 96, "n_head": 3}], ids=["bands", "positions", "width"]
)
def test_a_model_of_another_shape_is_refused_with_both_named(model: str, change: dict[str, int]) -> None:
    xml = openvino_ir.write(model)
    recipe = recipe_of("f32", seed=5, **change)
    with pytest.raises(ParamsError) as caught:
        whispyx.Model(pair(recipe).path, encoder=xml)
    told = str(caught.value)
    for word in (str(xml), "[1,80,200]", "[1,100,64]", f"{recipe.n_mels} mel bands", f"{recipe.n_audio_ctx} positions"):
        assert word in told, told
    assert f"width of {recipe.n_state}" in told


def test_the_file_of_another_model_beside_a_model_is_refused(model: str) -> None:
    openvino_ir.write(model)
    other = recipe_of("f32", seed=6)
    shutil.copy(pair(other).path, model)
    with pytest.raises(ParamsError, match="made from another model"):
        whispyx.Model(model, encoder="openvino")
    openvino_ir.write(model)
    whispyx.Model(model, encoder="openvino").close()


def test_the_encoder_of_another_model_is_refused_on_every_way_in(model: str, tmp_path: Path) -> None:
    """Another model of the same shape: only the note in the file tells them apart."""
    xml, other = openvino_ir.write(model, tmp_path / "of one.xml"), str(pair(recipe_of("f32", seed=6)).path)
    content = Path(other).read_bytes()
    for source, name in ((other, other), (content, "this model|memory|bytes|buffer")):
        for encoder in (xml, str(xml), OpenVinoEncoder(xml)):
            with pytest.raises(ParamsError, match="made from another model") as caught:
                whispyx.Model(source, encoder=encoder)
            assert str(xml) in str(caught.value)
            assert re.search(name if source is content else re.escape(name), str(caught.value)), str(caught.value)
    with pytest.raises(ParamsError, match="made from another model"):
        whispyx.Model(other, encoder=OpenVinoEncoder.of_model(model))
    # Open models are asked, too, with their own encoder or without.
    for own in (None, OpenVinoEncoder.of_model(other)):
        with whispyx.Model(other, encoder=own) as opened:
            state = opened._context.new_state()
            with pytest.raises(ParamsError, match="made from another model"):
                state.set_encoder(OpenVinoEncoder(xml))
            assert state.external_encoder is own
            state.set_encoder(OpenVinoEncoder.of_model(content))
            state.close()


def test_the_encoder_of_the_same_model_with_other_weight_types_is_taken(tmp_path: Path) -> None:
    for one, two in (("f32", "f16"), ("f16", "q8_0"), ("q8_0", "f32")):
        xml = openvino_ir.write(pair(recipe_of(one, seed=5)).path, tmp_path / f"{one}.xml")
        whispyx.Model(pair(recipe_of(two, seed=5)).path, encoder=xml).close()


def test_a_file_without_a_note_is_taken_as_it_is(openvino: Any, model: str, tmp_path: Path) -> None:
    graph = openvino.Core().read_model(openvino_ir.write(model, tmp_path / "noted.xml"))
    bare = openvino.Model(graph.outputs, graph.get_parameters(), "by another program")
    openvino.save_model(bare, tmp_path / "bare.xml")
    assert OpenVinoEncoder(tmp_path / "bare.xml").whispyx_made_from is None
    whispyx.Model(pair(recipe_of("f32", seed=6)).path, encoder=tmp_path / "bare.xml").close()


def fixed(openvino: Any, model: str, path: Path) -> Path:
    """An encoder as other programs write it: with the positions of whole windows as constants."""
    passes = importlib.import_module("openvino.passes")
    graph = openvino.Core().read_model(openvino_ir.write(model, storage="f32"))
    manager = passes.Manager()
    manager.register_pass(passes.ConstantFolding())
    manager.run_passes(graph)
    openvino.save_model(graph, path, compress_to_fp16=False)
    return path


def test_an_encoder_for_whole_windows_only_says_so(openvino: Any, model: str, tmp_path: Path) -> None:
    encoder = OpenVinoEncoder(fixed(openvino, model, tmp_path / "fixed.xml"), precision="f32")
    window = mel()
    assert_close("whole", run(encoder, window), oracle().encode(window).output, EXACT)
    with pytest.raises(ParamsError, match="no shorter windows"):
        run(encoder, mel(n_ctx=60))
    with whispyx.Model(model, encoder=encoder) as opened:
        with pytest.raises(ParamsError, match="audio_ctx"):
            opened.transcribe(SOUND, "en", audio_ctx=60)
        assert opened.transcribe(SOUND, "en", temperature_inc=0.0)


def test_an_encoder_for_batches_of_any_size_fits(openvino: Any, model: str, tmp_path: Path) -> None:
    graph = openvino.Core().read_model(openvino_ir.write(model, storage="f32"))
    graph.reshape(openvino.PartialShape([-1, 80, 200]))
    openvino.save_model(graph, tmp_path / "batch.xml", compress_to_fp16=False)
    window = mel()
    found = run(OpenVinoEncoder(tmp_path / "batch.xml", precision="f32"), window)
    assert_close("batch", found, oracle().encode(window).output, EXACT)


# ---- files


def test_files_that_are_not_there_are_named(model: str, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"nothing\.xml"):
        OpenVinoEncoder(tmp_path / "nothing.xml")
    xml = openvino_ir.write(model)
    xml.with_suffix(".bin").unlink()
    with pytest.raises(ModelNotFoundError, match=r"-openvino\.bin"):
        OpenVinoEncoder(xml)
    with pytest.raises(ModelNotFoundError):
        whispyx.Model(model, encoder="openvino")


DAMAGE = """
import sys, random
from pathlib import Path
from whispyx.encoders import OpenVinoEncoder
from whispyx.errors import WhispyxError
import numpy as np

xml = Path(sys.argv[1])
text, weights = xml.read_bytes(), xml.with_suffix(".bin").read_bytes()
rng = random.Random(3)
cases = [(b"", weights), (b"<net>", weights), (b"\\0" * 100, weights), (text[: len(text) // 2], weights),
         (text, b""), (text, weights[:-1]), (text, weights[: len(weights) // 2]), (weights, text)]
whole = len(cases)
for _ in range(40):
    broken = bytearray(text)
    digits = [i for i, c in enumerate(broken) if 48 <= c <= 57]
    for _ in range(rng.randint(1, 6)):
        broken[rng.choice(digits)] = rng.choice(b"0123456789")
    for _ in range(rng.randint(0, 2)):
        broken[rng.randrange(len(broken))] = rng.randrange(256)
    cases.append((bytes(broken), weights[: rng.choice([len(weights), len(weights), rng.randrange(len(weights))])]))
refused = 0
for number, (one, two) in enumerate(cases):
    path = xml.with_name(f"damaged-{number}.xml")
    path.write_bytes(one)
    path.with_suffix(".bin").write_bytes(two)
    try:
        session = OpenVinoEncoder(path).whispyx_session(80, 100, 64)
        session.run(np.zeros((80, 200), np.float32), 1, lambda: False)
    except WhispyxError as error:
        assert len(str(error)) < 1000, error
        refused += 1
    else:
        assert number >= whole, number
print(refused, len(cases))
"""


def test_damaged_files_are_refused_and_end_no_process(model: str) -> None:
    refused, of = map(int, child(DAMAGE, openvino_ir.write(model)).split())
    assert refused >= of // 2


PAGE = """
import sys
from whispyx.encoders import OpenVinoEncoder
from whispyx.errors import ModelFormatError
try:
    OpenVinoEncoder(sys.argv[1])
except ModelFormatError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "head", ["<!DOCTYPE html><html></html>", "<html>", "<?xml version='1.0'?>\n<html/>", "PK\3\4", "<!-- <net> -->", ""]
)
def test_what_is_no_network_does_not_reach_openvino_which_would_print(head: str, tmp_path: Path) -> None:
    (tmp_path / "page.xml").write_text(head)
    (tmp_path / "page.bin").write_bytes(b"")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", PAGE, tmp_path / "page.xml"], capture_output=True, text=True, timeout=120, env=env
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "page.xml is no sound OpenVINO model" in done.stdout


@pytest.mark.parametrize("head", ["", "\ufeff", "\n <!-- one -->\n<!-- two -->", "<?xml version='1.0' ?>\n<!-- x -->"])
def test_other_beginnings_of_a_network_are_let_through(head: str) -> None:
    assert ours.START.match(f"{head}<net name='x'>".encode())


def test_another_network_is_no_encoder(openvino: Any, tmp_path: Path) -> None:
    ops = openvino.opset13
    one, two = (ops.parameter([1, 80, 200], np.float32) for _ in range(2))
    whole = ops.parameter([1, 80, 200], np.int32)
    networks = {
        "two inputs": openvino.Model([ops.add(one, two)], [one, two], "sum"),
        "integers": openvino.Model([ops.abs(whole)], [whole], "abs"),
    }
    for what, network in networks.items():
        openvino.save_model(network, tmp_path / "other.xml")
        with pytest.raises(ModelFormatError, match="no encoder"):
            print(what, OpenVinoEncoder(tmp_path / "other.xml"))
    flat = ops.parameter([1, 80, 200], np.float32)
    openvino.save_model(openvino.Model([ops.abs(flat)], [flat], "abs"), tmp_path / "other.xml")
    with pytest.raises(ParamsError, match="belong together"):
        run(OpenVinoEncoder(tmp_path / "other.xml"), mel())


def test_values_that_are_not_finite_are_an_error_of_the_job(openvino: Any, model: str, tmp_path: Path) -> None:
    ops = openvino.opset13
    sound = ops.parameter([1, 80, 200], np.float32)
    narrow = ops.reduce_mean(sound, ops.constant(np.array([1, 2])), True)
    nothing = ops.log(ops.multiply(narrow, ops.constant(np.zeros((1, 100, 64), np.float32))))
    openvino.save_model(openvino.Model([nothing], [sound], "log of 0"), tmp_path / "infinite.xml")
    with whispyx.Model(model, encoder=tmp_path / "infinite.xml") as opened:
        for _ in range(2):
            with pytest.raises(ComputeError, match="not finite"):
                opened.transcribe(SOUND, "en")


def test_files_appear_whole_or_not_at_all(model: str, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "in the way.bin").mkdir()
    with pytest.raises(ModelError, match="in the way"):
        openvino_ir.write(model, target / "in the way.xml")
    assert [path.name for path in target.iterdir()] == ["in the way.bin"]
    with pytest.raises(ModelNotFoundError):
        openvino_ir.write(tmp_path / "no model.bin", target)
    broken = tmp_path / "broken.bin"
    broken.write_bytes(Path(model).read_bytes()[:-100])
    with pytest.raises(ModelFormatError):
        openvino_ir.write(broken, target)
    assert len(list(target.iterdir())) == 1


def test_weights_that_are_no_numbers_or_too_large_are_refused() -> None:
    weights = pair(RECIPE).model.tensors["encoder.blocks.0.mlp.0.weight"]
    content = pair(RECIPE).path.read_bytes()
    at = content.index(weights.tobytes())
    for value, storage, told in ((np.nan, "f32", "not finite"), (1e30, "f16", "too large")):
        broken = bytearray(content)
        broken[at : at + 4] = np.float32(value).tobytes()
        with pytest.raises(ModelFormatError, match=told):
            OpenVinoEncoder.of_model(bytes(broken), storage=storage)


# ---- devices, caches, arguments


@pytest.mark.parametrize("device", ["CUDA", "GPU.7", "cpux", "NPU"])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(openvino: Any, model: str, device: str) -> None:
    if device.partition(".")[0] in {name.partition(".")[0] for name in openvino.Core().available_devices}:
        pytest.skip(f"this machine has a {device}")
    with pytest.raises(BackendNotFoundError, match=rf"{device}.*it has CPU"):
        whispyx.Model(model, encoder=f"openvino:{device}")


@pytest.mark.parametrize("device", ["cpu", "AUTO", "HETERO:CPU"])
def test_other_names_of_the_cpu_compute_the_same(device: str) -> None:
    window = mel()
    found = run(OpenVinoEncoder.of_model(pair(RECIPE).path, device, storage="f32"), window)
    assert_close(device, found, oracle().encode(window).output, EXACT)


def test_the_cache_folder_is_made_used_and_never_mixes_two_models_up(tmp_path: Path) -> None:
    cache, window = tmp_path / "new" / "cache", mel()
    kept: list[Path] = []
    for _ in range(2):
        for recipe in (RECIPE, recipe_of("f32", seed=6)):
            encoder = OpenVinoEncoder.of_model(pair(recipe).path, cache_dir=cache, storage="f32")
            assert_close("cached", run(encoder, window), oracle(recipe).encode(window).output, EXACT)
        kept = sorted(cache.iterdir())
        assert len(kept) == 2
    for blob in kept:
        blob.write_bytes(b"rubbish")
    encoder = OpenVinoEncoder.of_model(pair(RECIPE).path, cache_dir=cache, storage="f32")
    assert_close("behind a damaged cache", run(encoder, window), oracle().encode(window).output, EXACT)


def test_a_cache_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    encoder = OpenVinoEncoder.of_model(pair(RECIPE).path, cache_dir=tmp_path / "file" / "cache")
    with pytest.raises(BackendError, match="cache folder"):
        encoder.whispyx_session(*SIZES)


def test_an_empty_cache_folder_is_none_and_not_the_working_directory(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    xml = openvino_ir.write(model)
    later = OpenVinoEncoder(xml)
    later.cache_dir = ""
    for encoder in (OpenVinoEncoder(xml, cache_dir=""), OpenVinoEncoder.of_model(model, cache_dir=""), later):
        run(encoder, mel())
        assert not encoder.cache_dir
    assert not list(here.iterdir())


@pytest.mark.parametrize("path", [5, None, b"x", "", "a\0.xml", 2.5])
def test_what_is_no_path_of_an_encoder_is_refused(path: Any, model: str) -> None:
    with pytest.raises(ParamsError) as caught:
        OpenVinoEncoder(path)
    assert "\0" not in str(caught.value)
    if path is not None:
        with pytest.raises(ParamsError) as caught:
            whispyx.Model(model, encoder=path)
        assert "\0" not in str(caught.value)


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"encoder.xml"


def test_a_path_of_bytes_is_refused(model: str, tmp_path: Path) -> None:
    with pytest.raises(ParamsError):
        whispyx.Model(model, encoder=BytesPath())  # type: ignore[arg-type]
    with pytest.raises(ParamsError):
        openvino_ir.write(model, BytesPath())  # type: ignore[arg-type]
    for out in (5, "a\0.xml"):
        with pytest.raises(ParamsError):
            openvino_ir.write(model, out)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["OpenVINO", " openvino ", "OPENVINO:cpu", "openvino : CPU"])
def test_case_and_blanks_of_a_name_do_not_matter(name: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with whispyx.Model(model, encoder=name) as opened:
        assert "OpenVINO" in (opened.info.encoder or "")
    monkeypatch.setenv("WHISPYX_ENCODER", name)
    with whispyx.Model(model) as opened:
        assert "OpenVINO" in (opened.info.encoder or "")
    with whispyx.Model(model, encoder=" Model ") as opened:
        assert opened.info.encoder is None
    for blank in (" ", "\t", " MODEL "):
        monkeypatch.setenv("WHISPYX_ENCODER", blank)
        with whispyx.Model(model) as opened:
            assert opened.info.encoder is None


def test_wrong_arguments_are_refused(model: str, tmp_path: Path) -> None:
    for fields in (
        *({"precision": "int4"}, {"n_threads": 0}, {"device": ""}, {"device": None}),
        *({"n_threads": "2"}, {"n_threads": 1.5}, {"cache_dir": 5}, {"cache_dir": b"x"}, {"cache_dir": "\0"}),
    ):
        with pytest.raises(ParamsError):
            OpenVinoEncoder.of_model(model, **fields)  # type: ignore[arg-type]
    with pytest.raises(ParamsError, match=r"\.xml"):
        openvino_ir.write(model, tmp_path / "encoder.onnx")
    with pytest.raises(ParamsError, match="int8"):
        openvino_ir.write(model, storage="int8")
    for encoder in ("openvin", "encoder.onnx", "CPU", ""):
        with pytest.raises(ParamsError, match="no encoder"):
            whispyx.Model(model, encoder=encoder)


def test_without_the_package_the_error_says_how_to_get_it(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendNotFoundError, match=r"pip install 'whispyx\[openvino\]'"):
        whispyx.Model(model, encoder="openvino")


BROKEN = """
import sys
import whispyx
from whispyx.errors import BackendLoadError
try:
    whispyx.Model(sys.argv[1], encoder="openvino")
except BackendLoadError as error:
    print(error)
"""


def test_a_package_that_cannot_be_loaded_is_an_error(model: str, tmp_path: Path, monkeypatch: Any) -> None:
    package = tmp_path / "path" / "openvino"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('libtbb.so.12: no such file')\n")
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    told = child(BROKEN, model)
    assert "cannot be loaded" in told and "libtbb.so.12" in told
    assert BackendLoadError.__mro__.index(BackendError) > 0
