"""Which precision and which kernels a model gets, and where that is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import whispyx
import whispyx.plugins
from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx import Model, ParamsError, Runner
from whispyx._core import kernels as core
from whispyx._core import packed
from whispyx._core.context import Context
from whispyx.capi import whisper_print_system_info
from whispyx.cli.parser import make_parser
from whispyx.errors import BackendAbiError, BackendError, BackendNotFoundError, BackendUnsupportedError
from whispyx.plugins import kernels
from whispyx.plugins.abi import KERNELS_ABI

PATH = str(pair(TinyModel(n_vocab=51865, n_text_ctx=64, end_after=20)).path)
SOUND = speechlike(4.0, seed=5)
USABLE = [record.name for record in kernels.records() if record.score]
needs_kernels = pytest.mark.skipif(not USABLE, reason="no kernels for this machine")


@pytest.fixture(autouse=True)
def _kernels_as_they_were(monkeypatch: pytest.MonkeyPatch):
    whispyx.plugins.load()
    yield
    monkeypatch.undo()
    kernels.load()


@needs_kernels
@pytest.mark.parametrize("compute", ["f32", "bf16", "mixed", "int8"])
def test_the_precision_is_told_by_model_info_result_and_runner(compute: str) -> None:
    with Model(PATH, compute=compute) as model:
        assert (model.info.compute, model.info.kernels) == (compute, core.name())
        assert model.devices == ("CPU",)
        assert model.transcribe(SOUND, "en").compute == compute
        assert json.loads(json.dumps(model.transcribe(SOUND, "en").to_dict()))["compute"] == compute
    with Runner(PATH, compute=compute) as runner:
        runner.set_audio(SOUND)
        runner.encode()
        assert runner.prefill(runner.prompt()).shape == (51865,)


def test_exact_uses_no_kernels() -> None:
    with Model(PATH, compute="exact") as model:
        assert (model.info.compute, model.info.kernels) == ("exact", None)
        assert model.transcribe(SOUND, "en").compute == "exact"


@needs_kernels
def test_auto_is_what_no_word_at_all_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHISPYX_COMPUTE", raising=False)
    with Model(PATH) as silent, Model(PATH, compute="auto") as said:
        assert silent.info.compute == said.info.compute == "mixed"
        assert silent.info.kernels == core.name() is not None
    for value, meant in ((" BF16 ", "bf16"), ("mixed", "mixed"), ("Auto", "mixed")):
        monkeypatch.setenv("WHISPYX_COMPUTE", value)
        with Model(PATH) as by_variable, Model(PATH, compute="f32") as by_argument:
            assert by_variable.info.compute == meant
            assert by_argument.info.compute == "f32"


def test_the_command_line_takes_every_precision() -> None:
    for compute in core.COMPUTE:
        assert make_parser().parse_args(["transcribe", "a.wav", "--compute", compute]).compute == compute
    assert set(core.COMPUTE) == {"auto", "exact", *packed.PLANS}


def test_bf16_keeps_8_bits_out_of_the_encoder_and_mixed_is_another_plan() -> None:
    """Models by that name had most of their encoder in 8 bits once."""
    types = {role: core.TYPES[number] for role, number in packed.PLANS["bf16"].items()}
    encoder = types.keys() - {"decoder", "logits", "cross"}
    assert {types[role] for role in encoder} == {"bf16"}
    assert packed.PLANS["mixed"] != packed.PLANS["bf16"]


@pytest.mark.parametrize("value", ["fp16", "", "INT8", 8, True])
def test_an_unknown_precision_is_refused(value: object) -> None:
    with pytest.raises(ParamsError, match="compute"):
        Model(PATH, compute=value)  # type: ignore[arg-type]


def test_an_unknown_precision_in_the_variable_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHISPYX_COMPUTE", "int4")
    with pytest.raises(ParamsError, match="WHISPYX_COMPUTE"):
        Model(PATH)


def test_without_kernels_auto_is_exact_and_a_named_precision_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.KERNELS_VARIABLE, "off")
    with Model(PATH, compute="auto") as model:
        assert (model.info.compute, model.info.kernels) == ("exact", None)
    with pytest.raises(BackendUnsupportedError, match="WHISPYX_KERNELS"):
        Model(PATH, compute="int8")
    assert "KERNELS" not in whisper_print_system_info()


@needs_kernels
@pytest.mark.parametrize("name", USABLE)
def test_kernels_can_be_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = next(record.path for record in kernels.records() if record.name == name)
    for value in (name, name.upper(), path):
        monkeypatch.setenv(kernels.KERNELS_VARIABLE, value)
        with Model(PATH, compute="mixed") as model:
            assert model.info.kernels == name
            assert len(model.transcribe(SOUND, "en").segments) >= 0
    assert f"KERNELS : {name} | f32 = f32 | bf16 = " in whisper_print_system_info()


@needs_kernels
def test_models_keep_the_kernels_they_were_loaded_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.KERNELS_VARIABLE, USABLE[0])
    with Model(PATH, compute="int8") as first:
        text = first.transcribe(SOUND, "en").text
        monkeypatch.setenv(kernels.KERNELS_VARIABLE, "off")
        with Model(PATH) as second:
            assert second.info.kernels is None
        assert first.info.kernels == USABLE[0]
        assert first.transcribe(SOUND, "en").text == text


def test_kernels_that_are_not_there_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(kernels.KERNELS_VARIABLE, "avx1024")
    with pytest.raises(BackendNotFoundError, match="avx1024"):
        Model(PATH)
    monkeypatch.setenv(kernels.KERNELS_VARIABLE, "some/lib.so")
    with pytest.raises(ParamsError, match="relative"):
        Model(PATH)
    monkeypatch.setenv(kernels.KERNELS_VARIABLE, str(tmp_path / "nothing.so"))
    with pytest.raises(BackendError, match=r"nothing\.so"):
        Model(PATH)


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("int whispyx_kernels_abi(void) { return 999; } int whispyx_kernels_score(void) { return 1; }"
         " void *whispyx_kernels(void) { return 0; }", BackendAbiError),
        ("int whispyx_kernels_abi(void) { return ABI; } int whispyx_kernels_score(void) { return 1; }"
         " void *whispyx_kernels(void) { return 0; }", BackendAbiError),
        ("int whispyx_kernels_abi(void) { return ABI; } int whispyx_kernels_score(void) { return 0; }"
         " void *whispyx_kernels(void) { return 0; }", BackendUnsupportedError),
        ("int whispyx_kernels_abi(void) { return ABI; } int whispyx_kernels_score(void) { return 1; }"
         " unsigned t[64] = {ABI, 8}; void *whispyx_kernels(void) { return t; }", BackendAbiError),
        ("int nothing(void) { return 1; }", BackendError),
    ],
    ids=["version", "no table", "other machine", "size", "no kernels"],
)  # fmt: skip
def test_a_library_that_does_not_fit_is_refused(
    source: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, library = tmp_path / "k.c", tmp_path / "libk.so"
    code.write_text(f"#define ABI {KERNELS_ABI}\n{source}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(code)], check=True)
    monkeypatch.setenv(kernels.KERNELS_VARIABLE, str(library))
    with pytest.raises(error):
        Model(PATH)
    monkeypatch.delenv(kernels.KERNELS_VARIABLE)
    with Model(PATH) as model:  # the next one is none the worse
        assert model.transcribe(SOUND, "en").complete


@needs_kernels
def test_the_report_of_plugins_names_the_kernels() -> None:
    command = [sys.executable, "-m", "whispyx.plugins"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "kernels" in text
    found = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert [record["name"] for record in found["kernels"] if record["used"]] == [USABLE[0]]


def test_info_on_the_command_line_tells_precision_and_kernels() -> None:
    for compute in ("exact", *(["int8"] if USABLE else [])):
        done = subprocess.run(
            [sys.executable, "-m", "whispyx", "info", "--load", PATH],
            capture_output=True, text=True, check=True, env={**os.environ, "WHISPYX_COMPUTE": compute},
        )  # fmt: skip
        rows = dict(line.split(None, 1) for line in done.stdout.splitlines())
        assert rows["compute"].split()[0] == compute
        assert ("kernels for" in rows["compute"]) == (compute != "exact")


@needs_kernels
def test_the_blocks_of_the_encoder_are_shown_by_exact_only() -> None:
    with Context.load(PATH, compute="int8") as ctx:
        with pytest.raises(ParamsError, match="exact"):
            whispyx._core.state.State(ctx, debug=True)
        with ctx.new_state() as state:
            state.pcm_to_mel(SOUND)
            state.encode()
            for name in ("conv", "cross_k.0"):
                with pytest.raises(whispyx.StateError, match="exact"):
                    state.tensor(name)
