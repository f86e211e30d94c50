"""Whether a model that was written still hears the same: two models on one recording, by text and by probability."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from whispyx.constants import SAMPLE_RATE
from whispyx.errors import AudioError, ComputeError, ParamsError

if TYPE_CHECKING:
    import numpy.typing as npt

    from whispyx._core.kernels import Compute
    from whispyx._engine import ModelSource
    from whispyx.audio import AudioSource, Samples
    from whispyx.model import Model
    from whispyx.results import Transcript
    from whispyx.runner import Runner

__all__ = ["MAX_WINDOWS", "Verification", "WordChange", "verify"]

MAX_WINDOWS: Final = 4
"""Windows of a recording that are compared, of 30 s each: an answer must not take as long as a whole audio book."""

_WINDOW_SECONDS: Final = 30
_FRAMES_PER_SECOND: Final = 100
_LISTED: Final = 10  # places where the words differ
_ROWS: Final = 32  # tokens decoded at once: each comes back with a row of logits as long as the vocabulary

Percent = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class WordChange:
    """A place where the texts differ: the words of either, empty where one has none."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What two models make of one recording.

    Attributes
    ----------
    text_before, text_after : str
        What each of them recognised.
    equal : bool
        Whether these are the same, to the letter.
    n_words, n_words_different : int
        Words of the first text; words that were replaced, left out or put in (case and punctuation count).
    changes : tuple of WordChange
        The first places where they differ, ten at most.
    language_before, language_after : str or None
        Short codes of the language, given or detected by each.
    duration, compared : float
        Seconds of the recording, and how many of them, from its start, were compared.
    n_windows, n_tokens : int
        Windows with text, and tokens of the first model's transcript that both models were asked about.
    mean_difference, rms_difference, largest_difference : float or None
        Of the natural logarithms of these tokens' probabilities, the second model's less the first's: the mean, with
        its sign; the root of the mean square; the largest without its sign. None when there are no tokens.
    perplexity_before, perplexity_after : float or None
        exp of the mean of minus these logarithms: how many tokens a model hesitates between, so to speak. None when
        there are no tokens.
    """

    text_before: str
    text_after: str
    equal: bool
    n_words: int
    n_words_different: int
    changes: tuple[WordChange, ...]
    language_before: str | None
    language_after: str | None
    duration: float
    compared: float
    n_windows: int
    n_tokens: int
    mean_difference: float | None
    rms_difference: float | None
    largest_difference: float | None
    perplexity_before: float | None
    perplexity_after: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return asdict(self)


def verify(
    before: ModelSource | Model,
    after: ModelSource | Model,
    audio: AudioSource,
    language: str | None = None,
    compute: Compute | None = "exact",
    *,
    progress: Percent | None = None,
) -> Verification:
    """Compare two models of one vocabulary on a recording, of which two minutes (`MAX_WINDOWS`) are taken at most.

    Both recognise it, greedily and without second attempts; each window of 30 s by itself, so that a difference in one
    does not spread. Then both tell how probable each token of the first model's text is behind the ones before it
    ("teacher forcing"; from all logits, also those that a transcript never has). That shows
    losses that did not reach the text yet.

    Parameters
    ----------
    before, after : Model, path, model name, bytes or binary file object
        A `Model` stays open; others are opened, one after the other, and closed.
    audio : path, bytes, binary file object or array
        What `whispyx.audio.load` reads.
    language : str or None
        Short code or English name. None: each model detects it; probabilities are asked in that of the first.
    compute : {"auto", "f32", "bf16", "mixed", "int8", "exact"} or None
        As for `Model`, for models that are opened here. Only "exact" computes with the weights as they are in the
        file.
    progress : callable or None
        Called with the percentage done, 0 to 100. An exception in it, and Ctrl-C, stop the comparison.

    Returns
    -------
    Verification

    Raises
    ------
    AudioError
        The audio cannot be read, or there is none.
    ModelError, LanguageError
        A model cannot be opened, or does not speak the language.
    ParamsError
        The models have different vocabularies or windows.
    ComputeError
        A model computes values that are no numbers.
    """
    from whispyx.audio import load

    samples = load(audio)
    if not len(samples):
        raise AudioError("there is no audio to compare models with")
    part = samples[: MAX_WINDOWS * _WINDOW_SECONDS * SAMPLE_RATE]
    with _opened(before, compute) as model:
        first = _transcribe(model, part, language, _span(progress, 0, 25))
        windows = [_Window.of(segment) for segment in first.segments]
        shape, scores_before = _scores(model, part, first.language, windows, _span(progress, 25, 50))
    with _opened(after, compute) as model:
        _check_alike(shape, _shape(model))
        second = _transcribe(model, part, language, _span(progress, 50, 75))
        _, scores_after = _scores(model, part, first.language, windows, _span(progress, 75, 100))
    n_different, changes = _word_changes(first.text.split(), second.text.split())
    gaps = scores_after - scores_before
    found = len(gaps) > 0
    return Verification(
        text_before=first.text,
        text_after=second.text,
        equal=first.text == second.text,
        n_words=len(first.text.split()),
        n_words_different=n_different,
        changes=changes[:_LISTED],
        language_before=first.language,
        language_after=second.language,
        duration=len(samples) / SAMPLE_RATE,
        compared=len(part) / SAMPLE_RATE,
        n_windows=len(windows),
        n_tokens=len(gaps),
        mean_difference=float(gaps.mean()) if found else None,
        rms_difference=math.sqrt(float(np.square(gaps).mean())) if found else None,
        largest_difference=float(np.abs(gaps).max()) if found else None,
        perplexity_before=_perplexity(scores_before),
        perplexity_after=_perplexity(scores_after),
    )


@contextmanager
def _opened(model: ModelSource | Model, compute: Compute | None) -> Iterator[Model]:
    from whispyx.model import Model

    if isinstance(model, Model):
        yield model
        return
    with Model(model, compute=compute, max_jobs=1, max_idle_states=0) as mine:
        yield mine


def _span(progress: Percent | None, low: int, high: int) -> Percent | None:
    """Return a function that reports 0 to 100 as `low` to `high`."""
    if progress is None:
        return None
    return lambda percent: progress(low + (high - low) * percent // 100)


def _transcribe(model: Model, samples: Samples, language: str | None, progress: Percent | None) -> Transcript:
    # Without timestamps every window is 30 s and one segment: the second step finds the same windows again.
    return model.transcribe(
        samples, language, temperature_inc=0.0, condition_on_previous_text=False, timestamps=False, progress=progress
    )


@dataclass(frozen=True, slots=True)
class _Window:
    """A window of the first transcript: its first mel frame, and its tokens, the end of the text included."""

    frame: int
    tokens: tuple[int, ...]

    @classmethod
    def of(cls, segment: Any) -> _Window:
        return cls(round(segment.start * _FRAMES_PER_SECOND), tuple(token.id for token in segment.tokens))


def _shape(model: Model) -> tuple[int, ...]:
    info = model.info
    return _n_tokens(model), info.n_text_ctx, info.n_audio_ctx


def _n_tokens(model: Model) -> int:
    """Those that may be written: rows that only fill the embedding up are not in every format."""
    return model._open_context().vocab.n_used


def _check_alike(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    for what, one, other in zip(("tokens", "text positions", "audio positions"), before, after, strict=True):
        if one != other:
            raise ParamsError(f"these models cannot be compared: one has {one} {what}, the other {other}")


def _scores(
    model: Model, samples: Samples, language: str | None, windows: Sequence[_Window], progress: Percent | None
) -> tuple[tuple[int, ...], npt.NDArray[np.float64]]:
    """Return the model's shape, and the logarithm of the probability of every token of the windows, in order."""
    from whispyx.runner import Runner

    parts: list[npt.NDArray[np.float64]] = []
    with Runner(model, language=language) as runner:
        if windows:
            runner.set_audio(samples)
        for number, window in enumerate(windows):
            runner.encode(window.frame)
            parts += _window_scores(runner, window.tokens, _n_tokens(model))
            if progress is not None:
                progress(100 * (number + 1) // len(windows))
    return _shape(model), np.concatenate(parts) if parts else np.empty(0)


def _window_scores(runner: Runner, tokens: tuple[int, ...], n_used: int) -> Iterator[npt.NDArray[np.float64]]:
    prompt = runner.prompt()
    wanted = np.array(tokens[: runner.n_text_ctx - len(prompt)], dtype=np.int64)
    rows = runner.prefill(prompt)[None]  # what it expects behind the prompt is the first token
    for start in range(0, len(wanted), _ROWS):
        chunk = wanted[start : start + _ROWS]
        behind = runner.prefill(chunk.tolist(), all_logits=True)
        yield _chosen(np.concatenate([rows, behind[:-1]])[:, :n_used], chunk)
        rows = behind[-1:]


def _chosen(logits: npt.NDArray[np.float32], tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    from whispyx.runner import log_softmax

    if not np.isfinite(logits).all():
        raise ComputeError("the model computes values that are no numbers")
    found: npt.NDArray[np.float64] = log_softmax(logits)[np.arange(len(tokens)), tokens]
    return found


def _perplexity(scores: npt.NDArray[np.float64]) -> float | None:
    # Beyond 1e304 a number says no more, and infinity is no JSON.
    return math.exp(min(700.0, -float(scores.mean()))) if len(scores) else None


def _word_changes(before: list[str], after: list[str]) -> tuple[int, tuple[WordChange, ...]]:
    """Return how many words differ, and where."""
    places = [
        (before[a:b], after[c:d])
        for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if kind != "equal"
    ]
    n_different = sum(max(len(one), len(other)) for one, other in places)
    return n_different, tuple(WordChange(" ".join(one), " ".join(other)) for one, other in places)
