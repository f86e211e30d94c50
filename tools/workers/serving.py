"""What the workers of other recognisers share: commands in, answers out, one JSON object a line.

Of the standard library alone, since some of their environments have nothing else.
"""

from __future__ import annotations

import array
import json
import os
import sys
from typing import Any


def peak_kb() -> int:
    """Most memory this program has held. (ru_maxrss would count what the parent held when it started us.)"""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def serve(worker: Any) -> None:
    """Answer each command with the method of its name; `rss` is answered here."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # anything printed by mistake must not get between the answers
    for line in sys.stdin:
        command = json.loads(line)
        do = command.pop("do")
        try:
            answer = {"peak_kb": peak_kb()} if do == "rss" else getattr(worker, do)(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


def read_samples(path: str) -> array.array[float]:
    """The values of a .npy file of float32, for environments without NumPy."""
    with open(path, "rb") as file:
        if file.read(8)[:6] != b"\x93NUMPY":
            raise ValueError(f"{path} is no .npy file")
        header = file.read(int.from_bytes(file.read(2), "little")).decode("latin-1")
        if "'<f4'" not in header:
            raise ValueError(f"{path} does not hold float32: {header}")
        values = array.array("f")
        values.frombytes(file.read())
    return values
