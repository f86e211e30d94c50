"""Whisper stage by stage: for those who build a decoder of their own, or measure and compare the stages.

    runner = Runner("base.en")
    runner.set_audio("speech.wav")
    runner.encode()
    logits = runner.prefill(runner.prompt())

docs/runner.md tells how the stages fit together and has a greedy decoder and a beam search to start from.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from ._benchmark import StageTimes, log_softmax, measure
from .errors import AudioError, LanguageError, ParamsError, StateError
from .languages import CODES, lang_id
from .model import Model
from .options import check_count, check_language, check_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from ._core.kernels import Compute
    from ._core.results import Timings as CoreTimings
    from ._engine import ModelSource, Selection
    from .audio import AudioSource
    from .encoders import EncoderLike

__all__ = ["Runner", "StageTimes", "log_softmax"]

PAD_FRAMES: Final = 3000
"""Mel frames of the silence behind a recording: 30 s."""
BUCKET_FRAMES: Final = 100
"""Short windows are rounded up to a multiple of this, so that few sizes of graphs occur."""
STEPS_LEFT: Final = 8
"""Positions of the text context that the default step limit leaves for the prompt."""


class Runner:
    """A model and one working memory, with every stage as a call of its own.

    The stages, in order: `set_audio` or `set_mel`, `encode` (or `set_encoder_output`), `prefill`, `step`. Up to eight
    sequences share the encoded window; they are numbered from 0. A runner is used by one thread at a time; several
    runners may share one `Model`.

    Parameters
    ----------
    model : Model, str, os.PathLike, bytes or binary file object
        A model that is open already, and then stays open when the runner closes; or what `Model` takes.
    backend, flash_attn, encoder, compute
        As for `Model`; only where the runner opens the model itself.
    language : str or None
        Language of the prompt, by code or English name. None: what `detect_language` finds in the window.
    translate, timestamps : bool
        What else the prompt asks for.
    no_pad : bool
        Encode no more than the audio needs instead of 30 s: faster for short clips, and other numbers come out.
    max_decode_steps, n_threads : int or None
        Limit of `benchmark` and a hint for decoders, None: the text context without 8. Threads, None: at most 4.

    Raises
    ------
    ModelError, BackendError, ComputeMemoryError
        The model cannot be opened, or there is no memory for its states.
    ParamsError, LanguageError
        An option is out of range, or the model does not speak the language.
    """

    def __init__(
        self,
        model: Model | ModelSource,
        backend: Selection = None,
        *,
        language: str | None = None,
        translate: bool = False,
        timestamps: bool = False,
        no_pad: bool = False,
        max_decode_steps: int | None = None,
        n_threads: int | None = None,
        flash_attn: bool = True,
        encoder: EncoderLike | None = None,
        compute: Compute | None = None,
    ) -> None:
        from ._core import steps

        for name, value in (("translate", translate), ("timestamps", timestamps), ("no_pad", no_pad)):
            if not isinstance(value, bool):
                raise ParamsError(f"{name} must be True or False; got {value!r}")
        self._owned = None
        if not isinstance(model, Model):
            options = {"n_threads": n_threads, "flash_attn": flash_attn, "encoder": encoder, "compute": compute}
            self._owned = Model(model, backend, max_jobs=1, **options)  # type: ignore[arg-type]
        elif backend is not None or encoder is not None or compute is not None:
            raise ParamsError("backend, encoder and compute belong to the model, and this one is open already")
        self._model: Model = self._owned or model  # type: ignore[assignment]
        try:
            self._context = self._model._open_context()
            self._steps, self._vocab = steps, self._context.vocab
            self.n_threads = self._model._n_threads if n_threads is None else check_threads(n_threads)
            self._language = self._known(language)
            self.translate, self.timestamps, self.no_pad = translate, timestamps, no_pad
            n_text_ctx = self._context.hparams.n_text_ctx
            steps_left = n_text_ctx - STEPS_LEFT
            self.max_decode_steps = (
                steps_left if max_decode_steps is None else check_count("max_decode_steps", max_decode_steps, 1)
            )
            if self.max_decode_steps > n_text_ctx:
                raise ParamsError(f"max_decode_steps is {max_decode_steps}; the text context has {n_text_ctx}")
            self._state = self._context.new_state()
        except BaseException:
            if self._owned is not None:
                self._owned.close()
            raise
        self._found: str | None = None
        self._suppressed: dict[bool, NDArray[np.int64]] = {}

    # ---- what there is

    @property
    def n_mels(self) -> int:
        """Bands of the spectrogram."""
        return self._context.hparams.n_mels

    @property
    def n_vocab(self) -> int:
        """Size of the vocabulary, and of a row of logits."""
        return self._vocab.n_vocab

    @property
    def n_text_ctx(self) -> int:
        """Positions of a sequence."""
        return self._context.hparams.n_text_ctx

    @property
    def n_audio_ctx(self) -> int:
        """Positions of a whole window: 1500, of 20 ms each."""
        return self._context.hparams.n_audio_ctx

    @property
    def eot(self) -> int:
        """The token that ends a transcript. Smaller ids are text."""
        return self._vocab.eot

    @property
    def timestamp_begin(self) -> int:
        """The timestamp 0.00; each id above it is 0.02 s later."""
        return self._vocab.beg

    @property
    def encoder_device(self) -> str:
        """Name of the device that computes the encoder, or of what does it from outside."""
        return self._model.info.encoder or self._context.devices[0]

    @property
    def decode_device(self) -> str:
        """Name of the device that computes prompt and steps."""
        return self._context.devices[0]

    # ---- sound

    def mel(self, audio: AudioSource, *, sample_rate: float | None = None) -> NDArray[np.float32]:
        """Return the log-mel spectrogram of `audio`, float32 (n_mels, n_frames): a frame is 10 ms.

        `audio` and `sample_rate` are what `whispyx.audio.load` takes. 30 s of silence follow the sound, unless `no_pad`
        is set.
        """
        from ._core.mel import log_mel
        from .audio import load

        samples = load(audio, sample_rate=sample_rate)
        if not len(samples):
            raise AudioError("there is no audio")
        found = log_mel(samples, self._context.filters.array(), self.n_threads)
        return np.ascontiguousarray(found[:, :-PAD_FRAMES]) if self.no_pad else found

    def set_mel(self, mel: NDArray[np.float32]) -> None:
        """Take a spectrogram, float32 (n_mels, n_frames), for the next `encode`.

        Raises
        ------
        ParamsError, AudioError
            Another shape, or a value that is not finite.
        """
        self._state.set_mel(mel)

    def set_audio(self, audio: AudioSource, *, sample_rate: float | None = None) -> int:
        """Compute the spectrogram of `audio` and take it. Returns its frames, without the silence behind them."""
        from .audio import load

        samples = load(audio, sample_rate=sample_rate)
        if not len(samples):
            raise AudioError("there is no audio")
        self._state.pcm_to_mel(samples, self.n_threads)
        return self.n_frames

    @property
    def n_frames(self) -> int:
        """Frames of the spectrogram that was taken last, without the silence behind the sound; 0 without one."""
        return self._state.n_len

    # ---- encoder

    def encode(self, offset: int = 0, n_frames: int | None = None) -> None:
        """Encode the window that starts at frame `offset`, and fill the cross-attention cache.

        All sequences are forgotten: what they hold belongs to another window.

        Parameters
        ----------
        offset : int
            Its first mel frame.
        n_frames : int or None
            Its length, 2 to 3000; an odd one is rounded up. None: 3000, or with `no_pad` what is left of the sound,
            rounded up to a multiple of 100.

        Raises
        ------
        StateError
            There is no spectrogram.
        ParamsError
            `offset` or `n_frames` is out of range.
        """
        start = check_count("offset", offset, 0)
        if n_frames is None:
            n_frames = 2 * self.n_audio_ctx
            if self.no_pad:
                left = max(1, self.n_frames - start)
                n_frames = min(n_frames, -(-left // BUCKET_FRAMES) * BUCKET_FRAMES)
        elif check_count("n_frames", n_frames, 2) > 2 * self.n_audio_ctx:
            raise ParamsError(f"n_frames is {n_frames}; a window has {2 * self.n_audio_ctx} at most")
        self.clear()
        self._state.encode(start, self.n_threads, min(self.n_audio_ctx, (n_frames + 1) // 2))

    def encoder_output(self) -> NDArray[np.float32]:
        """Return the encoder's output for the window, float32 (n_positions, n_state), as a copy."""
        return self._steps.encoder_output(self._state)

    def set_encoder_output(self, output: NDArray[np.float32]) -> None:
        """Take an encoder output, float32 (n_positions, n_state), in place of `encode`: only the cross-attention
        cache is computed. One encoder run can so serve many decoders, and encoders of other programs can be used.

        All sequences are forgotten.

        Raises
        ------
        ParamsError
            Another shape or dtype, or a value that is not finite.
        """
        self.clear()
        self._steps.set_encoder_output(self._state, output, self.n_threads)

    def cross_kv(self, layer: int) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
        """Return cross-attention keys and values of a decoder layer, float16 (n_positions, n_state) each, as copies.

        Keys carry the factor d**-0.25 of the attention, d being the size of a head.
        """
        number = check_count("layer", layer, 0)
        return self._state.tensor(f"cross_k.{number}"), self._state.tensor(f"cross_v.{number}")

    # ---- decoder

    @property
    def n_sequences(self) -> int:
        """How many sequences there is room for."""
        return self._state.n_decoders

    def reserve(self, n_sequences: int) -> None:
        """Make room for sequences, up to 8. When the cache has to grow, all sequences are forgotten."""
        self._steps.reserve(self._state, check_count("n_sequences", n_sequences, 1))

    def prefill(self, tokens: Iterable[int], sequence: int = 0, *, all_logits: bool = False) -> NDArray[np.float32]:
        """Run a prompt through the decoder, behind what the sequence holds.

        Returns
        -------
        numpy.ndarray
            Logits behind the last token, float32 (n_vocab,); with `all_logits` behind each, (n_tokens, n_vocab).

        Raises
        ------
        ParamsError
            A token outside the vocabulary, no room for them, or a sequence that there is not.
        StateError
            Nothing was encoded.
        """
        rows = self._steps.prefill(self._state, tokens, sequence, self.n_threads, bool(all_logits))
        return rows if all_logits else np.ascontiguousarray(rows[-1])

    def step(self, tokens: int | Sequence[int], sequences: int | Sequence[int] = 0) -> NDArray[np.float32]:
        """Decode one more token of one sequence, or of each of several in one batch.

        Returns
        -------
        numpy.ndarray
            Logits behind the token, float32 (n_vocab,) for one number, (n_sequences, n_vocab) for a list.

        Raises
        ------
        ParamsError, StateError
            As for `prefill`; and a sequence that is named twice.
        """
        if isinstance(tokens, Iterable):
            where = list(sequences) if isinstance(sequences, Iterable) else [sequences]
            return self._steps.step(self._state, list(tokens), where, self.n_threads)
        rows = self._steps.step(self._state, [tokens], [operator.index(sequences)], self.n_threads)  # type: ignore
        row: NDArray[np.float32] = rows[0]
        return row

    def copy_sequence(self, source: int, dest: int) -> None:
        """Let `dest` hold what `source` holds; it costs next to nothing, since the cache is shared."""
        self._steps.seq_cp(self._state, source, dest)

    def drop(self, sequence: int, position: int = 0) -> None:
        """Forget the tokens of a sequence from `position` on."""
        self._steps.seq_rm(self._state, sequence, position)

    def clear(self) -> None:
        """Forget all sequences."""
        for sequence in range(self.n_sequences):
            self.drop(sequence)
        self._found = None

    def length(self, sequence: int = 0) -> int:
        """Return how many tokens a sequence holds."""
        return self._steps.seq_len(self._state, sequence)

    def logits(self) -> NDArray[np.float32]:
        """Return the logits of the last `prefill` or `step` again, float32 (n_rows, n_vocab)."""
        return self._state.logits()

    # ---- tokens

    def _known(self, language: str | None) -> str | None:
        code = check_language(language)
        if code is None:
            return None if self._vocab.is_multilingual else "en"
        number = lang_id(code)
        if number >= (self._vocab.n_languages if self._vocab.is_multilingual else 1):
            raise LanguageError(f"the model does not know {code!r}")
        return code

    def prompt(self, previous: Iterable[int] = (), *, language: str | None = None) -> list[int]:
        """Return the tokens that a window's transcript starts with.

        Parameters
        ----------
        previous : iterable of int
            Text before the window; its last tokens that half of the text context has room for are taken.
        language : str or None
            Instead of the runner's own. If that is None too, the window must be encoded: it tells.
        """
        from ._core.prompt import task_tokens

        code = self._language if language is None else self._known(language)
        if code is None:
            code = self.detect_language()[0]
        before = [self._checked(token) for token in previous][-(self.n_text_ctx // 2 - 1) :]
        task = task_tokens(self._vocab, lang_id(code), self.translate, not self.timestamps)
        return ([self._vocab.prev, *before] if before else []) + task

    def detect_language(self) -> tuple[str, float]:
        """Return code and probability of the window's language.

        Sequence 0 must be empty, and is again afterwards.

        Raises
        ------
        LanguageError
            The model knows English only.
        StateError
            Nothing was encoded, or sequence 0 is not empty.
        """
        if not self._vocab.is_multilingual:
            raise LanguageError("the model knows English only: there is no language to detect")
        if self.length(0):
            raise StateError("the language is told by an empty sequence 0: call clear() or detect before prefill")
        rows = self._steps.prefill(self._state, [self._vocab.sot], 0, self.n_threads)
        self.drop(0)
        first = self._vocab.sot + 1
        found = np.exp(log_softmax(rows[-1, first : first + self._vocab.n_languages]))
        best = int(found.argmax())
        return CODES[best], float(found[best])

    def tokenize(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        return self._vocab.tokenize(text)

    def text(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens; special tokens and timestamps have none."""
        ids, vocab = [self._checked(token) for token in tokens], self._vocab
        data = b"".join(vocab.token_bytes(token) for token in ids if token < vocab.eot or token in vocab.words)
        return data.decode("utf-8", errors="replace")

    def _checked(self, token: int) -> int:
        number = operator.index(token)
        if not 0 <= number < self.n_vocab:
            raise ParamsError(f"token {number} is outside the vocabulary (0 to {self.n_vocab - 1})")
        return number

    def suppressed(self, *, first: bool = False) -> NDArray[np.int64]:
        """Return the ids that a transcript never has, in order; with `first` also those it does not begin with.

        Never: symbols that stand for no speech, and every special token but the end of the transcript; timestamps too,
        unless `timestamps` is set. Not at the beginning: a blank, and the end.
        """
        from ._core.logits import non_speech_tokens

        if first not in self._suppressed:
            vocab = self._vocab
            last = vocab.end if not self.timestamps else vocab.beg
            ids = {*non_speech_tokens(vocab), *range(vocab.eot + 1, last), *vocab.unused}
            if first:
                blank = vocab.token_id(b" ")
                ids |= {vocab.eot} | (set() if blank is None else {blank})
            self._suppressed[first] = np.array(sorted(ids), dtype=np.int64)
        return np.array(self._suppressed[first])

    def suppress(self, logits: NDArray[np.float32], *, first: bool = False) -> NDArray[np.float32]:
        """Set the suppressed logits, float32 (…, n_vocab), to minus infinity in place, and return the array."""
        if not isinstance(logits, np.ndarray) or logits.ndim < 1 or logits.shape[-1] != self.n_vocab:
            raise ParamsError(f"logits must be an array (…, {self.n_vocab}), not {getattr(logits, 'shape', logits)!r}")
        logits[..., self.suppressed(first=first)] = -np.inf
        return logits

    # ---- measuring

    def stage_clock(self) -> CoreTimings:
        """Return the times that the stages have taken so far in all, `encode_ms`, `cross_ms` and others."""
        return self._steps.timings(self._state)

    def benchmark(
        self,
        audio: AudioSource | None = None,
        *,
        encoder_output: NDArray[np.float32] | None = None,
        prefill_logits: NDArray[np.float32] | None = None,
        prompt: Sequence[int] | None = None,
        n_steps: int = 32,
        stop_at_end: bool = False,
        warm_up: bool = True,
    ) -> StageTimes:
        """Measure the stages of one window and greedy decoding behind it.

        Where it starts is chosen by what is given, so that two devices can be compared from the same inputs on: `audio`
        (all stages), `encoder_output` (cross-attention on), nothing (the window that is encoded: prompt on), or
        `prefill_logits` (sequence 0 holds the prompt: steps only).

        Parameters
        ----------
        audio : path, bytes, file object, array or None
            The sound; its first window is taken.
        encoder_output : numpy.ndarray or None
            float32 (n_positions, n_state).
        prefill_logits : numpy.ndarray or None
            float32 (n_vocab,), logits behind the prompt that sequence 0 holds. It holds that alone afterwards too.
        prompt : sequence of int or None
            What to prefill; None: `prompt()`.
        n_steps : int
            How many tokens to decode, at most `max_decode_steps` and what the text context has room for.
        stop_at_end : bool
            Whether to stop at the end of the transcript instead of going on with other tokens.
        warm_up : bool
            Whether to run everything once before measuring.
        """
        given = {"audio": audio, "encoder_output": encoder_output, "prefill_logits": prefill_logits}
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1:
            raise ParamsError(f"one starting point is enough; {' and '.join(named)} were given")
        samples = None
        if audio is not None:
            from .audio import load

            samples = load(audio)
        wanted = check_count("n_steps", n_steps, 0)
        for _ in range(2 if warm_up else 1):
            times = measure(self, samples, encoder_output, prefill_logits, prompt, wanted, stop_at_end)
        return times

    # ---- its life

    def close(self) -> None:
        """Free the working memory, and the model if the runner opened it. Closing twice is fine."""
        self._state.close()
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Runner of {self._model!r}{', closed' if self._state.closed else ''}>"
