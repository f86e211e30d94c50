"""Loads damaged models one after the other and reports each as a JSON line. Run by test_fuzz_loader.py.

The name of a case is printed before it is tried, so that the parent knows which one ended this process.
"""

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
from tests.oracle.damage import Case, cases
from tests.oracle.tiny_model import speechlike
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx.errors import ComputeError, ModelFormatError

ADDRESS_SPACE = 8 << 30  # an absurd allocation fails here before it can trouble the machine


def memory_kb(field: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(field))


def forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")


def attempt(case: Case, way: int, folder: str) -> dict[str, Any]:
    """Load the case by path, bytes or file object, and use the model if there is one."""
    source: Any = case.data
    if way == 0:
        source = str(Path(folder) / "case.bin")
        Path(source).write_bytes(case.data)
    elif way == 1:
        source = io.BytesIO(case.data)
    try:
        ctx = Context.load(source)
    except ModelFormatError as error:
        return {"outcome": "refused", "message": str(error)}
    except Exception as error:
        return {"outcome": "wrong error", "message": f"{type(error).__name__}: {error}"}
    try:
        state = ctx.new_state()
        try:
            result = full(ctx, state, FullParams(n_threads=1, temperature_inc=0.0, language="en"), SOUND)
        finally:
            state.close()
    except ComputeError as error:  # weights that are not numbers give logits that are none
        return {"outcome": "cannot compute", "message": str(error)}
    except Exception as error:
        return {"outcome": "does not work", "message": f"{type(error).__name__}: {error}"}
    finally:
        ctx.close()
    return {"outcome": "works", "message": f"{len(result.segments)} segments"}


SOUND = speechlike(1.0)


def main() -> None:
    model, first = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # whose bookkeeping takes terabytes of addresses
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    whispyx.plugins.load()
    np.seterr(all="ignore")
    with tempfile.TemporaryDirectory() as folder:
        for i, case in enumerate(cases(model)):
            if i < first:
                continue
            print(json.dumps({"start": i, "name": case.name}), flush=True)
            forget_peak()
            before = memory_kb("VmRSS")
            outcome = attempt(case, i % 3, folder)
            grown = memory_kb("VmHWM") - before
            print(json.dumps({**outcome, "verdict": case.verdict, "grown_kb": grown}), flush=True)


if __name__ == "__main__":
    main()
