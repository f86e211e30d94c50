"""Loads a damaged model in a process that may die, and tells how that went and what it cost.

The processes are forks of this one: it has imported everything, loaded the plugins, and holds one good model, which
must work in the same way after whatever a damaged one did.
"""

from __future__ import annotations

import io
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

import whispyx.plugins
from tests.oracle.tiny_model import TinyModel, speechlike
from tests.oracle.vad_model import SmallSilero
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx._core.vad.detect import VadModel
from whispyx.conversion import inspect_model
from whispyx.errors import ComputeError, ModelError
from whispyx.models.formats.opening import open_model

ADDRESS_SPACE: Final = 8 << 30  # an absurd allocation fails here before it can trouble the machine
TIMEOUT_S: Final = 60.0
SANITIZED: Final = "libasan" in os.environ.get("LD_PRELOAD", "")
TOLD: Final = 4000
SECOND: Final = 16000


@dataclass(frozen=True)
class Outcome:
    """What became of one damaged model.

    Attributes
    ----------
    how : str
        "refused" or "loaded"; or a fault: "crashed", "hung", "wrong error", "does not work" (loaded, but then failed),
        "taken" (what can be no model was loaded), "no reason", "printed", "spoiled" (the good model is another).
    message : str
        Of the error.
    seconds : float
        Until it was loaded or refused.
    grown : int
        The peak of the process's memory over what it had before, in bytes.
    """

    name: str
    how: str
    message: str = ""
    seconds: float = 0.0
    grown: int = 0

    @property
    def fault(self) -> bool:
        return self.how not in ("refused", "loaded")


def memory(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    with open("/proc/self/status", encoding="ascii") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith(field))


def forget_peak() -> None:
    with open("/proc/self/clear_refs", "w", encoding="ascii") as refs:
        refs.write("5")


@cache
def speech() -> Any:
    return speechlike(1.0)


def params() -> FullParams:
    return FullParams(n_threads=1, temperature_inc=0.0, language="en", max_tokens=4, audio_ctx=64)


def use(ctx: Context) -> Any:
    """Recognise a second of sound, whatever the model makes of it."""
    with ctx.new_state() as state:
        wanted = params()
        wanted.audio_ctx = min(64, ctx.hparams.n_audio_ctx)
        return [(s.t0, s.t1, s.text) for s in full(ctx, state, wanted, speech()).segments]


def load_whisper(source: Any, way: int) -> Any:
    """Load by all that is on the way of a model: what it is, and its weights as they are or packed for the kernels."""
    if way % 4 == 3 and isinstance(source, str):
        inspect_model(source)
    return Context.load(open_model(source), compute=("exact", "auto")[way % 2])


def load_vad(source: Any, way: int) -> Any:
    return VadModel.load(source, n_threads=1)


def use_vad(model: VadModel) -> Any:
    return model.detect(speech()).tolist()


@dataclass(frozen=True)
class Reader:
    """How models of a kind are loaded and used, and a good one of them."""

    load: Callable[[Any, int], Any]
    use: Callable[[Any], Any]
    good: Callable[[], bytes]


READERS: Final = {
    "whisper": Reader(load_whisper, use, lambda: TinyModel(n_state=64, n_audio_ctx=40, n_text_ctx=64).to_bytes()),
    "vad": Reader(load_vad, use_vad, lambda: SmallSilero().to_bytes()),
}


@cache
def good(kind: str) -> tuple[bytes, Any, Any]:
    """A file that is whole, its model, and what that makes of the sound."""
    whispyx.plugins.load()
    content = READERS[kind].good()
    model = READERS[kind].load(content, 0)
    return content, model, READERS[kind].use(model)


def in_child(function: Callable[[], Any], timeout: float = TIMEOUT_S) -> tuple[str, Any]:
    """Run a function in a fork of this process.

    Returns
    -------
    ("done", what it returned) | ("printed" | "crashed" | "hung", what it wrote)
        The value and all that the process wrote to its standard output and error come through files.
    """
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as said:
        sys.stdout.flush()
        sys.stderr.flush()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reading)
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                os.write(answer.fileno(), json.dumps(function()).encode())
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:
                os.write(2, traceback.format_exc().encode("utf-8", "backslashreplace"))
                os._exit(1)
            os._exit(0)
        os.close(writing)  # the child's end closes when it ends, however that is
        ended = bool(select.select([reading], [], [], timeout)[0])
        os.close(reading)
        if not ended:
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        text = said.read()[-TOLD:].decode("utf-8", "backslashreplace")
        if not ended:
            return "hung", f"no end after {timeout:.0f} s: {text}"
        if code:
            return "crashed", f"{signal.Signals(-code).name if code < 0 else f'exit status {code}'}: {text}"
        if text:
            return "printed", text
        answer.seek(0)
        return "done", json.loads(answer.read())


def attempt(name: str, path: Path, *, kind: str = "whisper", way: int = 0, verdict: str = "either") -> Outcome:
    """Load what lies at `path` in a process of its own, use it if it loads, and use the good model afterwards.

    Parameters
    ----------
    name : str
        Of the damage.
    path : pathlib.Path
    kind : {"whisper", "vad"}
    way : int
        Files are given by path, as a file object and as bytes in turn; every other time the weights are packed.
    verdict : {"refused", "either"}
        Whether it may load.
    """
    reader = READERS[kind]
    content, model, expected = good(kind)
    source: Any = str(path)
    if path.is_file() and way % 3 == 1:
        source = path.read_bytes()
    elif path.is_file() and way % 3 == 2:
        source = io.BytesIO(path.read_bytes())

    def work() -> dict[str, Any]:
        limit_memory()
        # A voice activity model does not work in the fork of the process that made it.
        whole = reader.load(content, 0) if kind == "vad" else model
        found = load(reader, source, way)
        refused = found["how"] == "refused"
        if refused and str(path) not in found["message"] and isinstance(source, str):
            found["how"] = "no reason"  # which file is it?
        elif found["how"] == "loaded" and verdict == "refused":
            found["how"] = "taken"
        if reader.use(whole) != expected:
            found |= {"how": "spoiled", "message": f"after {found}"}
        return found

    ended, value = in_child(work)
    return Outcome(name, **value) if ended == "done" else Outcome(name, ended, value)


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not SANITIZED:  # whose bookkeeping takes terabytes of addresses
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


def load(reader: Reader, source: Any, way: int) -> dict[str, Any]:
    """Load and use a model; return the fields of an `Outcome`."""
    found: dict[str, Any] = {}
    forget_peak()
    before, start = memory("VmRSS"), time.perf_counter()

    def measured(how: str, message: str = "") -> dict[str, Any]:
        return {"how": how, "message": message}

    try:
        try:
            model = reader.load(source, way)
        finally:
            found = {"seconds": time.perf_counter() - start, "grown": memory("VmHWM") - before}
    except ModelError as error:
        return found | measured("refused" if len(str(error)) >= 20 else "no reason", str(error)[:TOLD])
    except Exception as error:
        return found | measured("wrong error", f"{type(error).__name__}: {error}"[:TOLD])
    try:
        with np.errstate(all="ignore"):
            reader.use(model)
    except ComputeError as error:  # weights that are not numbers give results that are none
        return found | measured("loaded", str(error)[:TOLD])
    except Exception as error:
        return found | measured("does not work", f"{type(error).__name__}: {error}"[:TOLD])
    finally:
        model.close()
    return found | measured("loaded")
