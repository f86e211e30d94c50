"""Whatever the parameters and however short the sound: the process lives, and every call has a documented outcome."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CHILD = Path(__file__).with_name("fuzz_child.py")
EXAMPLES = 150


def test_random_calls_never_end_the_process(model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(CHILD), str(model), str(EXAMPLES)],
        capture_output=True,
        text=True,
        cwd=CHILD.parents[2],
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    print(outcomes)
    # The examples reach success, refusals and several of the codes.
    assert outcomes["0"] > EXAMPLES // 5
    assert outcomes["ParamsError"] > 0
    assert {"-3", "-4"} <= set(outcomes)
    assert {f"{stage} 0" for stage in ("pcm_to_mel", "set_mel", "encode", "decode", "detect")} <= set(outcomes)
