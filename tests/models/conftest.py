"""A cache folder of its own for every test, no proxy, and no waiting between attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from whispyx.models import download

from .file_server import Behaviour


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("WHISPYX_CACHE", str(folder))
    monkeypatch.delenv("WHISPYX_OFFLINE", raising=False)
    monkeypatch.delenv("WHISPYX_HUB", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE_S", 0.0)
    return folder


@pytest.fixture
def hub() -> Behaviour:
    return Behaviour()
