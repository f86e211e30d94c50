"""The vocabulary: token bytes as stored in the model file, and the ids of the special tokens.

Ids of special tokens follow whisper.cpp (`whisper_vocab` and the loader's id shift): base values for English-only
models, eot and sot one higher for multilingual ones, the rest shifted by the number of languages above 98.
"""

from whispyx._core.hparams cimport HParams

from whispyx.errors import ModelFormatError, ParamsError
from whispyx.languages import CODES

N_TIMESTAMPS = 1501     # 0.00 s to 30.00 s in steps of 20 ms
SPECIAL = ("eot", "sot", "translate", "transcribe", "solm", "prev", "nosp", "not", "beg")
MAX_TOKEN_BYTES = 4096   # longest stored token of the published vocabularies: 66 bytes


def standard_special(bint multilingual, int n_languages) -> dict[str, int]:
    """Return the ids of the special tokens by their names, as whisper.cpp's loader makes them."""
    shift = n_languages - 98 if multilingual else 0
    ids = [50256 + multilingual, 50257 + multilingual, *[number + shift for number in range(50357, 50364)]]
    return dict(zip(SPECIAL, ids))


def is_control(bytes text) -> bool:
    """Whether a text is written as those of special tokens are."""
    return text.startswith(b"<|") and text.endswith(b"|>")


cdef class Vocab:
    """Token texts and special ids of one model.

    Parameters
    ----------
    hparams
        The model's settings.
    stored
        Bytes of token 0, 1, …; the others follow from what they are.
    special
        Ids by the names in SPECIAL; None: whisper.cpp's for this number of tokens.
    hidden
        Ids behind the timestamps that are no text, besides those whose bytes look like a special token's.

    Raises
    ------
    ModelFormatError
        More tokens are stored than there are, or the special tokens are not where a Whisper model can have them.
    """

    def __init__(self, HParams hparams not None, stored: list[bytes], special: dict[str, int] | None = None,
                 hidden=()) -> None:
        if self.n_vocab:
            raise TypeError("the vocabulary is made already")
        self.n_vocab = hparams.n_vocab
        self.n_languages = hparams.n_languages
        self.is_multilingual = hparams.is_multilingual
        self.n_stored = len(stored)

        if special is not None:
            self._check_specials(special)
        else:
            special = standard_special(self.is_multilingual, self.n_languages)
        (self.eot, self.sot, self.translate, self.transcribe, self.solm, self.prev, self.nosp, self.not_,
         self.beg) = [special[name] for name in SPECIAL]
        self.end = min(self.n_vocab, self.beg + <int>N_TIMESTAMPS)
        if self.n_stored > self.n_vocab:
            raise ModelFormatError(f"the file stores {self.n_stored} tokens, more than n_vocab {self.n_vocab}")
        self._text = list(stored)
        hidden = frozenset(hidden)
        kinds = bytearray(self.n_vocab - self.end)
        for i in range(self.end, self.n_stored):
            if self._text[i]:
                kinds[i - self.end] = CONTROL if i in hidden or is_control(self._text[i]) else WORD
        self._surplus = bytes(kinds)
        self.surplus = self._surplus
        self.words = frozenset([self.end + i for i, kind in enumerate(kinds) if kind == WORD])

    cdef bint is_text(self, int token) noexcept nogil:
        return token < self.eot or (token >= self.end and self.surplus[token - self.end] == WORD)

    cdef bint is_time(self, int token) noexcept nogil:
        return self.beg <= token < self.end

    cdef int _check_specials(self, dict special) except -1:
        """Text is before eot, timestamps are from beg on, languages follow sot."""
        if set(special) != set(SPECIAL) or any([not 0 <= n < self.n_vocab for n in special.values()]):
            raise ModelFormatError(f"the special tokens {special} are not those of Whisper, or not in the vocabulary")
        if len(set(special.values())) != len(special) or special["beg"] != max(special.values()):
            raise ModelFormatError(f"the special tokens {special} overlap, or do not end with the first timestamp")
        if self.is_multilingual and special["sot"] + self.n_languages >= self.n_vocab:
            raise ModelFormatError(
                f"{self.n_languages} languages behind token {special['sot']} are not in the vocabulary")
        return 0

    def _special_text(self, int token) -> bytes:
        named = {
            self.eot: b"[_EOT_]", self.sot: b"[_SOT_]", self.translate: b"[_TRANSLATE_]",
            self.transcribe: b"[_TRANSCRIBE_]", self.solm: b"[_SOLM_]", self.prev: b"[_PREV_]",
            self.nosp: b"[_NOSP_]", self.not_: b"[_NOT_]", self.beg: b"[_BEG_]",
        }
        if token in named:
            return named[token]
        if self.beg < token < self.end:
            return b"[_TT_%d]" % (token - self.beg)
        if self.sot < token <= self.sot + self.n_languages:
            return b"[_LANG_%s]" % CODES[token - self.sot - 1].encode()
        return b"[_extra_token_%d]" % token

    cdef bytes text(self, int token):
        if not 0 <= token < self.n_vocab:
            raise ParamsError(f"token {token} is outside the vocabulary (0 to {self.n_vocab - 1})")
        return self._text[token] if token < self.n_stored else self._special_text(token)

    cdef int find(self, bytes text) except -2:
        """Return the text token with exactly these bytes, -1 when there is none."""
        cdef int i
        if self._id_by_text is None:    # made for the first prompt: most jobs have none
            # When two ids share a text the last one wins, as in whisper.cpp. Only text tokens can be looked up.
            self._id_by_text = {self._text[i]: i for i in range(min(self.n_stored, self.eot)) if self._text[i]}
        return self._id_by_text.get(text, -1)

    def token_bytes(self, int token) -> bytes:
        """Return a token's bytes. A token may hold part of a UTF-8 character.

        Raises
        ------
        ParamsError
            The id is outside the vocabulary.
        """
        return self.text(token)

    def token_id(self, bytes text) -> int | None:
        """Return the text token with exactly these bytes, or None."""
        token = self.find(text)
        if token < 0:
            return next((word for word in sorted(self.words) if self._text[word] == text), None)
        return token

    @property
    def unused(self) -> list[int]:
        """Ids behind the timestamps that only fill the embedding up."""
        return [self.end + i for i, kind in enumerate(self._surplus) if kind == UNUSED]

    @property
    def n_used(self) -> int:
        """How many ids there are, without those at the end that only fill the embedding up."""
        return self.end + len(self._surplus.rstrip(bytes([UNUSED])))

    def lang_token(self, int lang_id) -> int:
        """Return the token of a language id.

        Raises
        ------
        ParamsError
            The model has no such language.
        """
        if not 0 <= lang_id < self.n_languages:
            raise ParamsError(f"language id {lang_id} is outside the model's languages (0 to {self.n_languages - 1})")
        return self.sot + 1 + lang_id

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text; see `whispyx._core.tokenize`."""
        from whispyx._core.tokenize import tokenize

        return tokenize(self, text)
