"""Runs tests against a build that watches every access: AddressSanitizer and UndefinedBehaviorSanitizer.

    python tools/sanitize.py kernels                          all tests of the kernels, each instruction set
    python tools/sanitize.py kernels --sets avx2              only this one
    python tools/sanitize.py kernels -- tests/kernels/test_scan.py -x     what comes after -- goes to pytest

Compiles backends/kernels with gcc into build/sanitize and runs tests/kernels with these libraries. The exit status is 0
when all tests passed and the sanitizers reported nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tools.build.compiling import program  # noqa: E402

SETS: Final = ("avx2", "avx512", "avx512-bf16")
REPORT: Final = re.compile(r": runtime error: |==ERROR: \w+Sanitizer")


def compile_kernels(folder: Path, sets: Iterable[str], compiler: str) -> Path:
    """Compile kernels with the sanitizers; return the folder that holds these libraries and no others."""
    cmake, ninja = program("cmake"), program("ninja")
    if cmake is None or ninja is None:
        raise SystemExit("sanitize: cmake and ninja are needed; they come with pip install -e '.[build]'")
    configure = [cmake, "-S", str(ROOT / "backends/kernels"), "-B", str(folder), "-G", "Ninja"]
    configure += [f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    configure += [f"-DCMAKE_C_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DWX_SANITIZE=ON"]
    targets = [f"whispyx-kernels-{name}" for name in sets]
    jobs = str(len(os.sched_getaffinity(0)))
    for command in (configure, [cmake, "--build", str(folder), "--parallel", jobs, "--target", *targets]):
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            raise SystemExit(f"sanitize: this failed: {' '.join(command)}")
    libraries = folder / "lib/kernels"
    for path in libraries.iterdir():
        if path.stem not in [f"lib{target}" for target in targets]:
            path.unlink()  # of an earlier run
    return libraries


def environment(compiler: str) -> dict[str, str]:
    """Return the variables under which Python can open such libraries."""
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if not Path(runtime).is_file():
        raise SystemExit(f"sanitize: {compiler} has no libasan.so")
    return {
        "LD_PRELOAD": runtime,  # must be the first library of the process, and python was not linked with it
        # What Python keeps until its end is no leak of ours. Stacks kept after a return lie where gcc 12's aligned
        # stores of 64 bytes fail.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }


def run(command: list[str], variables: Mapping[str, str]) -> int:
    """Run a command and show all it writes; return its exit status, or 1 if a sanitizer has reported something.

    The reports of undefined behaviour of gcc 12 go to stderr alone, and the process ends as if nothing had been.
    """
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        errors="replace",
    ) as process:  # fmt: skip
        reports = 0
        for line in process.stderr or ():
            sys.stderr.write(line)
            reports += REPORT.search(line) is not None
    print(f"sanitize: {reports or 'no'} reports, and the tests ended with {process.returncode}")
    return process.returncode or int(reports > 0)


def kernels(sets: Iterable[str], rest: list[str], folder: Path) -> int:
    """Run the tests of the kernels; return the exit status."""
    compiler = os.environ.get("CC", "gcc")
    libraries = compile_kernels(folder, sets, compiler)
    # pytest must leave the stderr of C alone: what it captures of tests that pass, nobody sees.
    command = [sys.executable, "-m", "pytest", "-q", "--capture=sys", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    variables = {**environment(compiler), "WHISPYX_TEST_KERNELS": str(libraries)}
    return run([*command, *(rest or ["tests/kernels"])], variables)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kernels"])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="instruction sets (all)")
    parser.add_argument("--into", type=Path, default=ROOT / "build/sanitize", help="where it is built (%(default)s)")
    own, rest = sys.argv[1:], []
    if "--" in own:
        cut = own.index("--")
        own, rest = own[:cut], own[cut + 1 :]
    arguments = parser.parse_args(own)
    return kernels(arguments.sets, rest, arguments.into.absolute())


if __name__ == "__main__":
    sys.exit(main())
