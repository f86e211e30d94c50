"""The one place where the friendly API touches the recogniser; everything below is imported at the first use."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import os
    from typing import BinaryIO, TypeAlias

    from ._core.context import Context
    from ._core.params import FullParams
    from ._core.results import RunResult
    from ._core.state import State
    from .audio import AudioSource, Samples
    from .encoders import EncoderLike
    from .plugins.discovery import SelectionLike

    ModelSource: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO
    Selection: TypeAlias = SelectionLike | None

AHEAD: Final = ["whispyx._core.state", "whispyx._core.run"]
"""Modules that are imported while a model is read, which leaves the interpreter free: what every job needs. A program
that knows that it will need more may add it."""

Progress = Callable[[int, "int | None", str], None]
"""Called with the bytes done, the bytes in all (None: not known) and a word for the work."""


@contextmanager
def _importing(names: Sequence[str]) -> Iterator[None]:
    """Import modules on another thread meanwhile. What fails there fails again, and is told, where it is needed."""
    missing = [name for name in names if name not in sys.modules]

    def run() -> None:
        for name in missing:
            with suppress(Exception):
                import_module(name)

    thread = threading.Thread(target=run, name="whispyx-imports", daemon=True) if missing else None
    with suppress(RuntimeError):  # the system starts no thread: then it is imported later
        if thread is not None:
            thread.start()
    try:
        yield
    finally:
        if thread is not None and thread.ident is not None:
            thread.join()


class Engine:
    """Opens models and runs jobs on them."""

    def open(
        self,
        source: ModelSource,
        backend: Selection,
        *,
        use_gpu: bool,
        gpu_device: int,
        flash_attn: bool,
        progress: Progress | None,
        encoder: EncoderLike | None = None,
        compute: str | None = None,
        n_threads: int = 1,
        n_jobs: int = 1,
    ) -> Context:
        """Load the plugins that `backend` selects, find the model and read it.

        `n_threads` and `n_jobs` tell an encoder from outside what it will have to do.
        """
        from . import encoders, plugins
        from ._core.context import Context
        from .models.formats.opening import open_model
        from .plugins.kernels import check_compute
        from .plugins.limits import may_map

        compute, mmap = check_compute(compute), may_map()
        chosen = plugins.load(backend)
        plugins.require_cpu()
        read = None if progress is None else lambda done, total: progress(done, total, "read")
        model = self._locate(source, progress)
        outside = None
        encoder = encoders.chosen(encoder)
        if encoder is not None:
            if hasattr(model, "read"):
                model = model.read()  # it may be needed twice
            outside = encoders.resolve(encoder, model)
            encoders.plan(outside, n_threads, n_jobs)
        with _importing(AHEAD):
            return Context.load(
                open_model(model),
                use_gpu=use_gpu,
                gpu_device=gpu_device,
                flash_attn=flash_attn,
                backends=chosen.selected,
                fallback=chosen.may_fall_back,
                known=chosen.fallbacks,
                progress=read,
                encoder=outside,
                compute=compute,
                mmap=mmap,
            )

    def encoder_name(self, context: Context) -> str | None:
        """Return what an encoder from outside is called; None where the model has its own."""
        from ._core.external import encoder_name

        return None if context.encoder is None else encoder_name(context.encoder)

    def _locate(self, source: ModelSource, progress: Progress | None) -> Any:
        """Turn a name or path into a path; bytes and file objects are models already."""
        from os import PathLike, fspath
        from os.path import isabs, isfile
        from pathlib import Path

        if not isinstance(source, (str, PathLike)):
            return source
        path = fspath(source)
        if isinstance(path, str) and isabs(path) and isfile(path):
            return str(Path(path))  # what `resolve` would return
        from . import models

        return fspath(models.resolve(path, progress=progress))

    def usable_cores(self) -> int:
        """Return how many cores this process may use."""
        from ._core.cores import usable_cores

        return usable_cores()

    def params(self, **fields: Any) -> FullParams:
        """Make the engine's parameters."""
        from ._core.params import FullParams

        return FullParams(**fields)

    def full(self, context: Context, state: State, params: FullParams, samples: Samples) -> RunResult:
        """Recognise `samples`, and keep nothing of them in `state`."""
        from ._core.run import full

        try:
            return full(context, state, params, samples)
        finally:
            state.drop_mel()

    def detect_language(
        self, context: Context, state: State, samples: Samples, n_threads: int, offset_ms: int
    ) -> tuple[int, Samples]:
        """Return the id of the language and the probability of each."""
        from ._core.lang import detect_language

        try:
            return detect_language(context, state, samples, n_threads, offset_ms)
        finally:
            state.drop_mel()

    def load_audio(self, audio: AudioSource, sample_rate: float | None) -> Samples:
        """Read `audio` as float32 mono samples at 16 kHz."""
        from .audio import load

        return load(audio, sample_rate=sample_rate)
