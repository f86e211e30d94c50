"""Runs a program that imports pywhispercpp on whispyx:

python -m whispyx.compat.pywhispercpp program.py ARGUMENTS
python -m whispyx.compat.pywhispercpp -m pywhispercpp.examples.main ARGUMENTS
"""

import os
import runpy
import sys

from whispyx.compat.pywhispercpp import install


def main() -> None:
    """Put whispyx in the extension's place, then run what the command line names as Python itself would."""
    if len(sys.argv) < 2 or (sys.argv[1] == "-m" and len(sys.argv) < 3):
        sys.exit((__doc__ or "").strip())
    install()
    if sys.argv[1] == "-m":
        module = sys.argv[2]
        sys.argv = [module, *sys.argv[3:]]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        del sys.argv[0]
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
