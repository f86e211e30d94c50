"""What all tests share: the import path, the peers, and skips that say why."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # last, so that an installed whispyx is the one under test

# What this user has built for himself must not change what the tests find.
os.environ["WHISPYX_PLUGIN_HOME"] = "/nonexistent"

# Most tests compare with others who compute as ggml does. Those of our own kernels ask for them by name.
os.environ["WHISPYX_COMPUTE"] = os.environ.get("WHISPYX_TEST_COMPUTE", "exact")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A program in the background ignores Ctrl-C, and so would all it starts. Some tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    if "s" not in config.option.reportchars:
        config.option.reportchars += "s"  # the reason of every skip is shown at the end


@pytest.fixture(scope="module", autouse=True)
def freed_memory_goes_back() -> Iterator[None]:
    """What is freed in the middle of glibc's heap stays with the process, and forks of gigabytes are slow."""
    yield
    gc.collect()
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)


@pytest.fixture(scope="session")
def lacking() -> Callable[[str], NoReturn]:
    """Skip a test that lacks something, with the reason; WHISPYX_REQUIRE_PEERS=1 makes it fail instead."""

    def stop(reason: str) -> NoReturn:
        if os.environ.get("WHISPYX_REQUIRE_PEERS", "") not in ("", "0"):
            pytest.fail(reason)
        pytest.skip(reason)

    return stop


@pytest.fixture(scope="session")
def whispercpp_python(lacking: Callable[[str], NoReturn]) -> Path:
    """Interpreter of the environment that has pywhispercpp; the test is skipped where it has not been set up.

    WHISPYX_REQUIRE_PEERS=1 turns that skip into a failure.
    """
    from tools import peers

    found = peers.python("pywhispercpp")
    if found is not None:
        return found
    lacking("peer pywhispercpp is not set up: python tools/peers.py pywhispercpp")
