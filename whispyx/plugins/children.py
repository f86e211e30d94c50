"""Work in a child process that may crash, hang or end without a word, as a plugin can make it do.

The child imports what this process could import, runs one function of ours and tells its results one by one, over a
pipe of its own: what a plugin prints does not disturb them. Each result has a time limit.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from whispyx import errors
from whispyx._stdio import above_standard
from whispyx.errors import WhispyxError

__all__ = ["Ending", "Message", "Tell", "work"]

Message = dict[str, Any]
Tell = Callable[[Message], None]

START: Final = (
    "import json, sys; spec = json.loads(sys.argv[1]); sys.path[:] = spec['path']; "
    "from whispyx.plugins.children import serve; serve(spec)"
)
GRACE_SECONDS: Final = 20  # for taking itself down, once everything has been told
LOOK_SECONDS: Final = 0.2
TAIL: Final = 2000


@dataclass(frozen=True)
class Ending:
    """How a child ended.

    Attributes
    ----------
    kind : str
        "done"; "error": a typed error, `text` is its message; "signal", "exit": the process died or went away in the
        middle; "hang": no result came in time, and it was killed; "late crash": everything was told, then it died.
    text : str
        One sentence.
    printed : str
        The end of what was printed, by whomever.
    error : str
        Class of a typed error.
    """

    kind: str
    text: str = ""
    printed: str = ""
    error: str = ""

    def as_error(self, about: str = "") -> WhispyxError:
        """Return it as an exception: of the class that was raised in the child, or BackendError where it died."""
        kind = getattr(errors, self.error, None) if self.kind == "error" else None
        if isinstance(kind, type) and issubclass(kind, WhispyxError):
            return kind(self.text)
        text = f"{about}: {self.text}" if about else self.text
        return errors.BackendError(f"{text}; it printed: {self.printed}" if self.printed else text)


def work(
    function: str,
    request: Message,
    seconds: float,
    environment: Mapping[str, str | None] | None = None,
) -> Iterator[Message | Ending]:
    """Run a function in a child and give what it tells as it comes; the last item is an `Ending`.

    Parameters
    ----------
    function : str
        "module:function"; it is called with `request` and a function that tells a message, both plain data for JSON.
    request : dict
    seconds : float
        How long the child may take until its first message, between two messages, and to its end.
    environment : mapping, optional
        Variables to set, or to unset where the value is None.
    """
    if not sys.executable:
        raise WhispyxError("this program does not know its Python interpreter (sys.executable), so no child can start")
    reader, writer = map(above_standard, os.pipe())
    spec = {
        "path": [os.path.abspath(place) for place in sys.path],
        "function": function,
        "request": request,
        "pipe": writer,
    }
    variables = {**os.environ, "GGML_NO_BACKTRACE": "1"}  # ggml would call a debugger
    for name, value in (environment or {}).items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    with tempfile.TemporaryFile() as printed, os.fdopen(reader, "rb", buffering=0) as pipe:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-c", START, json.dumps(spec)],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=(writer,),
                env=variables,
                start_new_session=True,
            )
        finally:
            os.close(writer)
        try:
            last: Message = {}
            for last in _messages(pipe.fileno(), process, seconds):
                if "end" not in last:
                    yield last
            yield _ending(process, last, seconds, printed)
        finally:
            _kill(process)


def _messages(pipe: int, process: subprocess.Popen[bytes], seconds: float) -> Iterator[Message]:
    """Give messages until the pipe is closed, the child has gone, or time is up."""
    pending = b""
    limit = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            # A child of the child may hold the pipe open, so its end is not waited for alone.
            gone = process.poll() is not None
            if selector.select(0 if gone else min(LOOK_SECONDS, max(0.0, limit - time.monotonic()))):
                chunk = os.read(pipe, 1 << 16)
                if not chunk:
                    return
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    limit = time.monotonic() + seconds
                    yield json.loads(line)
            elif gone or time.monotonic() >= limit:
                return


def _ending(process: subprocess.Popen[bytes], last: Message, seconds: float, printed: Any) -> Ending:
    ended = last.get("end")
    try:
        # The pipe may close a moment before the process ends, or the child may hang at its own end.
        code = process.wait(GRACE_SECONDS if ended else LOOK_SECONDS * 5)
    except subprocess.TimeoutExpired:
        _kill(process)
        if ended == "done":
            return Ending("late crash", "everything was computed, but the process did not end", _tail(printed))
        return Ending("hang", f"no answer for {seconds:g} s", _tail(printed))
    if ended == "error":
        return Ending("error", last["text"], _tail(printed), last["error"])
    if code < 0:
        text = f"the process died of {_signal(-code)}"
        return Ending("late crash" if ended else "signal", f"{text} at its end" if ended else text, _tail(printed))
    if not ended:
        return Ending("exit", f"the process ended by itself with exit code {code}", _tail(printed))
    return Ending("done", "", _tail(printed))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tail(printed: Any) -> str:
    printed.seek(0, os.SEEK_END)
    printed.seek(max(0, printed.tell() - TAIL))
    return str(printed.read().decode("utf-8", "replace")).strip()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it started; both live in a session of their own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def serve(spec: Message) -> None:
    """Do the work; runs in the child."""
    _leave_no_core()
    pipe = spec["pipe"]

    def tell(message: Message) -> None:
        rest = json.dumps(message).encode() + b"\n"
        while rest:
            rest = rest[os.write(pipe, rest) :]

    module, _, name = spec["function"].partition(":")
    try:
        getattr(importlib.import_module(module), name)(spec["request"], tell)
    except WhispyxError as error:
        tell({"end": "error", "error": type(error).__name__, "text": str(error)})
    else:
        tell({"end": "done"})


def _leave_no_core() -> None:
    """A process that is expected to crash leaves no image of its memory behind."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
