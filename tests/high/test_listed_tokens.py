"""What a model's own files ask for when decoding: tokens never to be written, and the heads that times come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whispyx.plugins
from tests.models.formats.same_weights import HEADS, ctranslate2, gguf, huggingface
from tests.oracle.greedy import Transcriber
from tests.oracle.network import Whisper
from tests.oracle.reader import ModelFile, read_model
from tests.oracle.rules import Settings
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx import Model, capi
from whispyx._core.align.heads import preset_for, resolve
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx.conversion import convert
from whispyx.models.formats.opening import open_model

SOUND = speechlike(12.0, 3)
SHAPE = TinyModel(n_vocab=51865, seed=17)
FORMS = ("huggingface", "ctranslate2", "gguf")
SMALLEST_LEAD = 0.04  # as in tests/core/test_oracle_transcribe.py, for f16


@pytest.fixture(scope="module", autouse=True)
def plugins() -> None:
    whispyx.plugins.load()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    return read_model(SHAPE.write(tmp_path_factory.mktemp("listed") / "model.bin"))


def tokens_of(source: Any, **options: Any) -> list[int]:
    with Model(source, "cpu", compute="exact") as model:
        found = model.transcribe(SOUND, "en", temperature_inc=0.0, **options)
        return [token.id for segment in found for token in segment.tokens]


def listing(file: ModelFile, form: str, folder: Path, always: list[int], first: list[int]) -> Path:
    """The model in a form that lists tokens."""
    if form == "ctranslate2":
        path, name = ctranslate2(file, folder / form), "config.json"
        keys = {"suppress_ids": always, "suppress_ids_begin": first}
    else:
        path, name = huggingface(file, folder / "huggingface"), "generation_config.json"
        keys = {"suppress_tokens": always, "begin_suppress_tokens": first}
    content = json.loads((path / name).read_text())
    (path / name).write_text(json.dumps({**content, **keys}))
    if form == "gguf":
        convert(path, folder / "model.gguf")
        return folder / "model.gguf"
    return path


@pytest.mark.parametrize("form", FORMS)
def test_listed_tokens_are_not_written_unless_wanted(form: str, file: ModelFile, tmp_path: Path) -> None:
    plain = tokens_of(SHAPE.to_bytes())
    first, never = list(dict.fromkeys(plain))[:2]
    # The end of the text is among the tokens that published files list for the start only; here it can do no harm.
    path = listing(file, form, tmp_path, [never, 50257], [first])
    assert tokens_of(path, suppress_listed=False) == plain
    found = tokens_of(path)
    assert found and found[0] != first and never not in found
    for settings, source in (
        ({}, listing(file, form, tmp_path / "only", [never, 50257], [])),
        ({"suppress_blank": False}, path),  # which keeps the second list from counting
    ):
        truth = Transcriber(Whisper(file), Settings(suppressed=(never,), **settings)).run(SOUND)
        assert truth.margin > SMALLEST_LEAD
        expected = [token for segment in truth.segments for token in segment.tokens]
        assert tokens_of(source, **settings) == expected != plain


def test_whisper_cpp_s_interface_writes_listed_tokens_all_the_same(file: ModelFile, tmp_path: Path) -> None:
    plain = tokens_of(SHAPE.to_bytes())
    never = next(token for token in plain if token < 50257)
    path = listing(file, "huggingface", tmp_path, [never], [never])
    ctx = capi.whisper_init_from_file_with_params(str(path), capi.whisper_context_default_params())
    params = capi.whisper_full_default_params(capi.WHISPER_SAMPLING_GREEDY)
    params.temperature_inc = 0.0
    assert ctx is not None and capi.whisper_full(ctx, params, SOUND, len(SOUND)) == 0
    found = [
        capi.whisper_full_get_token_id(ctx, i, j)
        for i in range(capi.whisper_full_n_segments(ctx))
        for j in range(capi.whisper_full_n_tokens(ctx, i))
    ]
    capi.whisper_free(ctx)
    assert found == plain


def attended(source: Any, heads: Any = None) -> list[tuple[int, int, int]]:
    params = FullParams(temperature_inc=0.0, dtw=True, word_timestamps=True, n_threads=2)
    with Context.load(open_model(source)) as ctx, ctx.new_state() as state:
        if heads is not None:
            ctx.set_aheads(heads)
        result = full(ctx, state, params, SOUND)
        assert result.segments and all(segment.words for segment in result.segments)
        return [(token.t_dtw, token.t_dtw_start, token.t_dtw_end) for one in result.segments for token in one.tokens]


@pytest.mark.parametrize("form", FORMS)
def test_times_come_from_the_heads_that_the_files_name(form: str, file: ModelFile, tmp_path: Path) -> None:
    makers = {"huggingface": huggingface, "ctranslate2": ctranslate2, "gguf": gguf}
    path = makers[form](file, tmp_path / form, None)
    with Context.load(SHAPE.to_bytes()) as ctx:
        preset, n_top = preset_for(ctx.hparams)
        usual = resolve(preset, n_top, None, ctx.hparams)
    assert usual != HEADS
    by_usual = attended(path, usual)  # a choice of the caller's comes first
    assert attended(path) == attended(path, HEADS) != by_usual


def test_times_come_from_the_heads_of_the_shape_where_the_file_names_none() -> None:
    with Context.load(SHAPE.to_bytes()) as ctx:
        heads = resolve(*preset_for(ctx.hparams), None, ctx.hparams)
    assert attended(SHAPE.to_bytes()) == attended(SHAPE.to_bytes(), heads) != attended(SHAPE.to_bytes(), HEADS)


def dtw_of(source: Path, preset: int, heads: tuple[tuple[int, int], ...] = ()) -> list[int] | None:
    params = capi.whisper_context_default_params()
    params.dtw_token_timestamps, params.dtw_aheads_preset = True, preset
    params.dtw_aheads = capi.whisper_aheads(n_heads=len(heads), heads=list(heads))
    ctx = capi.whisper_init_from_file_with_params(str(source), params)
    if ctx is None:
        return None
    wanted = capi.whisper_full_default_params(capi.WHISPER_SAMPLING_GREEDY)
    wanted.temperature_inc = 0.0
    assert capi.whisper_full(ctx, wanted, SOUND, len(SOUND)) == 0
    times = [
        capi.whisper_full_get_token_data(ctx, i, j).t_dtw
        for i in range(capi.whisper_full_n_segments(ctx))
        for j in range(capi.whisper_full_n_tokens(ctx, i))
    ]
    capi.whisper_free(ctx)
    return times


def test_whisper_cpp_s_interface_takes_a_file_s_heads_where_no_preset_is_chosen(
    file: ModelFile, tmp_path: Path
) -> None:
    """whisper.cpp makes no state then, and its own files name no heads: that stays so."""
    path, ggml = huggingface(file, tmp_path / "folder"), SHAPE.write(tmp_path / "model.bin")
    assert dtw_of(ggml, capi.WHISPER_AHEADS_NONE) is None
    times = dtw_of(path, capi.WHISPER_AHEADS_NONE)
    assert times and max(times) > 0
    assert times == dtw_of(path, capi.WHISPER_AHEADS_CUSTOM, HEADS)
