"""The friendly API: a model that stays loaded, and the jobs run on it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ._engine import Engine, Progress
from ._job import Job
from ._pool import StatePool
from .constants import SAMPLE_RATE
from .errors import AudioError, LanguageError, ParamsError, StateError
from .languages import CODES, LANGUAGES, lang_id
from .options import TranscribeOptions, check_callable, check_count, check_threads
from .results import DetectedLanguage, Devices, ModelInfo, Segment, Transcript

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._core.context import Context
    from ._core.kernels import Compute
    from ._core.state import State
    from ._engine import ModelSource, Selection
    from .audio import AudioSource
    from .encoders import EncoderLike
    from .options import OptionFields

__all__ = ["Model", "transcribe"]

logger = logging.getLogger("whispyx.model")

DEFAULT_MODEL: Final = "base"
"""The model that is used when none is named."""

DEFAULT_THREADS: Final = 4
"""Threads of a job where nobody says how many, if there are as many cores."""

_HPARAMS: Final = (
    "n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer",
    "n_text_ctx", "n_text_state", "n_text_head", "n_text_layer", "n_mels",
)  # fmt: skip
_SAME_NAME: Final = (
    "carry_initial_prompt", "temperature", "temperature_inc", "best_of", "seed", "entropy_thold", "logprob_thold",
    "no_speech_thold", "suppress_blank", "suppress_nst", "suppress_listed", "max_initial_ts", "no_pad",
)  # fmt: skip


class Model:
    """A Whisper model, loaded and ready.

    Several threads may use one model at the same time: the weights are shared, and each running job has a working
    memory of its own. Nothing is carried from one call to the next.

    Parameters
    ----------
    name_or_path : str, os.PathLike, bytes or binary file object
        A model name ("tiny.en", "base", ...), fetched on first use, or a ggml model file: its path or its content.
    backend : str, sequence of str or None
        Which backends may compute, best first: "cpu", "vulkan:0,cpu", or a plugin's path. They are then required.
        None: ``WHISPYX_BACKEND``, and without it the best that this machine offers; a GPU without room is then passed
        over, as `devices` tells.
    use_gpu : bool
        Whether a GPU may be used. False also leaves those out that ``WHISPYX_BACKEND`` names.
    gpu_device : int
        Which GPU, from 0: of all, dedicated ones first, or of those that are selected.
    n_threads : int or None
        Threads of each job. None: at most 4, and no more than the cores this process may use.
    flash_attn : bool
        Compute attention with the fused kernel. Off is slower and uses more memory.
    max_jobs : int or None
        Most jobs that run at once; further ones wait for their turn. None: as many as the cores this process may use
        can give their threads to, and at least one; more would only slow each other down.
    max_idle_states : int
        Working memories kept between jobs. 0 frees the memory after each job and makes the next one start slower.
    encoder : str, os.PathLike, callable or None
        What computes the encoder instead of the model, whose own encoder then stays in the file: "openvino" or
        "coreml", also with a device ("openvino:GPU"); the file of such an encoder; or a callable that turns a mel
        spectrogram, float32 (n_mels, 2 * n_ctx), into float32 (n_ctx, n_audio_state). See `whispyx.encoders`.
    compute : {"auto", "f32", "bf16", "mixed", "int8", "exact"} or None
        Precision. "f32", "bf16", "mixed" (bf16 and 8 bits) and "int8" use our own kernels for the CPU; "exact" uses
        ggml's operations on the weights as they are in the file, as every GPU does. "auto" is the fastest that
        recognises the same words, today "mixed" (docs/performance.md). None: ``WHISPYX_COMPUTE``, without it "auto".
    progress : callable or None
        Called with (bytes done, bytes in all or None, a word for the work) while the model is fetched and read.

    Raises
    ------
    ModelNotFoundError, ModelFormatError
        No source has the model, or the file is not a sound model.
    ParamsError
        The encoder is none, or was made for a model of another shape.
    BackendError
        A backend that was asked for cannot be used.
    ComputeMemoryError
        The weights do not fit into the memory of the device.
    """

    _engine: ClassVar[Engine] = Engine()

    def __init__(
        self,
        name_or_path: ModelSource,
        backend: Selection = None,
        *,
        use_gpu: bool = True,
        gpu_device: int = 0,
        n_threads: int | None = None,
        flash_attn: bool = True,
        max_jobs: int | None = None,
        max_idle_states: int = 2,
        encoder: EncoderLike | None = None,
        compute: Compute | None = None,
        progress: Progress | None = None,
    ) -> None:
        if max_jobs is not None:
            max_jobs = check_count("max_jobs", max_jobs, 1)
        max_idle_states = check_count("max_idle_states", max_idle_states, 0)
        gpu_device = check_count("gpu_device", gpu_device, 0)
        for flag, value in (("flash_attn", flash_attn), ("use_gpu", use_gpu)):
            if not isinstance(value, bool):
                raise ParamsError(f"{flag} must be True or False; got {value!r}")
        check_callable("progress", progress)
        cores = self._engine.usable_cores()
        self._n_threads = min(DEFAULT_THREADS, cores) if n_threads is None else check_threads(n_threads)
        if max_jobs is None:
            max_jobs = max(1, cores // self._n_threads)
        named = isinstance(name_or_path, (str, os.PathLike))
        self._name = os.fspath(name_or_path) if named else f"<{type(name_or_path).__name__}>"  # type: ignore[arg-type]
        self._context: Context = self._engine.open(
            name_or_path, backend, use_gpu=use_gpu, gpu_device=gpu_device, flash_attn=flash_attn, progress=progress,
            encoder=encoder, compute=compute, n_threads=self._n_threads, n_jobs=max_jobs,
        )  # fmt: skip
        self._states: StatePool[State] = StatePool(self._context.new_state, max_jobs, max_idle_states)
        self._process = os.getpid()

    # ---- what it is

    @property
    def name(self) -> str:
        """The name or path the model was asked for by."""
        return self._name

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._states.closed

    @property
    def devices(self) -> Devices:
        """Names of the devices it computes on, best first, the CPU last; and what became of others."""
        context = self._open_context()
        return Devices.of(context.devices, context.fallbacks, context.placement)

    @property
    def is_multilingual(self) -> bool:
        """Whether it knows other languages than English."""
        return bool(self._open_context().vocab.is_multilingual)

    @property
    def languages(self) -> tuple[str, ...]:
        """Short codes of the languages it knows."""
        vocab = self._open_context().vocab
        return CODES[: vocab.n_languages] if vocab.is_multilingual else ("en",)

    @property
    def info(self) -> ModelInfo:
        """Everything about it, as one record."""
        context = self._open_context()
        return ModelInfo(
            name=self._name,
            path=context.path,
            type=context.model_type,
            ftype=context.ftype_name,
            multilingual=self.is_multilingual,
            languages=self.languages,
            weight_bytes=context.weight_bytes,
            load_ms=context.load_ms,
            devices=self.devices,
            flash_attn=context.flash_attn,
            compute=context.compute,
            kernels=context.kernels,
            encoder=self._engine.encoder_name(context),
            **{name: getattr(context.hparams, name) for name in _HPARAMS},
        )

    def __repr__(self) -> str:
        if self.closed:
            return f"<Model {self._name!r}, closed>"
        return f"<Model {self._name!r}, {self._context.ftype_name}, on {', '.join(self._context.devices)}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Model can be neither copied nor sent to another process: threads can share it, and another process makes"
            " its own from the same name"
        )

    # ---- what it does

    def transcribe(
        self,
        audio: AudioSource,
        language: str | None = None,
        *,
        sample_rate: float | None = None,
        on_segment: Callable[[Segment], object] | None = None,
        progress: Callable[[int], object] | None = None,
        abort: Callable[[], bool] | None = None,
        options: TranscribeOptions | None = None,
        **keywords: Unpack[OptionFields],
    ) -> Transcript:
        """Recognise the speech in `audio`, of any length.

        Parameters
        ----------
        audio : path, bytes, binary file object or array
            What `whispyx.audio.load` reads: a sound file by path or content, or samples.
        language : str or None
            Short code or English name. None or "auto": detect it (an English-only model takes English).
        sample_rate : float or None
            Samples per second of an array; None means 16000.
        on_segment : callable or None
            Called with each `Segment` as soon as it is final, in order, on the calling thread.
        progress : callable or None
            Called with the percentage done, 0 to 100.
        abort : callable or None
            Asked many times a second; True stops the job. Ctrl-C is heard without it.
        options : TranscribeOptions or None
            All options as one value, instead of `language` and the keywords.
        **keywords
            The fields of `TranscribeOptions`.

        Returns
        -------
        Transcript
            The segments, the language and how they came about. No audio at all gives no segments.

        Raises
        ------
        AudioError
            The audio cannot be read, or a sample is not a finite number.
        ParamsError, LanguageError
            An option is out of range, or the model does not speak the language.
        Aborted
            `abort` returned True; ``partial`` is the `Transcript` so far.
        ComputeError
            The computation failed.
        StateError
            The model is closed.

        Notes
        -----
        An exception raised in a callback stops the job and reaches the caller; it, and a ``KeyboardInterrupt``, carry
        the `Transcript` so far as an attribute ``partial``.
        """
        context = self._open_context()
        if options is None:
            options = TranscribeOptions.from_keywords(language, keywords)
        elif language is not None or keywords:
            raise TypeError("give either options or language and keywords, not both")
        elif not isinstance(options, TranscribeOptions):
            raise TypeError(f"options must be a TranscribeOptions or None, not {type(options).__name__}")
        for name, callback in (("on_segment", on_segment), ("progress", progress), ("abort", abort)):
            check_callable(name, callback)
        options = options.with_threads(self._n_threads)
        params_fields = self._params_fields(options)
        samples = self._engine.load_audio(audio, sample_rate)
        job = Job(self._name, context, options, samples, on_segment)
        if not len(samples):
            return job.transcript(None, complete=True)
        params = self._engine.params(
            **params_fields,
            new_segment_callback=job.found,
            progress_callback=progress,
            abort_callback=abort,
        )
        with self._states.lend() as state:
            return job.run(lambda: self._engine.full(context, state, params, samples))

    def detect_language(
        self, audio: AudioSource, *, sample_rate: float | None = None, offset: float = 0.0, n_threads: int | None = None
    ) -> DetectedLanguage:
        """Tell the language of up to 30 s of `audio`.

        Parameters
        ----------
        audio, sample_rate
            As in `transcribe`.
        offset : float
            Where to listen, in seconds.
        n_threads : int or None
            Threads to compute with; None: those of the model.

        Raises
        ------
        LanguageError
            The model knows English only.
        AudioError
            The audio cannot be read, or there is none.
        """
        context = self._open_context()
        if not context.vocab.is_multilingual:
            raise LanguageError(f"{self._name} knows English only: detect languages with a multilingual model")
        options = TranscribeOptions(offset=offset, n_threads=n_threads).with_threads(self._n_threads)
        samples = self._engine.load_audio(audio, sample_rate)
        if len(samples) <= options.offset * SAMPLE_RATE:
            raise AudioError(
                f"there is no audio to detect a language from: {len(samples) / SAMPLE_RATE:g} s,"
                f" and the offset is {options.offset:g} s"
            )
        assert options.n_threads is not None
        offset_ms = round(options.offset * 1000)
        with self._states.lend() as state:
            best, found = self._engine.detect_language(context, state, samples, options.n_threads, offset_ms)
        ranked = sorted(zip(CODES, map(float, found), strict=False), key=lambda pair: -pair[1])
        return DetectedLanguage(CODES[best], float(found[best]), dict(ranked))

    # ---- its life

    def close(self) -> None:
        """Free the model. Running jobs end first; every later use raises `StateError`. Closing twice is fine."""
        self._states.close()
        self._context.close()

    def __enter__(self) -> Self:
        self._open_context()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _open_context(self) -> Context:
        if self._states.closed:
            raise StateError("the model is closed: make a new Model")
        if os.getpid() != self._process:
            raise StateError(
                "this Model was made before the process forked, and its threads are not here: make it after the fork,"
                " or start processes with the 'spawn' method"
            )
        return self._context

    # ---- options for the engine

    def _params_fields(self, options: TranscribeOptions) -> dict[str, Any]:
        """Translate the options into names and units of the engine (whisper_full_params)."""
        chosen: dict[str, Any] = {name: getattr(options, name) for name in _SAME_NAME}
        chosen["language"] = self._language(options.language)
        if options.task == "translate":
            self._check_translates()
            chosen["translate"] = True
        if options.initial_prompt:
            chosen["initial_prompt"] = options.initial_prompt
        if options.beam_size > 1:
            chosen.update(strategy="beam_search", beam_size=options.beam_size)
        if options.patience is not None:
            chosen["patience"] = options.patience
        if options.suppress_regex:
            chosen.update(suppress_regex=options.suppress_regex, suppress_regex_search=True)
        if not options.condition_on_previous_text:
            chosen["n_max_text_ctx"] = 0
        if not options.timestamps:
            chosen["no_timestamps"] = True
        chosen["offset_ms"] = round(options.offset * 1000)
        if options.duration is not None:
            chosen["duration_ms"] = max(1, round(options.duration * 1000))  # 0 would mean: to the end
        for name in ("length_penalty", "max_tokens", "audio_ctx", "n_threads"):
            if getattr(options, name) is not None:
                chosen[name] = getattr(options, name)
        return chosen

    def _language(self, language: str | None) -> str:
        vocab = self._context.vocab
        if language is None:
            return "auto" if vocab.is_multilingual else "en"
        if not vocab.is_multilingual and language != "en":
            raise LanguageError(f"{self._name} knows English only, not {LANGUAGES[language].title()}")
        if lang_id(language) >= vocab.n_languages:
            raise LanguageError(
                f"{self._name} knows {vocab.n_languages} languages; {LANGUAGES[language].title()} is not among them"
            )
        return language

    def _check_translates(self) -> None:
        if not self._context.vocab.is_multilingual:
            raise ParamsError(f"{self._name} knows English only: translate with a multilingual model")
        hparams = self._context.hparams
        if hparams.n_text_layer == 4 and hparams.n_audio_layer == 32:
            logger.warning("%s is a turbo model, which was not trained to translate", self._name)


def transcribe(
    audio: AudioSource,
    model: ModelSource | Model = DEFAULT_MODEL,
    language: str | None = None,
    *,
    backend: Selection = None,
    encoder: EncoderLike | None = None,
    compute: Compute | None = None,
    **keywords: Any,
) -> Transcript:
    """Load a model, recognise the speech in `audio` and free the model again.

    For more than one piece of audio make a `Model` and keep it.

    Parameters
    ----------
    audio
        As in `Model.transcribe`.
    model : Model, str, os.PathLike, bytes or binary file object
        A `Model` (which stays open), or what `Model` takes.
    language, backend, encoder, compute
        As in `Model.transcribe` and `Model`.
    **keywords
        Further arguments of `Model.transcribe`.

    Returns
    -------
    Transcript

    Raises
    ------
    WhispyxError
        As `Model` and `Model.transcribe`.
    """
    if isinstance(model, Model):
        for name, value in (("backend", backend), ("encoder", encoder), ("compute", compute)):
            if value is not None:
                raise ParamsError(f"the model given has its {name} already: leave {name} out")
        return model.transcribe(audio, language, **keywords)
    with Model(model, backend, encoder=encoder, compute=compute) as opened:
        return opened.transcribe(audio, language, **keywords)
