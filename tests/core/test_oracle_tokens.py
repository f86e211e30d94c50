"""Special ids and texts of tokens against the oracle and the published table."""

from __future__ import annotations

import pytest

from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel
from tests.oracle.tokens import Special

# From the published vocabularies: eot, sot, translate, transcribe, solm, prev, nosp, no timestamps, 0.00 s, languages.
PUBLISHED = {
    51864: (50256, 50257, 50357, 50358, 50359, 50360, 50361, 50362, 50363, 99),
    51865: (50257, 50258, 50358, 50359, 50360, 50361, 50362, 50363, 50364, 99),
    51866: (50257, 50258, 50359, 50360, 50361, 50362, 50363, 50364, 50365, 100),
}


@pytest.mark.parametrize("n_vocab", PUBLISHED)
def test_special_ids_are_the_published_ones(n_vocab: int) -> None:
    s = Special.of(n_vocab)
    oracle = (s.eot, s.sot, s.translate, s.transcribe, s.solm, s.prev, s.nosp, s.no_timestamps, s.beg, s.n_languages)
    assert oracle == PUBLISHED[n_vocab]
    with pair(TinyModel(n_vocab=n_vocab, seed=3)).context(True) as ctx:
        v = ctx.vocab
        core = (v.eot, v.sot, v.translate, v.transcribe, v.solm, v.prev, v.nosp, v.not_, v.beg, v.n_languages)
    assert core == PUBLISHED[n_vocab]


def test_stored_tokens_keep_their_bytes() -> None:
    both = pair(TinyModel(seed=3))
    with both.context(True) as ctx:
        assert [ctx.vocab.token_bytes(i) for i in range(len(both.model.tokens))] == both.model.tokens
        assert ctx.vocab.is_multilingual is False
