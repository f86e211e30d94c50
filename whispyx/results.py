"""What a transcription gives back: frozen records that hold copies, never a view into the engine.

Times are seconds from the start of the audio, as floats, and never lie beyond its end. Text is whole UTF-8: a character
whose bytes the model spread over several tokens or segments comes out in one piece.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, overload

from .fallback import Fallback
from .options import TranscribeOptions

__all__ = ["DetectedLanguage", "Devices", "ModelInfo", "Segment", "Timings", "Token", "Transcript"]


def _plain(value: float | None) -> float | None:
    """Return `value`, or None where JSON has no number for it (infinity, not a number)."""
    return value if value is None or math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Token:
    """One unit of text the model chose.

    Attributes
    ----------
    id : int
        Index in the model's vocabulary.
    text : str
        Its text. A character spread over several tokens stands at the token that completes it; bytes of no character
        stand nowhere.
    data : bytes
        The bytes of the vocabulary entry, as they are.
    probability, logprob : float
        Probability of the token and its natural logarithm.
    start, end : float or None
        Seconds; None when no word times were asked for.
    special : bool
        A time or control token: it is no part of the segment's text.
    """

    id: int
    text: str
    data: bytes
    probability: float
    logprob: float
    start: float | None = None
    end: float | None = None
    special: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the token as plain values for JSON (without the raw bytes)."""
        return {
            "id": self.id,
            "text": self.text,
            "probability": _plain(self.probability),
            "logprob": _plain(self.logprob),
            "start": self.start,
            "end": self.end,
            "special": self.special,
        }


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech with its text.

    Attributes
    ----------
    id : int
        Position in the transcript, from 0.
    start, end : float
        Seconds, 0 <= start <= end <= duration of the audio.
    text : str
        The text as the model wrote it, usually with a leading space; joining the texts of all segments gives the whole.
    tokens : tuple of Token
        Every token, the special ones included.
    avg_logprob : float or None
        Average log probability of the tokens.
    no_speech_prob : float or None
        Probability that the window holds no speech; None when unknown.
    temperature : float
        The sampling temperature that gave this text.
    speaker_turn_next : bool
        The model heard another speaker begin after this segment (only models trained for it).
    no_speech : bool
        Invented text: the model takes the window for silence (`no_speech_prob` above the job's `no_speech_thold`), and
        the sound is as steady as silence, hum or hiss. Left out of the transcript's text, of plain text and subtitles.
    """

    id: int
    start: float
    end: float
    text: str
    tokens: tuple[Token, ...] = ()
    avg_logprob: float | None = None
    no_speech_prob: float | None = None
    temperature: float = 0.0
    speaker_turn_next: bool = False
    no_speech: bool = False

    @property
    def compression_ratio(self) -> float:
        """Length of the text in UTF-8 over its length under zlib; above about 2.4 the text repeats itself."""
        data = self.text.encode("utf-8", "surrogatepass")
        return len(data) / len(zlib.compress(data)) if data else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the segment as plain values for JSON."""
        return {
            "id": self.id,
            "start": self.start,
            "end": self.end,
            "text": self.text,
            "avg_logprob": _plain(self.avg_logprob),
            "no_speech_prob": _plain(self.no_speech_prob),
            "temperature": self.temperature,
            "compression_ratio": round(self.compression_ratio, 4),
            "speaker_turn_next": self.speaker_turn_next,
            "no_speech": self.no_speech,
            "tokens": [token.to_dict() for token in self.tokens],
        }


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of one transcription went, in milliseconds, and how often each stage ran.

    `load_ms` is the time the model took to load; it is no part of `total_ms`, the wall time of this call without the
    reading of the audio file.
    """

    load_ms: float = 0.0
    mel_ms: float = 0.0
    encode_ms: float = 0.0
    cross_ms: float = 0.0
    prompt_ms: float = 0.0
    decode_ms: float = 0.0
    batchd_ms: float = 0.0
    sample_ms: float = 0.0
    total_ms: float = 0.0
    n_encode: int = 0
    n_prompt: int = 0
    n_decode: int = 0
    n_batchd: int = 0
    n_sample: int = 0
    n_fail_p: int = 0
    n_fail_h: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the timings as plain values for JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Transcript:
    """The result of one transcription; iterating gives its segments.

    Attributes
    ----------
    segments : tuple of Segment
        In time order; empty when no speech was found.
    language : str or None
        Short code of the language, given or detected; None when there was no audio to detect it from.
    language_probability : float or None
        Probability of the detected language; None when the language was given.
    duration : float
        Seconds of audio.
    model : str
        Name or path of the model, as it was asked for.
    devices : tuple of str
        Devices that computed, best first.
    compute : str
        Precision of the computation: "f32", "bf16", "mixed" or "int8" with whispyx's own kernels, "exact" without.
    timings : Timings
        Where the time went.
    options : TranscribeOptions
        The options as used.
    complete : bool
        False when the job was stopped before its end.
    """

    segments: tuple[Segment, ...] = ()
    language: str | None = None
    language_probability: float | None = None
    duration: float = 0.0
    model: str = ""
    devices: tuple[str, ...] = ()
    compute: str = "exact"
    timings: Timings = field(default_factory=Timings)
    options: TranscribeOptions = field(default_factory=TranscribeOptions)
    complete: bool = True

    @property
    def text(self) -> str:
        """The whole text, without blanks at its ends, and without segments that are no speech."""
        return "".join(segment.text for segment in self.segments if not segment.no_speech).strip()

    @property
    def speed(self) -> float | None:
        """Seconds of audio per second of computing; None when nothing was computed."""
        seconds = self.timings.total_ms / 1000.0
        return self.duration / seconds if seconds > 0 else None

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def __len__(self) -> int:
        return len(self.segments)

    def __bool__(self) -> bool:
        return True  # an empty transcript is a result too

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Segment, ...]: ...
    def __getitem__(self, index: int | slice) -> Segment | tuple[Segment, ...]:
        return self.segments[index]

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Return the transcript as plain values, all of which JSON can hold."""
        return {
            "text": self.text,
            "language": self.language,
            "language_probability": _plain(self.language_probability),
            "duration": self.duration,
            "complete": self.complete,
            "model": self.model,
            "devices": list(self.devices),
            "compute": self.compute,
            "options": self.options.to_dict(),
            "timings": self.timings.to_dict(),
            "segments": [segment.to_dict() for segment in self.segments],
        }


@dataclass(frozen=True, slots=True)
class DetectedLanguage:
    """The language of a piece of speech.

    Attributes
    ----------
    language : str
        Short code of the most probable language.
    probability : float
        Its probability.
    probabilities : dict of str to float
        Every language the model knows, most probable first; they sum to 1.
    """

    language: str
    probability: float
    probabilities: dict[str, float]


class Devices(tuple[str, ...]):
    """Names of the devices that a model computes on, best first, the CPU last.

    Attributes
    ----------
    fallbacks : tuple of Fallback
        What comes first by the default order but is not used, and why.
    placement : dict
        What ran where: stage -> device -> ggml operation -> how many; filled by the first job, and empty where the CPU
        computes alone.
    """

    fallbacks: tuple[Fallback, ...] = ()
    placement: Mapping[str, Mapping[str, Mapping[str, int]]] = MappingProxyType({})

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        fallbacks: tuple[Fallback, ...],
        placement: Mapping[str, Mapping[str, Mapping[str, int]]],
    ) -> Devices:
        """Make one; it does not change afterwards."""
        self = cls(names)
        self.fallbacks = fallbacks
        self.placement = MappingProxyType(dict(placement))
        return self


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is.

    Attributes
    ----------
    name : str
        Name or path as it was asked for.
    path : str or None
        The file it came from.
    type : str
        Size class: "tiny", "base", "small", "medium", "large".
    ftype : str
        Storage type of the weights, such as "f16" or "q5_1".
    multilingual : bool
        Whether it knows other languages than English.
    languages : tuple of str
        Short codes of the languages it knows.
    weight_bytes : int
        Memory of the weights, with what is used where it lies in the model's file.
    load_ms : float
        Time the loading took.
    devices : Devices
        Names of the devices it computes on, best first; ``devices.fallbacks`` tells what became of others.
    flash_attn : bool
        Whether attention is computed by the fused kernel.
    compute : str
        Precision of the computation: "f32", "bf16", "mixed" or "int8" with whispyx's own kernels, "exact" without.
    kernels : str or None
        The library of kernels that computes ("avx512-bf16"); None: ggml's operations.
    encoder : str or None
        What computes the encoder from outside; None: the model itself.
    n_vocab ... n_mels : int
        The sizes in the model's header, under their usual names.
    """

    name: str
    path: str | None
    type: str
    ftype: str
    multilingual: bool
    languages: tuple[str, ...]
    weight_bytes: int
    load_ms: float
    devices: Devices
    flash_attn: bool
    compute: str
    kernels: str | None
    encoder: str | None
    n_vocab: int
    n_audio_ctx: int
    n_audio_state: int
    n_audio_head: int
    n_audio_layer: int
    n_text_ctx: int
    n_text_state: int
    n_text_head: int
    n_text_layer: int
    n_mels: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values for JSON."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {**plain, "fallbacks": [str(fallback) for fallback in self.devices.fallbacks]}
