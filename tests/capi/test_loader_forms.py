"""Loaders that give models in formats which the C library does not know, and what is no model."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.capi.test_context import loader_of, one_kilobyte, params, silent
from tests.models.formats import torch_maker
from whispyx import capi
from whispyx.conversion import convert


@pytest.fixture(scope="module", params=["gguf", "openai"])
def other_form(request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model in a format that the C library does not know."""
    if request.param == "openai":
        with pytest.MonkeyPatch.context() as patch:
            for name, size in (("WIDTH", 64), ("N_AUDIO_CTX", 100), ("N_TEXT_CTX", 448)):
                patch.setattr(torch_maker, name, size)
            return torch_maker.Checkpoint().encoded()
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    convert(str(model), path)
    return path.read_bytes()


def says_all(read: Callable[..., Any]) -> Callable[..., Any]:
    """Like a loader on a C++ stream: what was asked for counts as read, whatever there was."""

    def claiming(context: Any, output: memoryview, size: int) -> int:
        read(context, output, size)
        return size

    return claiming


@pytest.mark.parametrize(
    "change",
    [
        lambda read: read,
        lambda read: silent(read, None),
        lambda read: silent(read, 1 << 40),
        says_all,
        one_kilobyte,
    ],
    ids=["honest", "says nothing", "says too much", "says all", "short"],
)
def test_a_loader_may_give_any_file_that_is_a_model(other_form: bytes, change: Callable[..., Any]) -> None:
    closed: list[object] = []
    plain = loader_of(io.BytesIO(other_form))
    loader = capi.whisper_model_loader(
        context="the context", read=change(plain.read), eof=plain.eof, close=closed.append
    )
    ctx = capi.whisper_init_with_params_no_state(loader, params())
    assert ctx is not None and closed == ["the context"]
    direct = capi.whisper_init_from_buffer_with_params_no_state(other_form, None, params())
    assert direct is not None
    assert ctx.core.hparams.as_dict() == direct.core.hparams.as_dict() and ctx.core.n_tensors == direct.core.n_tensors
    capi.whisper_free(direct)
    capi.whisper_free(ctx)


def test_what_ends_in_the_marks_that_a_loader_finds_in_its_blocks_is_read_whole(other_form: bytes) -> None:
    # A GGUF file may end in any bytes; these look like a block that was not written to its end.
    if not other_form.startswith(b"GGUF"):
        pytest.skip("a zip file ends in its own record")
    for n in (1, 7, 31):
        at = len(other_form) % (1 << 22) - 4096 - n
        content = other_form[:-n] + bytes(0xA5 + (at + i) % 64 for i in range(n))
        plain = loader_of(io.BytesIO(content))
        ctx = capi.whisper_init_no_state(capi.whisper_model_loader(read=silent(plain.read, None), eof=plain.eof))
        assert ctx is not None
        capi.whisper_free(ctx)


def test_a_loader_that_gives_no_model_is_not_read_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[int] = []
    for start in (b"<!DOCTYPE html>", b"RIFF", b"\x80\x02", bytes(16), (1 << 13).to_bytes(8, "little") + b"{"):
        asked.clear()

        def read(context: Any, output: memoryview, size: int, start: bytes = start) -> int:
            output[:] = b"<" * size if asked else (start + b"<" * size)[:size]
            asked.append(size)
            return size

        caplog.clear()
        with caplog.at_level(logging.ERROR, "whispyx.capi"):
            assert capi.whisper_init(capi.whisper_model_loader(read=read, eof=lambda context: False)) is None
        assert sum(asked) == 4096 and "whisper_init" in caplog.text


def test_a_loader_without_an_end_is_left_when_no_model_is_that_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whispyx.capi._loader.MAX_FILE", 1 << 23)
    given: list[int] = []

    def read(context: Any, output: memoryview, size: int) -> int:
        output[:] = (b"" if given else b"GGUF") + bytes(size - (0 if given else 4))
        given.append(size)
        return size

    assert capi.whisper_init(capi.whisper_model_loader(read=read, eof=lambda context: False)) is None
    assert sum(given) <= (1 << 23) + (1 << 22) + 4096


def test_a_cut_model_of_another_form_gives_null(other_form: bytes) -> None:
    for n in (4, 100, 4096, 5000, len(other_form) // 2, len(other_form) - 40):
        assert capi.whisper_init(loader_of(io.BytesIO(other_form[:n]))) is None, n
