"""Every weight type that the loader accepts is one that the engine computes with, and correctly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.oracle.compare import nmse_tolerance

CHILD = Path(__file__).with_name("weight_types_child.py")
AT_LEAST = {"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K"}


def test_every_accepted_weight_type_gives_the_oracles_logits(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, str(CHILD), str(tmp_path)], capture_output=True, text=True, timeout=600)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 0, f"the process ended with {run.returncode} after {lines[-1:]}:\n{run.stderr[-2000:]}"
    found = {line["type"]: line["nmse"] for line in lines if "type" in line}
    print(found)
    assert found.keys() >= AT_LEAST
    # The weights are what ggml's own conversion says they are, so only the arithmetic on them is judged.
    bad = {name: errors for name, errors in found.items() if max(errors) > nmse_tolerance(name)}
    assert not bad
