from .vocab import Vocab

NON_SPEECH: tuple[str, ...]

def non_speech_tokens(vocab: Vocab) -> list[int]: ...
