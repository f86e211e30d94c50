"""whisper_ctx_init_openvino_encoder and its status codes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import data
from tests.core.tiny import pair, recipe_of
from tests.encoders.openvino_kit import SOUND
from whispyx import capi
from whispyx.encoders import openvino_ir

pytestmark = pytest.mark.usefixtures("openvino")


@pytest.fixture
def ctx(model: str) -> Iterator[Any]:
    ctx = capi.whisper_init_from_file(model)
    assert ctx is not None
    yield ctx
    capi.whisper_free(ctx)


def params() -> Any:
    chosen = capi.whisper_full_default_params(capi.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY)
    chosen.print_progress, chosen.n_threads, chosen.temperature_inc, chosen.language = False, 1, 0.0, "en"
    return chosen


def ids(state: Any) -> list[int]:
    return [
        capi.whisper_full_get_token_id_from_state(state, i, j)
        for i in range(capi.whisper_full_n_segments_from_state(state))
        for j in range(capi.whisper_full_n_tokens_from_state(state, i))
    ]


def test_null_is_the_file_beside_the_model_and_a_cache_beside_it(ctx: Any, model: str) -> None:
    assert capi.whisper_full(ctx, params(), SOUND) == 0
    expected = ids(ctx.state)
    openvino_ir.write(model, storage="f32")
    assert capi.whisper_ctx_init_openvino_encoder(ctx, None, "CPU", None) == 0
    assert ctx.state.core.external_encoder.path == openvino_ir.encoder_path(model)
    assert capi.whisper_full(ctx, params(), SOUND) == 0
    assert ids(ctx.state) == expected and expected
    assert os.listdir(openvino_ir.encoder_path(model, "-encoder-openvino-cache"))


def test_one_state_has_it_and_another_has_not(ctx: Any, model: str, tmp_path: Path) -> None:
    path = openvino_ir.write(model, tmp_path / "somewhere.xml", "f32")
    state = capi.whisper_init_state(ctx)
    assert state is not None
    code = capi.whisper_ctx_init_openvino_encoder_with_state(
        ctx, state, str(path).encode(), None, str(tmp_path / "kept")
    )
    assert code == 0 and os.listdir(tmp_path / "kept")
    assert ctx.state.core.external_encoder is None and state.core.external_encoder is not None
    assert capi.whisper_full_with_state(ctx, state, params(), SOUND) == 0
    assert capi.whisper_full(ctx, params(), SOUND) == 0
    assert ids(state) == ids(ctx.state)
    capi.whisper_free_state(state)


def test_what_cannot_be_used_gives_1_and_the_own_encoder_goes_on(
    ctx: Any, model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = openvino_ir.write(model, tmp_path / "good.xml")
    other = openvino_ir.write(pair(recipe_of("f32", n_audio_ctx=101)).path, tmp_path / "other.xml")
    twin = openvino_ir.write(pair(recipe_of("f32", seed=6)).path, tmp_path / "twin.xml")
    (tmp_path / "rubbish.xml").write_text("rubbish")
    (tmp_path / "rubbish.bin").write_bytes(b"")
    for path, device, cache, reason in (
        (tmp_path / "none.xml", "CPU", None, "no encoder file"),
        (tmp_path / "rubbish.xml", "CPU", None, "no sound OpenVINO model"),
        (good, "TPU", None, "no device"),
        (other, "CPU", None, "do not belong together"),
        (twin, "CPU", None, "made from another model"),
        (good, "CPU", good / "cache", "cache folder"),
        (good, "CPU", "\0", "null character"),
        ("a\0.xml", "CPU", "", "null character"),
        ("", "CPU", "", "empty"),
    ):
        caplog.clear()
        with caplog.at_level(logging.ERROR, "whispyx.capi"):
            status = capi.whisper_ctx_init_openvino_encoder(
                ctx, str(path), device, None if cache is None else str(cache)
            )
        assert status == 1 and reason in caplog.text, (path, caplog.text)
    assert ctx.state.core.external_encoder is None
    assert capi.whisper_full(ctx, params(), SOUND) == 0 and ids(ctx.state)


def test_a_model_from_memory_needs_the_name_of_its_encoder(model: str, tmp_path: Path) -> None:
    ctx = capi.whisper_init_from_buffer(Path(model).read_bytes(), None)
    assert ctx is not None
    path = openvino_ir.write(model, tmp_path / "named.xml")
    before = set(tmp_path.iterdir())
    assert capi.whisper_ctx_init_openvino_encoder(ctx, None, "CPU", None) == 1
    assert capi.whisper_ctx_init_openvino_encoder(ctx, str(path), "CPU", None) == 0
    assert set(tmp_path.iterdir()) == before  # no model file, no cache beside it
    capi.whisper_free(ctx)


def test_an_empty_cache_name_is_no_cache(ctx: Any, model: str) -> None:
    openvino_ir.write(model)
    assert capi.whisper_ctx_init_openvino_encoder(ctx, None, None, "") == 0
    assert not os.path.exists(openvino_ir.encoder_path(model, "-encoder-openvino-cache"))


def test_stages_and_parts_use_it(ctx: Any, model: str) -> None:
    assert capi.whisper_pcm_to_mel(ctx, SOUND, n_threads=1) == 0 and capi.whisper_encode(ctx, 0, 1) == 0
    assert capi.whisper_decode(ctx, [50257, 50362], 2, 0, 1) == 0
    expected = capi.whisper_get_logits(ctx).copy()
    openvino_ir.write(model, storage="f32")
    assert capi.whisper_ctx_init_openvino_encoder(ctx, None, "CPU", "") == 0
    assert capi.whisper_encode(ctx, 0, 1) == 0 and capi.whisper_decode(ctx, [50257, 50362], 2, 0, 1) == 0
    assert 0 < np.abs(capi.whisper_get_logits(ctx) - expected).max() < 0.08  # caches are f16; GELU has two forms
    assert capi.whisper_full_parallel(ctx, params(), np.tile(SOUND, 2), None, 2) == 0


def test_a_real_model_says_the_same(tmp_path: Path) -> None:
    path, wav = data.or_skip(data.model_file, "tiny.en"), data.or_skip(data.jfk_wav)
    from whispyx.audio import load

    sound = load(wav)
    ctx = capi.whisper_init_from_file(str(path))
    assert ctx is not None
    assert capi.whisper_full(ctx, params(), sound) == 0
    expected = ids(ctx.state)
    xml = openvino_ir.write(path, tmp_path)
    assert capi.whisper_ctx_init_openvino_encoder(ctx, str(xml), "CPU", str(tmp_path / "cache")) == 0
    assert capi.whisper_full(ctx, params(), sound) == 0
    assert ids(ctx.state) == expected
    capi.whisper_free(ctx)
