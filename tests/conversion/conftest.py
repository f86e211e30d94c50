"""What tests of conversions share: the speech that they are heard on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import data
from whispyx.audio import load


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """jfk as a file of float32, which every worker can read without a sound library."""
    path = tmp_path_factory.mktemp("sound") / "jfk.npy"
    np.save(path, load(data.or_skip(data.jfk_wav)))
    return path
