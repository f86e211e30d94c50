"""The recognisers that are compared: how each is started, on which model files, and what one transcription gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tools import peer_models, peers
from tools.workers.client import FOLDER, Worker

OURS = "whispyx"
OURS_AVX2 = "whispyx, AVX2"
REFERENCE = "whisper.cpp"
REFERENCE_AVX2 = "whisper.cpp, AVX2"
AVX2 = {"WHISPYX_CPU_VARIANT": "haswell", "WHISPYX_KERNELS": "avx2"}
AUTO = "auto"
BATCH = 8


@dataclass(frozen=True)
class Run:
    """One transcription. `encode_ms` is per window; None where an engine does not tell."""

    seconds: float
    text: str
    n_tokens: int | None
    encode_ms: float | None
    n_encode: int | None = None
    token_ms: float | None = None

    def per_token_ms(self) -> float | None:
        """Everything between two tokens: all of the time but the encoder's."""
        if self.token_ms is not None:
            return self.token_ms
        if not self.n_tokens or self.encode_ms is None:
            return None
        return (self.seconds * 1e3 - self.encode_ms * (self.n_encode or 1)) / self.n_tokens


@dataclass(frozen=True)
class Engine:
    """A recogniser with its settings. `short` ones are run on the shortest recording alone.

    `carries` tells whether it gives each window the text before it: those that do can be told not to. None: not known.
    """

    name: str
    script: str
    python: str | Path | None
    model: Callable[[str], Path | None]
    setup: str
    environment: Mapping[str, str] = field(default_factory=dict)
    core: bool = False
    beams: bool = True
    short: bool = False
    batch: int = 1
    carries: bool | None = True

    def missing(self, model: str) -> str | None:
        """What has to be done before it can be run on a model; None: nothing."""
        if self.python is None:
            return f"python tools/peers.py {self.setup}"
        if self.model(model) is None:
            return f"python tools/peer_models.py {model}"
        return None


class Session:
    """A running engine with a model."""

    def __init__(self, engine: Engine, model: str, threads: int, compute: str | None = None) -> None:
        self.engine, self.threads = engine, threads
        self.given = {"compute": compute or AUTO} if engine.name.startswith(OURS) else {}
        path = engine.model(model)
        assert engine.python is not None and path is not None
        self.model = str(path)
        self.compute: str | None = None
        self.worker = Worker(FOLDER / engine.script, engine.python, environment=engine.environment)

    def load(self) -> float:
        """Load the model, again if it was; returns seconds."""
        if self.engine.core:
            answer = self.worker("load", model=self.model, flash_attn=True, **self.given)
            self.compute = answer.get("compute")
        else:
            answer = self.worker("load", model=self.model, threads=self.threads)
        return float(answer["load_s"])

    def transcribe(self, samples: str, language: str, beams: int = 1, *, carry: bool = True) -> Run:
        """One recording, without fallback temperatures. Windows know the text before them, or stand alone."""
        if not self.engine.core:
            extra: dict[str, Any] = {"batch": self.engine.batch} if self.engine.batch > 1 else {}
            if not carry and self.engine.carries:
                extra["carry"] = False
            answer = self.worker("transcribe", samples=samples, language=language, beams=beams, **extra)
            told = {name: answer[name] for name in Run.__dataclass_fields__ if name in answer}
            return Run(**{"n_tokens": None, "encode_ms": None, **told})
        params: dict[str, Any] = {"n_threads": self.threads, "temperature_inc": 0.0, "language": language}
        if not carry:
            params["n_max_text_ctx"] = 0
        if beams > 1:
            params |= {"strategy": "beam_search", "beam_size": beams}
        answer = self.worker("full", samples=samples, params=params)
        segments = answer["segments"]
        text = b"".join(bytes.fromhex(segment["text_hex"]) for segment in segments).decode("utf-8", "replace")
        n_tokens = sum(len(segment["tokens"]) for segment in segments)
        return Run(answer["seconds"], text.strip(), n_tokens, answer["timings"]["encode_ms"])

    def peak_mib(self) -> float:
        return float(self.worker("rss")["peak_kb"]) / 1024

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.worker.close()


def _ggml(name: str) -> Path:
    from whispyx.models import resolve

    return Path(resolve(name))


def _made(kind: str) -> Callable[[str], Path | None]:
    return lambda name: peer_models.ready(name, kind)


def all_engines(python: str | Path) -> tuple[Engine, ...]:
    """Every engine, in the order of the table's columns; `python` runs whispyx."""
    cpp, ov = "whispercpp.py", "openvino_peer.py"
    wheel, native = peers.python("pywhispercpp"), peers.python("pywhispercpp", native=True)
    fast, genai = peers.python("faster-whisper"), peers.python("openvino-genai")
    return (
        Engine(OURS, "whispyx_core.py", python, _ggml, "", core=True),
        Engine(REFERENCE, cpp, native, _ggml, "--native pywhispercpp", core=True),
        Engine("OpenVINO bf16", ov, genai, _made("openvino-f16"), "openvino-genai", carries=False),
        Engine("OpenVINO int8", ov, genai, _made("openvino-int8"), "openvino-genai", carries=False),
        Engine("faster-whisper int8", "faster_whisper_peer.py", fast, _made("ct2"), "faster-whisper"),
        Engine(
            f"faster-whisper int8, batch {BATCH}", "faster_whisper_peer.py", fast, _made("ct2"), "faster-whisper",
            beams=False, batch=BATCH, carries=False,
        ),
        Engine(
            "transcribe-cpp", "transcribe_cpp_peer.py", peers.python("transcribe-cpp"), _ggml, "transcribe-cpp",
            beams=False, carries=None,
        ),
        Engine(OURS_AVX2, "whispyx_core.py", python, _ggml, "", AVX2, core=True, beams=False, short=True),
        Engine(REFERENCE_AVX2, cpp, wheel, _ggml, "pywhispercpp", core=True, beams=False, short=True),
    )  # fmt: skip
