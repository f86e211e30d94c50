"""A loaded model: everything that does not change while it works. Many states share one context."""

from whispyx._core.kernels cimport table
from whispyx._core.describe cimport describe
from whispyx._core.description cimport Description
from whispyx._core.loader cimport Loaded, load
from whispyx._core.weights cimport Weights
from whispyx._ggml.ggml cimport ggml_time_us

import logging
import os
import threading

import whispyx._core.log  # noqa: F401 - routes ggml's lines to logging before the first of them
from whispyx._core.devices import select
from whispyx._core.hparams import FIELDS
from whispyx._core.kernels import AUTO, COMPUTE
from whispyx.errors import (BackendUnsupportedError, ComputeMemoryError, DeviceError, ModelError, ModelFormatError,
                            ParamsError, StateError)
from whispyx.fallback import Fallback, remember

log = logging.getLogger("whispyx.devices")


cdef class Context:
    """A model, read-only after loading. Make one with `Context.load`; see the stub for its attributes."""

    def __init__(self) -> None:
        raise TypeError("use Context.load")

    @staticmethod
    def load(
        source, *, use_gpu=True, int gpu_device=0, flash_attn=True, backends=None, fallback=False, known=(),
        progress=None, encoder=None, compute="exact", mmap=True
    ) -> Context:
        """Load a model.

        Parameters
        ----------
        source
            Path, bytes-like object or binary file object of a legacy ggml model, or the manifest of a model in another
            format (`whispyx.models.formats`).
        use_gpu, gpu_device
            Whether to use a GPU and which one, by position; with `backends`, which of the GPUs among them.
        flash_attn
            Compute attention in one pass over the keys instead of storing the scores.
        backends
            Device names in order of preference; None takes GPU, accelerators, CPU as they are registered.
        fallback
            Go on with the next device when a GPU cannot be started or has no room for the weights or the working
            memory of a job; `fallbacks` then says so. False: that is an error.
        known
            Fallbacks that the caller has seen already; `fallbacks` starts with them.
        progress
            Called with (bytes read, bytes in all).
        encoder
            What computes the encoder instead of the model (`State.set_encoder`), for every state. The encoder's weights
            are then left in the file.
        compute
            Precision: "f32", "bf16", "mixed" or "int8" with our own kernels, "exact" for ggml's operations on the
            weights as they are in the file, "auto" for the fastest that is as good (docs/performance.md).

        mmap
            Use tensors where they lie in the model's files, if they can be used so, instead of copies. A file that is
            written to meanwhile makes jobs raise ModelError; the next one reads it again.

        Raises
        ------
        ModelNotFoundError, ModelFormatError
            No file, or not a Whisper model.
        BackendError
            No usable device.
        ComputeMemoryError
            The weights do not fit.
        DeviceError
            A device cannot be started.
        """
        cdef Context self = Context.__new__(Context)
        cdef long long start = ggml_time_us()
        cdef Description model
        self.device_list = select(use_gpu=bool(use_gpu), gpu_device=gpu_device, names=backends)
        self.flash_attn = bool(flash_attn)
        self.fallbacks = tuple(known)
        self.encoder = encoder
        self.wanted, self.mmap = compute, bool(mmap)
        self.may_use_kernels = backends is None or all([device.kind == "CPU" for device in self.device_list])
        if isinstance(source, (str, os.PathLike)):
            self.path = self.origin = os.fspath(source)
        elif hasattr(source, "blobs"):
            self.path = source.blobs[0].path
            self.origin = None if self.path is None else source     # bytes are let go of
        model = describe(source)
        try:
            self.alignment_heads = model.alignment_heads
            if model.manifest is not None:
                self.suppress_tokens = model.manifest.suppress_tokens or ()
                self.begin_suppress_tokens = model.manifest.begin_suppress_tokens or ()
            while not self._load(model, bool(fallback), progress):
                pass
        finally:
            model.close()
            if hasattr(source, "blobs"):
                source.close()      # its headers were read; for weights the files are opened anew
        self.load_ms = (ggml_time_us() - start) / 1e3
        return self

    cdef bint _load(self, Description model, bint fallback, object progress) except -1:
        """Read the model. False: the first device cannot be used and is off the list; try again."""
        cdef Loaded loaded
        first, devices = self.device_list[0], self.device_list
        may_drop = fallback and first.kind in ("GPU", "IGPU")
        self.compute = self._choose(self.wanted)
        if self.compute != "exact":
            # The kernels do all there is to do, on the CPU.
            self.device_list = self.device_list[len(self.device_list) - 1:]
        try:
            loaded = load(model, self.device_list, progress, self.encoder, self.compute, self.mmap)
            self.hparams, self.vocab, self.filters = loaded.hparams, loaded.vocab, loaded.filters
            self.weights, self.fingerprint = loaded.weights, loaded.fingerprint
            if may_drop:
                self.new_state().close()    # is there room to work, too?
        except (BackendUnsupportedError, ComputeMemoryError, DeviceError) as error:
            if self.wanted == "auto" and self.compute != "exact" and isinstance(error, BackendUnsupportedError):
                self.wanted, self.device_list = "exact", devices    # a network that the kernels do not know
                return False
            if not may_drop:
                raise
            self.weights = None
            self.device_list = self.device_list[1:]
            self._fell_back(Fallback(first.name, self.device_list[0].name, str(error)))
            return False
        for item in loaded.fallbacks:
            self._fell_back(item)
        return True

    cdef str _choose(self, str wanted):
        """Return the precision for the devices that are there. Kernels work on the CPU, instead of accelerators."""
        first = self.device_list[0]
        if wanted not in COMPUTE:
            raise ParamsError(f"compute must be one of {', '.join(COMPUTE)}; got {wanted!r}")
        able = table() != NULL and self.may_use_kernels and first.kind in ("CPU", "ACCEL")
        if wanted == "auto":
            return AUTO if able else "exact"
        if wanted != "exact" and not able:
            raise BackendUnsupportedError(
                f"compute={wanted!r} needs our kernels for the CPU, and "
                + ("there are none for this machine, or WHISPYX_KERNELS switches them off" if table() == NULL
                   else f"the model shall run on {first.name}"))
        return wanted

    cdef int _fell_back(self, object fallback) except -1:
        log.warning("%s", fallback)
        self.fallbacks += (fallback,)
        remember(fallback)
        return 0

    def __cinit__(self):
        self.aheads = self.fallbacks = self.suppress_tokens = self.begin_suppress_tokens = ()
        self.placement_of = {}
        self.reloading = threading.Lock()

    cdef int check_open(self) except -1:
        if self.hparams is None:
            raise StateError("the model was never loaded: use Context.load")
        if self.closed:
            raise StateError("the model is closed")
        return 0

    cdef Weights usable_weights(self):
        """Return the weights. Those that a device has lost, or whose file was written to, are read again."""
        cdef Loaded loaded
        cdef Description model
        cdef Weights weights
        with self.reloading:
            self.check_open()       # it may have been closed while others read the file
            weights = self.weights
            if weights is None:
                return None
            try:
                weights.check()
                return weights
            except (DeviceError, ModelError):
                if self.origin is None:
                    raise
            model = describe(self.origin)
            try:
                loaded = load(model, self.device_list, None, self.encoder, self.compute, self.mmap)
            finally:
                model.close()
            differ = [name for name in FIELDS if getattr(loaded.hparams, name) != getattr(self.hparams, name)]
            if loaded.weights is None or differ or loaded.fingerprint != self.fingerprint:
                raise ModelFormatError(f"{self.path} has changed since the model was loaded: load it anew")
            self.check_open()
            self.weights = loaded.weights
            return loaded.weights

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices in the order the schedulers prefer them; the last one is a CPU."""
        return tuple([device.name for device in self.device_list])

    @property
    def kernels(self) -> str | None:
        """Name of the library of kernels that computes, None where it is ggml's operations."""
        if self.weights is None or self.weights.packed is None:
            return None
        return self.weights.packed.kernels

    @property
    def placement(self) -> dict[str, dict[str, dict[str, int]]]:
        """Which device computed how many operations of which name, by stage; empty where the CPU alone computes.

        Of the first graph of each stage that a state of this model ran.
        """
        return {stage: {name: dict(ops) for name, ops in devices.items()}
                for stage, devices in self.placement_of.items()}

    @property
    def model_type(self) -> str:
        """Size name: "tiny", "base", "small", "medium", "large" or "unknown"."""
        return self.hparams.model_type

    @property
    def ftype_name(self) -> str:
        """Weight type of the file: "f32", "f16", "q5_1" and so on."""
        return self.hparams.ftype_name

    @property
    def n_tensors(self) -> int:
        """Tensors in the file; 0 for a file that holds settings and vocabulary only."""
        return 0 if self.weights is None else self.weights.n_tensors

    @property
    def weight_bytes(self) -> int:
        """Bytes that the weights take, in memory of devices and in files that are mapped."""
        return 0 if self.weights is None else self.weights.n_bytes() + self.weights.mapped_bytes

    @property
    def mapped_bytes(self) -> int:
        """Bytes of weights that are used where they lie in files."""
        return 0 if self.weights is None else self.weights.mapped_bytes

    def set_aheads(self, heads) -> None:
        """Choose the cross-attention heads that time alignment looks at.

        Parameters
        ----------
        heads
            (layer, head) pairs of the decoder, counted from 0; `whispyx._core.align.heads` knows those of published
            models. Empty: none. Where nobody chooses, those that the model's files name are taken, else the preset of
            a model of this shape.

        Raises
        ------
        ParamsError
            A head that the model does not have, or one that is named twice.
        """
        cdef list found = []
        self.check_open()
        for pair in heads:
            layer, head = pair
            if not 0 <= layer < self.hparams.n_text_layer or not 0 <= head < self.hparams.n_text_head:
                raise ParamsError(f"there is no alignment head {tuple(pair)}: the model has "
                                  f"{self.hparams.n_text_layer} decoder layers of {self.hparams.n_text_head} heads")
            found.append((int(layer), int(head)))
        if len(set(found)) != len(found):
            raise ParamsError("an alignment head is named twice")
        # The order of whisper.cpp: by layer, within a layer as given.
        self.aheads = tuple(sorted(found, key=lambda pair: pair[0]))
        self.aheads_chosen = True

    cdef int need_aheads(self) except -1:
        """Take the heads that the model's files name, where nobody has chosen any."""
        if not self.aheads_chosen and self.alignment_heads is not None:
            self.set_aheads(self.alignment_heads)
        return 0

    def new_state(self) -> object:
        """Return a new State for one job."""
        from whispyx._core.state import State

        return State(self)

    def close(self) -> None:
        """Let go of the weights. States that are still open keep them until they close. Closing twice is fine."""
        self.closed = True
        self.weights = self.encoder = None

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exc_info) -> None:
        self.close()
