"""The encoder on OpenVINO's runtime (PyPI: openvino): Intel's and AMD's CPUs, Intel's GPUs and NPUs."""

from __future__ import annotations

import logging
import operator
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whispyx._core.params import usable_cores
from whispyx._core.weightfile import WeightFile
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

from . import openvino_ir
from ._openvino import available, first_words, runtime, the_core

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OpenVinoEncoder", "available"]

logger = logging.getLogger("whispyx.encoders")

POLL_MS: Final = 20
"""How often a running job asks whether it is to stop."""
MAX_COMPILED: Final = 4
"""Compiled forms of one model that are kept: whole and shorter windows, for two numbers of threads."""
HEAD_BYTES: Final = 4096
START: Final = re.compile(rb"(\xef\xbb\xbf)?\s*(<\?xml[^>]*\?>\s*)?(<!--.*?-->\s*)*<net[\s>]", re.DOTALL)
"""How the file of a network begins."""
PRECISIONS: Final = ("f32", "bf16", "f16")


class OpenVinoEncoder:
    """An encoder that OpenVINO computes.

    Parameters
    ----------
    path : path
        The encoder's ``.xml`` file with its ``.bin`` beside it, as ``whispyx openvino-encoder`` writes it; those made
        for whisper.cpp or by optimum do, too.
    device : str
        OpenVINO's name of the device: "CPU", "GPU", "GPU.1", "NPU", "AUTO", …
    cache_dir : path or None
        Folder in which OpenVINO keeps compiled models, so that the next program starts faster. Made if need be. None
        or empty: no cache.
    precision : {"f32", "bf16", "f16"} or None
        What to compute in. None: f32 for a file that was written with f32 weights, otherwise what OpenVINO finds best
        for the device (bf16 on CPUs with instructions for it).
    n_threads : int or None
        Threads on a CPU. None: those of each job.

    Raises
    ------
    BackendNotFoundError
        OpenVINO is not installed, or has no such device.
    ModelNotFoundError, ModelFormatError
        There is no such file, or it holds no encoder.
    ParamsError
        An argument is none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        device: str = "CPU",
        cache_dir: str | os.PathLike[str] | None = None,
        *,
        precision: str | None = None,
        n_threads: int | None = None,
    ) -> None:
        self.path: str | None = os.path.abspath(_named(path))
        self._start(_read(self.path), device, cache_dir, precision, n_threads)

    @classmethod
    def of_model(
        cls,
        model: str | os.PathLike[str] | bytes | bytearray | memoryview,
        device: str = "CPU",
        cache_dir: str | os.PathLike[str] | None = None,
        *,
        precision: str | None = None,
        n_threads: int | None = None,
        storage: str = "f16",
    ) -> OpenVinoEncoder:
        """Make the encoder of a ggml model, given by path or content, in memory: nothing is written."""
        self = cls.__new__(cls)
        self.path = None
        with WeightFile(model) as weights:
            self._start(openvino_ir.build(weights, storage), device, cache_dir, precision, n_threads)
        return self

    @classmethod
    def for_model(cls, model: str | bytes | bytearray | memoryview, device: str = "CPU") -> OpenVinoEncoder:
        """Take the file beside a ggml model if there is one, or make the encoder from the model.

        That the file was made from this model is checked when the model takes the encoder.
        """
        if not isinstance(model, str):
            return cls.of_model(model, device)
        path = openvino_ir.encoder_path(model)
        if not os.path.lexists(path):
            return cls.of_model(model, device)
        return cls(path, device)

    @staticmethod
    def check_device(device: str = "CPU") -> str:
        """Return what would compute, in words; raises where OpenVINO or the device cannot be had."""
        version = runtime().__version__.partition("-")[0]
        return f"OpenVINO {version} on {_checked_device(device)}"

    def _start(
        self,
        model: Any,
        device: str,
        cache_dir: str | os.PathLike[str] | None,
        precision: str | None,
        n_threads: int | None,
    ) -> None:
        if precision not in (None, *PRECISIONS):
            raise ParamsError(f"precision {precision!r} is unknown (expected one of {', '.join(PRECISIONS)})")
        try:
            threads = None if n_threads is None else operator.index(n_threads)
        except TypeError:
            threads = 0
        if threads is not None and threads < 1:
            raise ParamsError(f"n_threads is {n_threads!r}; a whole number of at least 1 is needed")
        folder = "" if cache_dir is None else openvino_ir.path_text(cache_dir, "cache_dir")
        self.device = _checked_device(device)
        self.cache_dir = os.path.abspath(folder) if folder else None
        self._model = model
        self._precision = precision or ("f32" if self._noted("storage") == "f32" else None)
        self._n_threads = threads
        self._expected = min(4, usable_cores())
        self._n_jobs = 1
        self._compiled: OrderedDict[tuple[bool, int], Any] = OrderedDict()
        self._lock = threading.Lock()
        self.name = f"{self.check_device(device)} ({self.path or 'made from the model'})"

    def __repr__(self) -> str:
        return f"<OpenVinoEncoder {self.path or 'made from a model'} on {self.device}>"

    def _noted(self, key: str) -> str | None:
        """What `openvino_ir.build` has written into the file."""
        if not self._model.has_rt_info(["whispyx", key]):
            return None
        return str(self._model.get_rt_info(["whispyx", key]).astype(str))

    # ---- what a model and its states ask for

    @property
    def whispyx_made_from(self) -> str | None:
        """Fingerprint of the model that the file was made from; None where another program made it."""
        return self._noted("weights")

    def whispyx_plan(self, n_threads: int, n_jobs: int) -> None:
        """Be ready for `n_jobs` jobs side by side, of `n_threads` threads each."""
        self._expected, self._n_jobs = n_threads, n_jobs

    def whispyx_check(self, n_mels: int, n_audio_ctx: int, n_audio_state: int) -> None:
        """Raise ParamsError for a model of another shape."""
        self._shaped(n_mels, n_audio_ctx, n_audio_state)

    def whispyx_session(self, n_mels: int, n_audio_ctx: int, n_audio_state: int) -> _Session:
        """Compile the encoder, if that was not done before, and return a session."""
        session = _Session(self, (n_mels, n_audio_ctx, n_audio_state))
        session.prepare(2 * n_audio_ctx, self._expected)
        return session

    def _shaped(self, n_mels: int, n_audio_ctx: int, n_audio_state: int, shortest: int | None = None) -> Any:
        """Return the model with its sizes set: for whole windows, or for all from `shortest` frames on."""
        whole = 2 * n_audio_ctx
        wanted = f"the model has {n_mels} mel bands, {n_audio_ctx} positions and a width of {n_audio_state}"
        shaped = self._model.clone()
        found = shaped.inputs[0].get_partial_shape()
        says = f"{self.path or 'the encoder'} turns {found} into {shaped.outputs[0].get_partial_shape()}"
        dims = [1, n_mels, whole]
        fits = len(found) == 3 and all(a.is_dynamic or a.get_length() == b for a, b in zip(found, dims, strict=True))
        if fits:
            frames = whole if shortest is None else (shortest, whole)
            partial = runtime().PartialShape([1, n_mels, frames])
            try:
                shaped.reshape({shaped.inputs[0]: partial})
            except RuntimeError as error:
                raise ParamsError(f"{says}; {wanted}, and it cannot be made to fit: {first_words(error)}") from error
            made = shaped.outputs[0].get_partial_shape()
            if shortest is not None and len(made) == 3 and made[1].is_static:
                raise ParamsError(
                    f"{says}: it knows no shorter windows (audio_ctx); 'whispyx openvino-encoder' writes one that does"
                )
            result = [1, n_audio_ctx, n_audio_state]
            fits = len(made) == 3 and all(
                (shortest is not None and i == 1) or a == b for i, (a, b) in enumerate(zip(made, result, strict=True))
            )
        if not fits:
            raise ParamsError(f"{says}; {wanted}: they do not belong together")
        return shaped

    def compiled(self, sizes: tuple[int, int, int], shorter: bool, n_threads: int) -> Any:
        """Return the compiled model for whole windows, or for all lengths, on some number of threads."""
        on_cpu = self.device.partition(".")[0] == "CPU"
        threads = (self._n_threads or n_threads) if on_cpu else 0
        with self._lock:
            key = (shorter, threads)
            if key not in self._compiled:
                shaped = self._shaped(*sizes, shortest=2 if shorter else None)
                self._compiled[key] = self._compile(shaped, threads)
                if len(self._compiled) > MAX_COMPILED:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(key)
            return self._compiled[key]

    def _compile(self, model: Any, threads: int) -> Any:
        config: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
        if threads:
            # One stream per job, so that jobs do not wait for each other; no pinning, or two jobs of two processes
            # would share one core and leave the other idle.
            config |= {
                "NUM_STREAMS": self._n_jobs,
                "INFERENCE_NUM_THREADS": self._n_jobs * threads,
                "ENABLE_CPU_PINNING": False,
            }
        if self._precision is not None:
            config["INFERENCE_PRECISION_HINT"] = self._precision
        if self.cache_dir:
            config["CACHE_DIR"] = self._cache()
        try:
            return the_core().compile_model(model, self.device, config)
        except RuntimeError as error:
            raise BackendLoadError(f"{self.name} cannot be compiled: {first_words(error)}") from error

    def _cache(self) -> str:
        assert self.cache_dir is not None
        try:
            os.makedirs(self.cache_dir, exist_ok=True)
        except OSError as error:
            raise BackendLoadError(f"the cache folder {self.cache_dir} cannot be made: {error.strerror}") from error
        if not os.access(self.cache_dir, os.W_OK | os.X_OK):
            raise BackendLoadError(f"the cache folder {self.cache_dir} cannot be written to")
        return self.cache_dir


class _Session:
    """One request to the compiled model, for one job at a time."""

    def __init__(self, encoder: OpenVinoEncoder, sizes: tuple[int, int, int]) -> None:
        self._encoder, self._sizes = encoder, sizes
        self._compiled: Any = None
        self._request: Any = None

    def prepare(self, n_frames: int, n_threads: int) -> None:
        """Have a request for windows of this length."""
        compiled = self._encoder.compiled(self._sizes, n_frames < 2 * self._sizes[1], n_threads)
        if compiled is not self._compiled:
            self._request = compiled.create_infer_request()
            self._compiled = compiled

    def run(self, mel: NDArray[np.float32], n_threads: int, stop: Callable[[], bool]) -> NDArray[np.float32] | None:
        """Compute a window; see `whispyx.encoders.Session`."""
        try:
            self.prepare(mel.shape[1], n_threads)
        except BackendError as error:
            raise ComputeError(str(error)) from error
        request = self._request
        tensor = runtime().Tensor(mel[np.newaxis], shared_memory=True)
        try:
            request.set_input_tensor(0, tensor)
            request.start_async()
            try:
                while not request.wait_for(POLL_MS):
                    if stop():
                        self._cancel()
                        return None
            except BaseException:  # Ctrl-C; a request that goes on would read memory that is gone
                self._cancel()
                raise
            return np.array(request.get_output_tensor(0).data[0], dtype=np.float32)
        except RuntimeError as error:
            raise ComputeError(f"{self._encoder.name} failed: {first_words(error)}") from error

    def _cancel(self) -> None:
        """End the request that runs, and wait for it."""
        self._request.cancel()
        try:
            self._request.wait()
        except RuntimeError as error:
            logger.debug("a request ended with: %s", first_words(error))  # that it was cancelled

    def close(self) -> None:
        """Let go of the request and the compiled model."""
        self._request = self._compiled = None


def _named(path: object) -> str:
    text = openvino_ir.path_text(path, "an encoder's path")
    if not text:
        raise ParamsError("an encoder's path is empty")
    return text


def _check_start(path: str) -> None:
    """Refuse what is no network by its first bytes: OpenVINO's readers would print about it before they fail."""
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    if START.match(head) is None:
        raise ModelFormatError(f"{path} is no sound OpenVINO model: it does not begin with a <net>")


def _read(path: str) -> Any:
    """Read an encoder's file and check that it is one."""
    core = the_core()
    weights = os.path.splitext(path)[0] + ".bin"
    for part in (path, weights) if path.endswith(".xml") else (path,):
        if not os.path.isfile(part):
            raise ModelNotFoundError(f"there is no encoder file {part}: 'whispyx openvino-encoder MODEL' writes it")
    if path.endswith(".xml"):
        _check_start(path)
    try:
        model = core.read_model(path)
    except (RuntimeError, ValueError) as error:  # ValueError: a message in which the file's bytes are no UTF-8
        raise ModelFormatError(f"{path} is no sound OpenVINO model: {first_words(error)}") from error
    if len(model.inputs) != 1 or len(model.outputs) < 1:
        raise ModelFormatError(
            f"{path} is no encoder: it has {len(model.inputs)} inputs and {len(model.outputs)} outputs, not one each"
        )
    if str(model.inputs[0].get_element_type().to_string()) != "f32":
        raise ModelFormatError(f"{path} is no encoder: its input is {model.inputs[0].get_element_type()}, not f32")
    return model


def _checked_device(device: str) -> str:
    """Refuse a device that OpenVINO does not have. Combinations such as HETERO:GPU,CPU are left to it."""
    if not isinstance(device, str) or not device:
        raise ParamsError(f"an OpenVINO device is a name such as 'CPU' or 'GPU.0', not {device!r}")
    name = device.upper()
    kind = name.partition(":")[0].partition(".")[0]
    there: list[str] = the_core().available_devices
    known = {other.partition(".")[0] for other in there}
    if kind not in known and kind not in ("AUTO", "MULTI", "HETERO", "BATCH"):
        raise BackendNotFoundError(f"OpenVINO has no device {device!r} here; it has {', '.join(there) or 'none'}")
    return name
