"""A real recording gives the same text on every backend that is here, and nearly the same logits."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import backends
from bench.backends import Outcome, Way
from tests import data
from whispyx.plugins import discovery

# Logits of tiny.en reach some 20. What backends on f16 weights differ by was measured as 0.03 at most; OpenVINO
# computes in bf16 where the processor can, which made 0.1.
NEAR = 0.25
NEAR_OPENVINO = 1.0
TAGS = {c.tag for c in discovery.discover(frozenset({"cpu"})).candidates if c.name == "cpu"}


def options(*plugins: Path) -> argparse.Namespace:
    return argparse.Namespace(threads=2, rounds=0, plugins=list(plugins))


@pytest.fixture(scope="module")
def model() -> str:
    return str(data.or_skip(data.model_file, "tiny.en"))


@pytest.fixture(scope="module")
def sound() -> str:
    return str(data.or_skip(data.jfk_wav))


@pytest.fixture(scope="module")
def reference(model: str, sound: str) -> Outcome:
    """The plainest CPU."""
    found = backends.run(backends.WAYS[0], options(), model, sound)
    assert found.error == ""
    return found


@pytest.mark.parametrize("way", backends.WAYS[1:], ids=lambda way: way.name)
def test_the_text_is_the_same(
    way: Way, reference: Outcome, model: str, sound: str, built: Callable[[str], Path]
) -> None:
    name = way.name.partition(",")[0]
    folders = []
    if name.startswith("cpu-"):
        if name.removeprefix("cpu-") not in TAGS:
            pytest.skip(f"the CPU variant {name} is not built (WHISPYX_CPU_VARIANTS)")
    elif way.encoder is not None:
        if importlib.util.find_spec(way.encoder) is None:
            pytest.skip(f"the package {way.encoder} is not installed")
    else:
        folders.append(built(name))
    found = backends.run(way, options(*folders), model, sound, reference.tokens)
    if name == "cpu-zen4" and "does not support this machine" in found.error:
        pytest.skip(found.error)
    assert found.error == ""
    (row,) = backends.rows([reference, found])[1:]
    assert "ask not what your country can do for you" in row["text"]
    assert row["same_text"]
    assert row["same_tokens"]
    near = NEAR_OPENVINO if way.encoder else NEAR
    assert 0 < row["first"] < near
    assert 0 < row["later"] < near
