from ..results import SegmentData
from ..vocab import Vocab

def wrap(segment: SegmentData, max_len: int, split_on_word: bool, vocab: Vocab) -> list[SegmentData]: ...
