"""CoreML's place behind the seam. It was never run: a package that stands in for coremltools shows what it is asked."""

from __future__ import annotations

import platform
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whispyx
from tests.core.tiny import pair
from tests.encoders.openvino_kit import RECIPE, SOUND
from whispyx import capi
from whispyx.encoders import CoreMlEncoder
from whispyx.errors import BackendLoadError, BackendNotFoundError, BackendUnsupportedError, ComputeError, ParamsError


@pytest.mark.skipif(platform.system() == "Darwin", reason="this is macOS")
def test_elsewhere_than_on_macos_the_error_says_so(model: str) -> None:
    with pytest.raises(BackendUnsupportedError, match="macOS"):
        CoreMlEncoder("base-encoder.mlmodelc")
    with pytest.raises(BackendUnsupportedError, match=r"ggml-tiny\.random-encoder\.mlmodelc"):
        whispyx.Model(model, encoder="coreml")
    assert "COREML = 0" in capi.whisper_print_system_info()


class Tools(types.ModuleType):
    """What of coremltools is used: models that are loaded by path and predict a dictionary."""

    ComputeUnit = types.SimpleNamespace(ALL="all", CPU_ONLY="cpu", CPU_AND_GPU="gpu", CPU_AND_NE="ne")

    def __init__(self, output: Any) -> None:
        super().__init__("coremltools")
        self.__spec__ = types.SimpleNamespace(name="coremltools")  # type: ignore[assignment]
        self.loaded: list[tuple[str, str, Any]] = []
        tools = self

        class Compiled:
            kind = "compiled"

            def __init__(self, path: str, compute_units: Any) -> None:
                if "broken" in path:
                    raise RuntimeError("a domain error")
                tools.loaded.append((self.kind, path, compute_units))

            def predict(self, inputs: dict[str, Any]) -> dict[str, Any]:
                return {"output": output(inputs["logmel_data"])}

        class Package(Compiled):
            kind = "package"

        self.models = types.SimpleNamespace(CompiledMLModel=Compiled, MLModel=Package)


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(output: Any) -> Tools:
        tools = Tools(output)
        monkeypatch.setattr(platform, "system", lambda: "Darwin")
        monkeypatch.setitem(sys.modules, "coremltools", tools)
        return tools

    return install


def features(mel: np.ndarray) -> np.ndarray:
    assert mel.shape == (1, RECIPE.n_mels, 2 * RECIPE.n_audio_ctx) and mel.dtype == np.float32
    return np.asarray(pair(RECIPE).net.encode(mel[0]).output[np.newaxis], np.float16)


def test_it_is_asked_as_whisper_cpp_asks_it(macos: Any, model: str) -> None:
    tools = macos(features)
    with whispyx.Model(model) as own, whispyx.Model(model, encoder="coreml:NPU") as other:
        assert (other.info.encoder or "").startswith("CoreML")
        expected = own.transcribe(SOUND, "en", temperature_inc=0.0)
        assert other.transcribe(SOUND, "en", temperature_inc=0.0).text == expected.text
        with pytest.raises(ParamsError, match="whole windows"):
            other.transcribe(SOUND, "en", audio_ctx=50)
    assert tools.loaded == [("compiled", str(Path(model).with_name("ggml-tiny.random-encoder.mlmodelc")), "ne")]


def test_the_mark_of_a_quantised_model_is_no_part_of_the_name(macos: Any) -> None:
    tools = macos(features)
    CoreMlEncoder.for_model("/models/ggml-base.en-q5_0.bin")
    CoreMlEncoder("/models/other.mlpackage", "CPU")
    assert tools.loaded == [
        ("compiled", "/models/ggml-base.en-encoder.mlmodelc", "all"),
        ("package", "/models/other.mlpackage", "cpu"),
    ]


def test_its_failures_are_ours(macos: Any, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    macos(lambda mel: 1 / 0)
    with pytest.raises(BackendLoadError, match="a domain error"):
        CoreMlEncoder("broken.mlmodelc")
    with pytest.raises(ParamsError, match="TPU"):
        CoreMlEncoder("a.mlmodelc", "TPU")
    with whispyx.Model(model, encoder="a.mlmodelc") as opened, pytest.raises(ComputeError, match="division"):
        opened.transcribe(SOUND, "en")
    with pytest.raises(ParamsError, match="no path"):
        whispyx.Model(Path(model).read_bytes(), encoder="coreml")
    monkeypatch.delitem(sys.modules, "coremltools")
    with pytest.raises(BackendNotFoundError, match="pip install coremltools"):
        CoreMlEncoder("a.mlmodelc")
