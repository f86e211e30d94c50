"""What a window's decoding starts from: earlier text, then the task tokens.

Budgets are whisper.cpp 1.8.5's: at most half the text context of earlier text, the start-of-previous token included.
"""

from whispyx._core.vocab cimport Vocab

from whispyx.errors import LanguageError

HISTORY_TEMPERATURE = 0.5   # at this temperature and above, earlier text is left out


cdef class History:
    """Text of earlier windows, and of earlier runs while `no_context` is off."""

    def __cinit__(self):
        self.forget()

    cdef void forget(self) noexcept:
        self.carried, self.rolling, self.used = [], [], []

    cdef list prompt(self, Vocab vocab, list init, int n_max_text_ctx, int n_text_ctx, float temperature):
        """Return the prompt of an attempt and remember which history it used."""
        cdef int budget = min(n_max_text_ctx, n_text_ctx // 2), room
        self.used = []
        if n_max_text_ctx <= 0 or temperature >= HISTORY_TEMPERATURE or not (self.carried or self.rolling):
            return list(init)
        room = max(0, min(budget - len(self.carried) - 1, len(self.rolling)))
        self.used = self.rolling[len(self.rolling) - room:]
        if not self.carried and not self.used:
            return list(init)
        return [vocab.prev, *self.carried, *self.used, *init]


cdef list initial_prompt(Vocab vocab, object params):
    """Return the tokens of the caller's prompt."""
    if params.prompt_tokens is not None:
        return list(params.prompt_tokens)
    if params.initial_prompt is not None:
        return vocab.tokenize(params.initial_prompt)
    return []


def start(History history, Vocab vocab, params, int n_text_ctx) -> None:
    """Bring the history in order for a new run."""
    cdef int budget = min(params.n_max_text_ctx, n_text_ctx // 2)
    cdef list tokens = initial_prompt(vocab, params)
    for token in tokens:
        vocab.text(token)   # refuses ids outside the vocabulary
    if params.no_context:
        history.forget()
    if not tokens:
        return
    if params.carry_initial_prompt:
        if not history.carried:
            history.carried = tokens[max(0, len(tokens) - max(1, budget - 1)):]
    else:
        history.rolling = tokens + history.rolling


def task_tokens(Vocab vocab, int lang_id, bint translate, bint no_timestamps) -> list[int]:
    """Return the tokens that say what to do.

    Raises
    ------
    LanguageError
        The model has no such language.
    """
    init = [vocab.sot]
    if vocab.is_multilingual:
        if not 0 <= lang_id < vocab.n_languages:
            raise LanguageError(f"the model does not have language number {lang_id}; it has {vocab.n_languages}")
        init += [vocab.sot + 1 + lang_id, vocab.translate if translate else vocab.transcribe]
    if no_timestamps:
        init.append(vocab.not_)
    return init
