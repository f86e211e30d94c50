"""Attention of chosen heads, and the token times that come from it, with random models against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whispyx.plugins
from tests.core.tiny import Pair, pair
from tests.oracle import mel as oracle_mel
from tests.oracle.align import attention, cost_matrix, dtw_path, row_starts
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx._core.align.align import align, attention_of
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.results import SegmentData, TokenData
from whispyx._core.run import full
from whispyx._core.state import State
from whispyx.errors import ParamsError, StateError

SOUND = speechlike(7.0, seed=3)
FLASH = pytest.mark.parametrize("flash_attn", [False, True], ids=["plain", "flash"])
HEADS = [(0, 1), (1, 0), (1, 1), (2, 1)]
# Weights are probabilities over 100 positions; keys are f16, and what leads to the queries too.
WEIGHT_TOLERANCE = 0.01


def opened(both: Pair, flash_attn: bool, heads: Any = HEADS) -> tuple[Any, State]:
    ctx = both.context(flash_attn)
    ctx.set_aheads(heads)
    state = State(ctx)
    state.pcm_to_mel(SOUND)
    return ctx, state


def window(both: Pair, n_ctx: int = 100) -> Any:
    mel = oracle_mel.log_mel(SOUND, both.model.filters)
    return both.net.encode(oracle_mel.window_of(mel, 0, n_ctx))


def segments_of(*texts: list[int], beg: int = 50363) -> list[SegmentData]:
    """Segments that open and close with a timestamp; an empty list has only these."""
    out = []
    for ids in texts:
        tokens = [TokenData(id=i, tid=beg) for i in (beg, *ids, beg + 50)]
        out.append(SegmentData(t0=0, t1=100, tokens=tokens))
    return out


def text_times(segments: list[SegmentData], name: str) -> list[int]:
    return [getattr(t, name) for s in segments for t in s.tokens if t.id < 50256]


@FLASH
@pytest.mark.parametrize("n_positions", [1, 5, 37, 100])
def test_weights_equal_the_oracle(n_positions: int, flash_attn: bool) -> None:
    both = pair(TinyModel())
    ctx, state = opened(both, flash_attn)
    tokens = [50257, 50362, *range(1000, 1017), 50256]
    with ctx, state:
        state.encode(0)
        ours = attention_of(state, tokens, n_positions)
    truth = attention(both.net, window(both), tokens, HEADS, n_positions)
    assert ours.shape == truth.shape == (4, 20, n_positions)
    print(f"largest difference of a weight {np.abs(ours - truth).max():.1e}")
    np.testing.assert_allclose(ours, truth, atol=WEIGHT_TOLERANCE)
    np.testing.assert_allclose(ours.sum(axis=-1), 1, atol=1e-4)


@FLASH
def test_weights_equal_the_oracle_at_a_short_audio_context(flash_attn: bool) -> None:
    """Also after a longer window, whose rows are still in the cache."""
    both = pair(TinyModel())
    ctx, state = opened(both, flash_attn)
    tokens = [50257, 50362, 5, 6, 7, 50256]
    with ctx, state:
        for n_ctx in (100, 40):
            state.encode(0, audio_ctx=n_ctx)
            truth = attention(both.net, window(both, n_ctx), tokens, HEADS, n_ctx)
            np.testing.assert_allclose(attention_of(state, tokens, n_ctx), truth, atol=WEIGHT_TOLERANCE)


@FLASH
def test_T3_more_heads_than_one_graph_takes_and_the_longest_text(flash_attn: bool) -> None:
    both = pair(TinyModel(n_head=16, n_text_ctx=64))
    heads = [(layer, head) for layer in range(3) for head in range(16)]
    ctx, state = opened(both, flash_attn, heads)
    tokens = list(range(300, 364))
    with ctx, state:
        state.encode(0)
        ours = attention_of(state, tokens, 100)
        with pytest.raises(ParamsError, match="text context"):
            attention_of(state, [*tokens, 1], 100)
    truth = attention(both.net, window(both), tokens, heads, 100)
    np.testing.assert_allclose(ours, truth, atol=WEIGHT_TOLERANCE)


@FLASH
def test_watching_heads_changes_nothing_for_decoding(flash_attn: bool) -> None:
    ctx, state = opened(pair(TinyModel()), flash_attn)
    with ctx, state:
        state.encode(0)
        state.decode([50257, 5, 6])
        before = state.logits()
        attention_of(state, list(range(40)), 100)
        assert state.logits().shape == (0, ctx.hparams.n_vocab)  # none, rather than old ones
        state.decode([50257, 5, 6])
        assert np.array_equal(state.logits(), before)


def oracle_times(both: Pair, before: list[int], ids: list[int], n_ctx: int, n_frames: int) -> list[int]:
    """First position of each row, the softmax over n_ctx positions, of which the first n_frames count."""
    sot, not_, eot = 50257, 50362, 50256
    shift = 1 if both.net.s["n_vocab"] > 51864 else 0
    tokens = [sot + shift, *before, not_ + shift, *ids, eot + shift]
    w = attention(both.net, window(both), tokens, HEADS, n_ctx)[:, :, :n_frames]
    cost = cost_matrix(w)[1 + len(before) : -1]
    return row_starts(dtw_path(cost), len(ids) + 1)


@FLASH
@pytest.mark.parametrize("multilingual", [False, True])
@pytest.mark.parametrize("n_frames", [200, 120, 31, 14, 7, 2])
def test_T6_times_equal_the_oracle(n_frames: int, multilingual: bool, flash_attn: bool) -> None:
    """Start and end in openai/whisper's way: the task named, a softmax over what the text covers. t_dtw in
    whisper.cpp's, which does neither."""
    both = pair(TinyModel(n_vocab=51865 if multilingual else 51864, seed=4))
    ids = list(range(2000, 2012))
    segments = segments_of(ids[:5], [], ids[5:])
    ctx, state = opened(both, flash_attn)
    with ctx, state:
        state.encode(0)
        align(state, segments, 400, n_frames, lang_id=4 if multilingual else -1)
    f = n_frames // 2
    language = [50259 + 4] if multilingual else []
    task = [50359] if multilingual else []
    spans = oracle_times(both, language + task, ids, f, f)
    marks = oracle_times(both, language, ids, 100, f)

    def expected(starts: list[int]) -> list[int]:
        return [400 + 2 * start for start in starts]

    differ = [
        sum(a != b for a, b in zip(text_times(segments, name), expected(starts), strict=True))
        for name, starts in (("t_dtw_start", spans[:-1]), ("t_dtw_end", spans[1:]), ("t_dtw", marks[1:]))
    ]
    print(f"{differ} of {len(ids)} differ")
    assert max(differ) <= 1  # random attention is flat, so rounding may tip a step


def test_T1_each_segment_is_told_of_once_and_complete() -> None:
    """Also from the second window on, where whisper.cpp calls back too rarely and with wrong counts."""
    both = pair(TinyModel(seed=32, end_after=14))
    told: list[SegmentData] = []
    calls: list[int] = []

    def on_segments(new: list[SegmentData]) -> None:
        assert all(t.t_dtw >= 0 and t.t_dtw_end >= 0 for s in new for t in s.tokens if t.id < 50256)
        calls.append(len(new))
        told.extend(new)

    ctx = both.context(True)
    ctx.set_aheads(HEADS)
    with ctx, State(ctx) as state:
        params = FullParams(n_threads=2, temperature_inc=0.0, dtw=True, new_segment_callback=on_segments)
        result = full(ctx, state, params, speechlike(95, 32))
    assert len(result.segments) >= 4
    assert calls == [1] * len(result.segments)
    assert all(a is b for a, b in zip(told, result.segments, strict=True))


def test_T4_text_at_the_very_end_and_segments_without_text() -> None:
    """No closing timestamp, an empty segment last: nothing is read past the end."""
    ctx, state = opened(pair(TinyModel()), True)
    open_end = SegmentData(t0=0, t1=100, tokens=[TokenData(id=7), TokenData(id=8)])
    empty = SegmentData(t0=100, t1=120)
    with ctx, state:
        state.encode(0)
        align(state, [open_end, empty], 0, 200)
    assert all(0 <= t.t_dtw_start <= t.t_dtw_end <= 200 for t in open_end.tokens)


def test_only_text_tokens_get_times() -> None:
    ctx, state = opened(pair(TinyModel()), True)
    segments = segments_of([7, 8])
    with ctx, state:
        state.encode(0)
        align(state, segments, 0, 200)
    for token in (segments[0].tokens[0], segments[0].tokens[-1]):
        assert (token.t_dtw, token.t_dtw_start, token.t_dtw_end) == (-1, -1, -1)


def test_tokens_follow_one_another() -> None:
    ctx, state = opened(pair(TinyModel()), True)
    segments = segments_of([7, 8, 9], [10, 11])
    with ctx, state:
        state.encode(0)
        align(state, segments, 3000, 200)
    starts, ends = text_times(segments, "t_dtw_start"), text_times(segments, "t_dtw_end")
    assert starts[0] == 3000 and starts[1:] == ends[:-1]
    assert all(a <= b for a, b in zip(starts, ends, strict=True)) and ends[-1] <= 3200


def test_no_text_is_no_work() -> None:
    """Nothing is decoded: the cache and the logits stay."""
    ctx, state = opened(pair(TinyModel()), True)
    with ctx, state:
        state.encode(0)
        state.decode([50257, 5])
        align(state, segments_of([], []), 0, 200)
        assert state.kv_cells[1] == 2 and len(state.logits()) == 1


@pytest.mark.parametrize("n_frames", [0, 1])
def test_T2_a_window_without_a_whole_position_leaves_times_unknown(n_frames: int) -> None:
    ctx, state = opened(pair(TinyModel()), True)
    segments = segments_of([7, 8])
    with ctx, state:
        state.encode(0)
        align(state, segments, 0, n_frames)
    assert text_times(segments, "t_dtw") == [-1, -1]


def test_T2_windows_longer_than_the_audio_context_are_clamped() -> None:
    ctx, state = opened(pair(TinyModel()), True)
    segments = segments_of([7, 8, 9])
    with ctx, state:
        state.encode(0, audio_ctx=20)
        align(state, segments, 0, 3000)
    assert all(0 <= t <= 40 for t in text_times(segments, "t_dtw") + text_times(segments, "t_dtw_end"))


def test_marks_may_be_left_out() -> None:
    ctx, state = opened(pair(TinyModel()), True)
    segments = segments_of([7, 8])
    with ctx, state:
        state.encode(0)
        align(state, segments, 0, 200, marks=False)
    assert text_times(segments, "t_dtw") == [-1, -1]
    assert min(text_times(segments, "t_dtw_end")) >= 0


def test_B27_flash_attention_gives_the_same_times() -> None:
    """whisper.cpp switches alignment off, without a word, when flash attention is on."""
    times = []
    for flash_attn in (False, True):
        ctx, state = opened(pair(TinyModel()), flash_attn)
        segments = segments_of(list(range(500, 520)))
        with ctx, state:
            state.encode(0)
            align(state, segments, 0, 200)
        times.append(text_times(segments, "t_dtw"))
    assert min(times[0]) >= 0
    assert np.mean(np.array(times[0]) != np.array(times[1])) <= 0.1


def test_T5_attention_that_is_no_number_leaves_times_unknown(caplog: pytest.LogCaptureFixture) -> None:
    """A model with a NaN in it. whisper.cpp's way back leaves its array then."""
    raw = bytearray(TinyModel().to_bytes())
    name = b"decoder.blocks.1.cross_attn_ln.bias"
    at = raw.index(name) + len(name)
    raw[at : at + 4] = np.float32("nan").tobytes()
    whispyx.plugins.load()
    ctx = Context.load(bytes(raw))
    ctx.set_aheads(HEADS)
    segments = segments_of([7, 8])
    with ctx, State(ctx) as state:
        state.pcm_to_mel(SOUND)
        state.encode(0)
        align(state, segments, 0, 200, samples=SOUND, words=True)
    for name_ in ("t_dtw", "t_dtw_start", "t_dtw_end"):
        assert text_times(segments, name_) == [-1, -1]
    assert [word.tokens for word in segments[0].words] == [(1, 2)]  # words have their times all the same
    assert "no finite numbers" in caplog.text


def test_what_cannot_be_aligned_is_said() -> None:
    ctx, state = opened(pair(TinyModel()), True, [])
    with ctx, state:
        with pytest.raises(StateError, match="heads"):
            align(state, segments_of([7]), 0, 200)
        ctx.set_aheads(HEADS)
        with pytest.raises(StateError, match="encoded"):
            align(state, segments_of([7]), 0, 200)
        with pytest.raises(StateError, match="encoded"):
            attention_of(state, [7], 1)
        state.encode(0)
        with pytest.raises(ParamsError, match="vocabulary"):
            align(state, [SegmentData(tokens=[TokenData(id=-1)])], 0, 200)
        with pytest.raises(ParamsError, match="vocabulary"):
            attention_of(state, [51864], 1)
        for n_positions in (0, 101):
            with pytest.raises(ParamsError, match="n_positions"):
                attention_of(state, [7], n_positions)
        with pytest.raises(ParamsError, match="text context"):
            attention_of(state, [], 1)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-5000, 5000), st.integers(-5000, 5000), st.lists(st.integers(0, 50256), max_size=9)),
        max_size=4,
    ),
    st.integers(-10, 4000),
    st.integers(0, 3000),
    st.sampled_from([0, 1, 800, 16000]),
)
def test_whatever_the_segments_words_are_in_order_and_inside(
    shapes: list[Any], n_frames: int, seek: int, n_samples: int
) -> None:
    """Segments that end before they begin, begin before the window, or lie outside of the sound."""
    ctx, state = opened(pair(TinyModel(n_audio_ctx=50, n_text_ctx=32)), True)
    segments = []
    for t0, t1, ids in shapes:
        tokens = [TokenData(id=i, p=0.5, text=ctx.vocab.token_bytes(i)) for i in ids]
        segments.append(SegmentData(t0=t0, t1=t1, tokens=tokens))
    with ctx, state:
        state.encode(0)
        align(state, segments, seek, n_frames, samples=SOUND[:n_samples], words=True)
    for segment in segments:
        text = [i for i, token in enumerate(segment.tokens) if token.id < ctx.vocab.eot]
        assert [i for word in segment.words for i in word.tokens] == text  # every word is timed
        edges = [edge for word in segment.words for edge in (word.t0, word.t1)]
        assert edges == sorted(edges)
        low, high = segment.t0 / 100, max(segment.t0, segment.t1) / 100
        assert not edges or (low - 1e-6 <= edges[0] and edges[-1] <= high + 1e-6)
