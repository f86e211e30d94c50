from __future__ import annotations

from collections.abc import Callable

import pytest

from whispyx.model import Model

from .fakes import FakeEngine


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeEngine], FakeEngine]:
    """Put a fake engine under every `Model` of the test."""

    def put(engine: FakeEngine) -> FakeEngine:
        monkeypatch.setattr(Model, "_engine", engine)
        return engine

    return put
