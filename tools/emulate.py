"""Runs the tests of the kernels for AVX-512 on a machine that has AVX2 alone.

    python tools/emulate.py                                   all tests of the kernels, both sets of AVX-512
    python tools/emulate.py --sets avx512-bf16                only this one
    python tools/emulate.py --sanitize                        under AddressSanitizer and UndefinedBehaviorSanitizer, too
    python tools/emulate.py -- tests/kernels/test_scan.py -x  what comes after -- goes to pytest

Compiles backends/kernels with gcc into build/emulate, with the instructions that are missing written in terms of those
that are there (backends/kernels/emulation), and runs tests/kernels with these libraries. The exit status is 0 when all
tests passed. What is tested is what the code computes: not its speed, nor what the compiler makes of the instructions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tools import sanitize  # noqa: E402

SETS: Final = ("avx512", "avx512-bf16")
EMULATE: Final = ("-DWX_EMULATE=ON",)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="instruction sets (both)")
    parser.add_argument("--sanitize", action="store_true", help="fail on what the sanitizers report, too")
    parser.add_argument("--into", type=Path, default=ROOT / "build/emulate", help="where it is built (%(default)s)")
    own, rest = sys.argv[1:], []
    if "--" in own:
        cut = own.index("--")
        own, rest = own[:cut], own[cut + 1 :]
    arguments = parser.parse_args(own)
    folder = arguments.into.absolute()
    if arguments.sanitize:
        return sanitize.kernels(arguments.sets, rest, folder / "sanitize", EMULATE)
    options = (*EMULATE, "-DCMAKE_BUILD_TYPE=Release")
    libraries = sanitize.compile_kernels(folder, arguments.sets, os.environ.get("CC", "gcc"), options)
    variables = {**os.environ, "WHISPYX_TEST_KERNELS": str(libraries)}
    command = [sys.executable, "-m", "pytest", *(rest or ["tests/kernels"])]
    return subprocess.run(command, cwd=ROOT, env=variables).returncode


if __name__ == "__main__":
    sys.exit(main())
