from .params import FullParams
from .vocab import Vocab

class History:
    carried: list[int]
    rolling: list[int]
    used: list[int]

def start(history: History, vocab: Vocab, params: FullParams, n_text_ctx: int) -> None: ...
def task_tokens(vocab: Vocab, lang_id: int, translate: bool, no_timestamps: bool) -> list[int]: ...
