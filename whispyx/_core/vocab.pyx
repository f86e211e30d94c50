"""The vocabulary: token bytes as stored in the model file, and the ids of the special tokens.

Ids of special tokens follow whisper.cpp (`whisper_vocab` and the loader's id shift): base values for English-only
models, eot and sot one higher for multilingual ones, the rest shifted by the number of languages above 98.
"""

from whispyx._core.hparams cimport HParams

from whispyx.errors import ModelFormatError, ParamsError
from whispyx.languages import CODES

SPECIAL = ("eot", "sot", "translate", "transcribe", "solm", "prev", "nosp", "not", "beg")
MAX_TOKEN_BYTES = 4096   # longest stored token of the published vocabularies: 66 bytes


cdef class Vocab:
    """Token texts and special ids of one model."""

    def __init__(self, HParams hparams not None, stored: list[bytes], special: dict[str, int] | None = None) -> None:
        cdef int i, shift
        if self.n_vocab:
            raise TypeError("the vocabulary is made already")
        self.n_vocab = hparams.n_vocab
        self.n_languages = hparams.n_languages
        self.is_multilingual = hparams.is_multilingual
        self.n_stored = len(stored)

        self.eot, self.sot = 50256, 50257
        self.translate, self.transcribe, self.solm = 50357, 50358, 50359
        self.prev, self.nosp, self.not_, self.beg = 50360, 50361, 50362, 50363
        if self.is_multilingual:
            shift = self.n_languages - 98
            self.eot += 1
            self.sot += 1
            self.translate += shift
            self.transcribe += shift
            self.solm += shift
            self.prev += shift
            self.nosp += shift
            self.not_ += shift
            self.beg += shift

        if special is not None:
            self._name_specials(special)
        if self.n_stored > self.n_vocab:
            raise ModelFormatError(f"the file stores {self.n_stored} tokens, more than n_vocab {self.n_vocab}")
        self._text = list(stored)
        for i in range(self.n_stored, min(self.n_vocab, self.beg + 1)):
            self._text.append(self._special_text(i))
        for i in range(max(self.n_stored, self.beg + 1), self.n_vocab):
            self._text.append(b"[_TT_%d]" % (i - self.beg))

    cdef int _name_specials(self, dict special) except -1:
        """Take the ids that a file names. Text is before eot, timestamps are from beg on, languages follow sot."""
        if set(special) != set(SPECIAL) or any([not 0 <= n < self.n_vocab for n in special.values()]):
            raise ModelFormatError(f"the special tokens {special} are not those of Whisper, or not in the vocabulary")
        (self.eot, self.sot, self.translate, self.transcribe, self.solm, self.prev, self.nosp, self.not_,
         self.beg) = [special[name] for name in SPECIAL]
        if len(set(special.values())) != len(special) or self.beg != max(special.values()):
            raise ModelFormatError(f"the special tokens {special} overlap, or do not end with the first timestamp")
        if self.is_multilingual and self.sot + self.n_languages >= self.n_vocab:
            raise ModelFormatError(f"{self.n_languages} languages behind token {self.sot} are not in the vocabulary")
        return 0

    def _special_text(self, int token) -> bytes:
        named = {
            self.eot: b"[_EOT_]", self.sot: b"[_SOT_]", self.translate: b"[_TRANSLATE_]",
            self.transcribe: b"[_TRANSCRIBE_]", self.solm: b"[_SOLM_]", self.prev: b"[_PREV_]",
            self.nosp: b"[_NOSP_]", self.not_: b"[_NOT_]", self.beg: b"[_BEG_]",
        }
        if token in named:
            return named[token]
        if self.sot < token <= self.sot + self.n_languages:
            return b"[_LANG_%s]" % CODES[token - self.sot - 1].encode()
        return b"[_extra_token_%d]" % token

    cdef bytes text(self, int token):
        if not 0 <= token < self.n_vocab:
            raise ParamsError(f"token {token} is outside the vocabulary (0 to {self.n_vocab - 1})")
        return self._text[token]

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
        return None if token < 0 else token

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
