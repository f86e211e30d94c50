"""`python -m tools.build`: build in place, or explain what can be chosen."""

from __future__ import annotations

import argparse
import subprocess
import sys

from tools.build import ROOT, BuildError, vendor
from tools.build.config import BuildConfig, explain
from tools.build.plugins import chosen, plan_of


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.build",
        description="Build whispyx in the source tree (the same as 'python setup.py build_ext --inplace').",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--explain", action="store_true", help="describe every environment variable of the build")
    what.add_argument("--show", action="store_true", help="print the choices and the plugins they lead to")
    what.add_argument("--fetch", action="store_true", help="only fetch, verify, unpack and patch the ggml source")
    arguments = parser.parse_args()
    try:
        if arguments.explain:
            print(explain())
        elif arguments.show:
            config = BuildConfig.from_env()
            print(config)
            print("plugins       =", ", ".join(target for b in chosen(config) for target in plan_of(b, config).targets))
        elif arguments.fetch:
            print(vendor.ensure(offline=BuildConfig.from_env().offline))
        else:
            return subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=ROOT).returncode
    except BuildError as error:
        print(error.paragraph(), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
