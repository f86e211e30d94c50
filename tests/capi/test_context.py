"""Contexts and states: made from files, memory and loaders, freed in any order, never used after that."""

from __future__ import annotations

import gc
import io
import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.capi.conftest import SOUND, quick
from whispyx import capi
from whispyx._core import handles
from whispyx.errors import ParamsError, StateError


def params(**fields: Any) -> Any:
    made = capi.whisper_context_default_params()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_a_model_loads_from_a_file_and_from_memory(model: Path) -> None:
    data = model.read_bytes()
    made = [
        capi.whisper_init_from_file(str(model)),
        capi.whisper_init_from_file(os.fsencode(model)),
        capi.whisper_init_from_file_with_params(model, params()),
        capi.whisper_init_from_buffer(data, len(data)),
        capi.whisper_init_from_buffer_with_params(np.frombuffer(data, np.uint8), len(data), params()),
        capi.whisper_init_from_buffer(bytearray(data + b"tail"), len(data)),
    ]
    for ctx in made:
        assert ctx is not None
        assert capi.whisper_n_vocab(ctx) == 51865
        assert capi.whisper_full(ctx, quick(), SOUND, len(SOUND)) == 0
        capi.whisper_free(ctx)


def test_no_state_functions_leave_the_state_to_the_caller(model: Path) -> None:
    data = model.read_bytes()
    for ctx in (
        capi.whisper_init_from_file_no_state(str(model)),
        capi.whisper_init_from_file_with_params_no_state(str(model), params()),
        capi.whisper_init_from_buffer_no_state(data, len(data)),
        capi.whisper_init_from_buffer_with_params_no_state(data, len(data), params()),
        capi.whisper_init_no_state(loader_of(model)),
        capi.whisper_init_with_params_no_state(loader_of(model), params()),
    ):
        assert ctx is not None
        state = capi.whisper_init_state(ctx)
        assert state is not None
        assert capi.whisper_full_with_state(ctx, state, quick(), SOUND, len(SOUND)) == 0
        assert capi.whisper_full_n_segments_from_state(state) > 0
        capi.whisper_free_state(state)
        capi.whisper_free(ctx)


def test_m12_functions_of_the_default_state_say_that_there_is_none(model: Path) -> None:
    ctx = capi.whisper_init_from_file_no_state(str(model))
    assert ctx is not None
    for use in (
        lambda: capi.whisper_full(ctx, quick(), SOUND, len(SOUND)),
        lambda: capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1),
        lambda: capi.whisper_encode(ctx, 0, 1),
        lambda: capi.whisper_n_len(ctx),
        lambda: capi.whisper_get_logits(ctx),
        lambda: capi.whisper_full_n_segments(ctx),
        lambda: capi.whisper_full_lang_id(ctx),
        lambda: capi.whisper_lang_auto_detect(ctx, 0, 1, None),
        lambda: capi.whisper_reset_timings(ctx),
        lambda: capi.whisper_ctx_init_openvino_encoder(ctx, None, "CPU", None),
    ):
        with pytest.raises(StateError, match="without a state"):
            use()
    assert capi.whisper_decode(ctx, [50258], 1, 0, 1) == -1  # the one function that C checks
    assert capi.whisper_get_timings(ctx) is None
    capi.whisper_print_timings(ctx)
    capi.whisper_free(ctx)


@pytest.mark.parametrize("call", ["path", "buffer", "loader"])
def test_what_is_no_model_gives_null_and_a_reason(call: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = tmp_path / "bad.bin"
    bad.write_bytes(b"this is no model")
    with caplog.at_level(logging.ERROR, "whispyx.capi"):
        if call == "path":
            assert capi.whisper_init_from_file(str(bad)) is None
            assert capi.whisper_init_from_file(str(tmp_path / "missing.bin")) is None
            assert "missing.bin" in caplog.text
        elif call == "buffer":
            assert capi.whisper_init_from_buffer(b"", 0) is None
            assert capi.whisper_init_from_buffer(bad.read_bytes(), 16) is None
        else:
            assert capi.whisper_init(loader_of(bad)) is None
    assert "not a ggml Whisper model" in caplog.text or "no model" in caplog.text


def test_a_truncated_model_gives_null_at_every_length(english_model: Path) -> None:
    data = english_model.read_bytes()
    for n in (0, 3, 4, 47, 48, 60, 5000, 100_000, len(data) // 2, len(data) - 1):
        assert capi.whisper_init_from_buffer(data[:n], n) is None
        assert capi.whisper_init(loader_of(io.BytesIO(data[:n]))) is None, n


def test_arguments_of_another_type_are_refused(model: Path) -> None:
    with pytest.raises(TypeError):
        capi.whisper_init_from_file(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        capi.whisper_init_from_file_with_params(str(model), {})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        capi.whisper_init_from_buffer("text", 4)
    with pytest.raises(ParamsError, match="buffer_size"):
        capi.whisper_init_from_buffer(b"abc", 4)
    with pytest.raises(TypeError):
        capi.whisper_init(open)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        capi.whisper_n_vocab("ctx")  # type: ignore[arg-type]
    with pytest.raises(StateError, match="NULL"):
        capi.whisper_n_vocab(None)  # type: ignore[arg-type]


def test_freeing_twice_is_fine_and_use_after_that_is_an_error(model: Path) -> None:
    ctx = capi.whisper_init_from_file(str(model))
    assert ctx is not None
    other = capi.whisper_init_state(ctx)
    assert other is not None
    default = ctx.state
    assert default is not None
    capi.whisper_free(ctx)
    capi.whisper_free(ctx)
    capi.whisper_free(None)
    for use in (
        lambda: capi.whisper_n_vocab(ctx),
        lambda: capi.whisper_full(ctx, quick(), SOUND, len(SOUND)),
        lambda: capi.whisper_decode(ctx, [50258], 1, 0, 1),
        lambda: capi.whisper_full_with_state(ctx, other, quick(), SOUND, len(SOUND)),
        lambda: capi.whisper_full_n_segments_from_state(default),
        lambda: capi.whisper_get_logits_from_state(other),
        lambda: capi.whisper_init_state(ctx),
    ):
        with pytest.raises(StateError, match="freed"):
            use()
    capi.whisper_free_state(other)
    capi.whisper_free_state(other)
    capi.whisper_free_state(default)
    capi.whisper_free_state(None)
    with pytest.raises(StateError, match="freed"):
        capi.whisper_n_len_from_state(other)


def test_a_state_of_another_context_is_refused(ctx: Any, english: Any) -> None:
    with pytest.raises(StateError, match="another context"):
        capi.whisper_full_with_state(ctx, english.state, quick(), SOUND, len(SOUND))
    with pytest.raises(StateError, match="another context"):
        capi.whisper_encode_with_state(ctx, english.state, 0, 1)
    with pytest.raises(StateError, match="NULL"):
        capi.whisper_full_with_state(ctx, None, quick(), SOUND, len(SOUND))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        capi.whisper_full_with_state(ctx, ctx, quick(), SOUND, len(SOUND))


def test_a_state_serves_one_thread_at_a_time(ctx: Any) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def begin(*_: object) -> bool:
        inside.set()
        return go_on.wait(20)

    codes: list[int] = []
    first = threading.Thread(
        target=lambda: codes.append(capi.whisper_full(ctx, quick(encoder_begin_callback=begin), SOUND, len(SOUND)))
    )
    first.start()
    assert inside.wait(20)
    try:
        with pytest.raises(StateError, match="in use"):
            capi.whisper_full(ctx, quick(), SOUND, len(SOUND))
        with pytest.raises(StateError, match="in use"):
            capi.whisper_encode(ctx, 0, 1)
        with pytest.raises(StateError, match="in use"):
            capi.whisper_free(ctx)
        assert capi.whisper_full_n_segments(ctx) == 0  # reading is allowed
        other = capi.whisper_init_state(ctx)
        assert other is not None
        assert capi.whisper_full_with_state(ctx, other, quick(), SOUND, len(SOUND)) == 0
        capi.whisper_free_state(other)
    finally:
        go_on.set()
        first.join()
    assert codes == [0]
    assert capi.whisper_full(ctx, quick(), SOUND, len(SOUND)) == 0


def test_everything_is_given_back(model: Path) -> None:
    gc.collect()
    before = handles.live()
    ctx = capi.whisper_init_from_file(str(model))
    assert ctx is not None
    state = capi.whisper_init_state(ctx)
    assert capi.whisper_full_with_state(ctx, state, quick(), SOUND, len(SOUND)) == 0  # type: ignore[arg-type]
    capi.whisper_free_state(state)
    capi.whisper_free(ctx)
    del ctx, state
    gc.collect()
    assert handles.live() == before


def test_an_openvino_encoder_that_is_not_there_gives_1_and_a_reason(ctx: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "whispyx.capi"):
        assert capi.whisper_ctx_init_openvino_encoder(ctx, None, "CPU", None) == 1
    assert re.search("OpenVINO is not installed|there is no encoder file .*-encoder-openvino.xml", caplog.text)
    assert capi.whisper_ctx_init_openvino_encoder_with_state(ctx, ctx.state, b"a.xml", b"CPU", b"cache") == 1
    with pytest.raises(TypeError):
        capi.whisper_ctx_init_openvino_encoder(ctx, 5, "CPU", None)  # type: ignore[arg-type]


CUSTOM = [capi.whisper_ahead(n_text_layer=1, n_head=0), (2, 1)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"dtw_aheads_preset": capi.WHISPER_AHEADS_N_TOP_MOST, "dtw_n_top": 2}, ((1, 0), (1, 1), (2, 0), (2, 1))),
        (
            {
                "dtw_aheads_preset": capi.WHISPER_AHEADS_CUSTOM,
                "dtw_aheads": capi.whisper_aheads(n_heads=2, heads=CUSTOM),
            },
            ((1, 0), (2, 1)),
        ),
        (
            {
                "dtw_aheads_preset": capi.WHISPER_AHEADS_CUSTOM,
                "dtw_aheads": capi.whisper_aheads(n_heads=1, heads=CUSTOM),
            },
            ((1, 0),),
        ),
    ],
    ids=["top", "custom", "first of custom"],
)
@pytest.mark.parametrize("flash", [True, False])
def test_b27_alignment_heads_are_chosen_with_flash_attention_too(
    model: Path, flash: bool, fields: dict[str, Any], expected: tuple[tuple[int, int], ...]
) -> None:
    ctx = capi.whisper_init_from_file_with_params(
        str(model), params(dtw_token_timestamps=True, flash_attn=flash, **fields)
    )
    assert ctx is not None
    assert ctx.core.aheads == expected
    capi.whisper_free(ctx)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"dtw_aheads_preset": capi.WHISPER_AHEADS_N_TOP_MOST},
        {"dtw_aheads_preset": capi.WHISPER_AHEADS_N_TOP_MOST, "dtw_n_top": 4},
        {"dtw_aheads_preset": capi.WHISPER_AHEADS_CUSTOM},
        {
            "dtw_aheads_preset": capi.WHISPER_AHEADS_CUSTOM,
            "dtw_aheads": capi.whisper_aheads(n_heads=1, heads=[(3, 0)]),
        },
        {
            "dtw_aheads_preset": capi.WHISPER_AHEADS_CUSTOM,
            "dtw_aheads": capi.whisper_aheads(n_heads=1, heads=[(0, -1)]),
        },
        {
            "dtw_aheads_preset": capi.WHISPER_AHEADS_CUSTOM,
            "dtw_aheads": capi.whisper_aheads(n_heads=3, heads=[(0, 0)]),
        },
        {"dtw_aheads_preset": capi.WHISPER_AHEADS_LARGE_V3},
    ],
    ids=["none", "no n_top", "n_top too large", "no heads", "layer", "head", "fewer heads", "another model's"],
)
def test_t2_bad_alignment_heads_give_null_and_a_reason(
    model: Path, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    # The model has three decoder layers of two heads.
    wanted = params(dtw_token_timestamps=True, **fields)
    with caplog.at_level(logging.ERROR, "whispyx.capi"):
        assert capi.whisper_init_from_file_with_params(str(model), wanted) is None
    assert any(word in caplog.text for word in ("head", "dtw", "n_top"))
    ctx = capi.whisper_init_from_file_with_params_no_state(str(model), wanted)
    assert ctx is not None and capi.whisper_init_state(ctx) is None  # as in C: the model loads, states cannot be made
    capi.whisper_free(ctx)


def loader_of(source: Path | io.BytesIO, **overrides: Callable[..., Any]) -> Any:
    """A loader that reads a file as a C program would."""
    file = io.BytesIO(source.read_bytes()) if isinstance(source, Path) else source

    def read(context: Any, output: memoryview, read_size: int) -> int:
        assert len(output) == read_size
        return file.readinto(output)

    def eof(context: Any) -> bool:
        return file.tell() >= len(file.getvalue())

    functions = {"read": read, "eof": eof, **overrides}
    return capi.whisper_model_loader(context="the context", **functions)


def silent(read: Callable[..., Any], answer: object) -> Callable[..., Any]:
    def answering(context: Any, output: memoryview, size: int) -> Any:
        read(context, output, size)
        return answer

    return answering


def one_kilobyte(read: Callable[..., Any]) -> Callable[..., Any]:
    def short(context: Any, output: memoryview, size: int) -> Any:
        return read(context, output[:1000], len(output[:1000]))

    return short


@pytest.mark.parametrize(
    "change",
    [
        lambda read: read,
        lambda read: silent(read, None),
        lambda read: silent(read, 0),
        lambda read: silent(read, -1),
        lambda read: silent(read, 1 << 40),
        one_kilobyte,
    ],
    ids=["honest", "says nothing", "says 0", "says -1", "says too much", "short"],
)
def test_a_loader_works_whatever_it_says_about_its_counts(model: Path, change: Callable[..., Any]) -> None:
    closed: list[object] = []
    plain = loader_of(model)
    loader = capi.whisper_model_loader(
        context="the context", read=change(plain.read), eof=plain.eof, close=closed.append
    )
    ctx = capi.whisper_init_with_params(loader, params())
    assert ctx is not None and closed == ["the context"]
    assert ctx.core.n_tensors == 2 + 3 * 2 + 1 + 15 * 2 + 24 * 3 + 2  # 11 and 15 and 24 for each layer
    capi.whisper_free(ctx)


def test_eof_may_also_mean_that_a_read_went_past_the_end(model: Path) -> None:
    past = []
    plain = loader_of(model)

    def read(context: Any, output: memoryview, size: int) -> None:
        n = plain.read(context, output, size)
        if n < size:
            past.append(size)
            output[n:] = bytes(size - n)  # what was not there becomes zero, and counts as read

    ctx = capi.whisper_init(capi.whisper_model_loader(read=read, eof=lambda context: bool(past)))
    assert ctx is not None and past == [12]
    capi.whisper_free(ctx)


def test_a_loader_without_an_end_does_not_hang() -> None:
    def nothing(context: Any, output: memoryview, size: int) -> int:
        return 0

    assert capi.whisper_init(capi.whisper_model_loader(read=nothing, eof=lambda context: False)) is None


def test_m5_a_loader_is_closed_once_on_failure_too(tmp_path: Path) -> None:
    closed: list[object] = []
    bad = io.BytesIO(b"no model at all, but long enough to have a head of forty-eight bytes")
    assert capi.whisper_init(loader_of(bad, close=closed.append)) is None
    assert closed == ["the context"]


def test_an_exception_in_a_loader_reaches_the_caller_after_closing(model: Path) -> None:
    class Mine(Exception):
        pass

    def fail(*_: object) -> int:
        raise Mine

    closed: list[object] = []
    with pytest.raises(Mine):
        capi.whisper_init(loader_of(model, read=fail, close=closed.append))
    with pytest.raises(Mine):
        capi.whisper_init(loader_of(model, eof=fail, close=closed.append))
    assert closed == ["the context"] * 2


def test_a_loader_needs_its_functions(model: Path) -> None:
    for name in ("read", "eof"):
        loader = loader_of(model)
        setattr(loader, name, None)
        with pytest.raises(TypeError, match="read and eof"):
            capi.whisper_init(loader)


def test_a_field_of_absurd_size_is_not_allocated() -> None:
    head = b"lmgg" + bytes(44) + (2**30).to_bytes(4, "little") * 2
    assert capi.whisper_init(loader_of(io.BytesIO(head + bytes(1000)))) is None
