"""Loads damaged voice activity models and reports each as a JSON line. Run by test_vad_files.py."""

from __future__ import annotations

import io
import json
import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

import whispyx.plugins
from tests.oracle.damage import Case
from tests.oracle.vad_model import SmallSilero, cases
from whispyx._core.handles import live
from whispyx._core.vad.detect import VadModel
from whispyx.errors import ComputeError, ModelFormatError

ADDRESS_SPACE = 4 << 30  # an absurd allocation fails here before it can trouble the machine


def attempt(case: Case, way: int, folder: str) -> dict[str, Any]:
    """Load the case by path, bytes or file object, and use the model if there is one."""
    source: Any = case.data
    if way == 0:
        source = str(Path(folder) / "case.bin")
        Path(source).write_bytes(case.data)
    elif way == 1:
        source = io.BytesIO(case.data)
    try:
        model = VadModel.load(source, n_threads=1)
    except ModelFormatError as error:
        return {"outcome": "refused", "message": str(error)}
    except Exception as error:
        return {"outcome": "wrong error", "message": f"{type(error).__name__}: {error}"}
    try:
        n = model.detect(SOUND).size
    except ComputeError as error:  # huge weights give values that are none
        return {"outcome": "cannot compute", "message": str(error)}
    except Exception as error:
        return {"outcome": "does not work", "message": f"{type(error).__name__}: {error}"}
    finally:
        model.close()
    return {"outcome": "works", "message": f"{n} windows"}


SOUND = np.random.default_rng(4).standard_normal(3000).astype(np.float32)


def main() -> None:
    first = int(sys.argv[1])
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # whose bookkeeping takes terabytes of addresses
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    whispyx.plugins.load()
    with tempfile.TemporaryDirectory() as folder:
        for i, case in enumerate(cases(SmallSilero())):
            if i < first:
                continue
            print(json.dumps({"name": case.name, "verdict": case.verdict}), flush=True)
            outcome = attempt(case, i % 3, folder)
            print(json.dumps({**outcome, "open": sum(live().values())}), flush=True)


if __name__ == "__main__":
    main()
