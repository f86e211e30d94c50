"""Both engines on one case. What whisper.cpp gave is kept on disk: the same question has the same answer."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests import data
from tests.parity import sounds
from tests.parity.grid import BASE, Case
from tools import peers
from tools.workers.client import Worker, whispercpp, whispyx
from whispyx.models import cache_root

FORMAT: Final = 1  # of the kept answers; raised when the worker of whisper.cpp answers differently


@cache
def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _processor() -> str:
    """Another CPU rounds differently, so kept answers are its own."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line for line in file if line.startswith(("model name", "flags"))]
        return "".join(lines[:2])
    except OSError:
        return platform.processor() + platform.machine()


def reference_python() -> Path | None:
    """Interpreter of whisper.cpp's environment: built for this CPU, else the wheel; None where neither is set up."""
    return peers.python("pywhispercpp", native=True) or peers.python("pywhispercpp")


class Engines:
    """Two worker processes, started when first needed.

    Parameters
    ----------
    python : interpreter of the environment with whisper.cpp.
    folder : where sounds are put for the workers.
    """

    def __init__(self, python: Path, folder: Path) -> None:
        self.python = python
        self.folder = folder
        self.workers: dict[str, Worker] = {}
        self.kept = self.asked = 0
        libraries = sorted(python.parent.parent.glob("lib*/python*/site-packages/lib*.so*"))
        parts = [FORMAT, _processor(), *[checksum(path.resolve()) for path in libraries]]
        self.fingerprint = hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for worker in self.workers.values():
            worker.close()

    def _worker(self, name: str, start: Callable[[], Worker]) -> Worker:
        worker = self.workers.get(name)
        if worker is None or worker.process.poll() is not None:  # a crash costs one case, not the run
            worker = self.workers[name] = start()
        return worker

    def _reference(self, do: str, **arguments: Any) -> dict[str, Any]:
        return self._worker("whisper.cpp", lambda: whispercpp(self.python))(do, **arguments)

    def _kept(self, key: list[Any], ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the kept answer to a question, or ask and keep it."""
        name = hashlib.sha256(json.dumps([self.fingerprint, *key], sort_keys=True).encode()).hexdigest()
        path = cache_root() / "test-data" / "parity" / f"{name[:32]}.json"
        try:
            answer: dict[str, Any] = json.loads(path.read_text())
            self.kept += 1
            return answer
        except (OSError, ValueError):
            self.asked += 1
        answer = ask()
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(answer, file)
        os.replace(file.name, path)
        return answer

    def theirs(self, case: Case, **changed: Any) -> dict[str, Any]:
        """What whisper.cpp makes of a case, on a model and a state that nothing has used before."""
        model = data.model_file(case.model)
        params = {**BASE, **case.params, **changed}
        asked = {"params": params, "aheads": case.aheads, "n_processors": case.n_processors, "flash_attn": False}
        vad = self._vad(params)
        key = ["fresh", asked, checksum(model), sounds.digest(case.sound), checksum(Path(vad)) if vad else None]
        return self._kept(
            key,
            lambda: self._reference(
                "fresh",
                model=str(model),
                samples=sounds.as_file(case.sound, self.folder),
                **{**asked, "params": {**params, **({"vad_model_path": vad} if vad else {})}},
            ),
        )

    def speech(self, case: Case) -> dict[str, Any]:
        """Where whisper.cpp's voice activity detector finds speech, and its probabilities."""
        vad = data.silero_ggml()
        asked = {"vad_params": case.params.get("vad_params", {})}
        return self._kept(
            ["speech", asked, sounds.digest(case.sound), checksum(vad)],
            lambda: self._reference(
                "speech", vad_model=str(vad), samples=sounds.as_file(case.sound, self.folder), **asked
            ),
        )

    def ours(self, case: Case, **changed: Any) -> dict[str, Any]:
        """What whispyx makes of it."""
        params = {**BASE, **case.params, **case.ours, **changed}
        vad = self._vad(params)
        return self._worker("whispyx", whispyx)(
            "fresh",
            model=str(data.model_file(case.model)),
            flash_attn=case.flash_attn,
            samples=sounds.as_file(case.sound, self.folder),
            params={**params, **({"vad_model_path": vad} if vad else {})},
            aheads=case.aheads,
            n_processors=case.n_processors,
        )

    @staticmethod
    def _vad(params: dict[str, Any]) -> str | None:
        return str(data.silero_ggml()) if params.get("vad") else None
