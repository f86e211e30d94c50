"""Runs tests against a build that watches every access: AddressSanitizer and UndefinedBehaviorSanitizer.

    python tools/sanitize.py kernels                          all tests of the kernels, each instruction set
    python tools/sanitize.py kernels --sets avx2              only this one
    python tools/sanitize.py kernels -- tests/kernels/test_scan.py -x     what comes after -- goes to pytest
    python tools/sanitize.py readers                          all that reads files of models

"kernels" compiles backends/kernels with gcc into build/sanitize and runs tests/kernels with these libraries. "readers"
copies the source tree to build/sanitize/tree, builds everything there (minutes, once), and runs the tests of the
readers and their fuzzers in that tree. The exit status is 0 when all tests passed and the sanitizers reported nothing.
docs/testing.md tells more.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tools.build.compiling import program  # noqa: E402

SETS: Final = ("avx2", "avx512", "avx512-bf16")
REPORT: Final = re.compile(r": runtime error: |==ERROR: \w+Sanitizer")
NEEDED: Final = "pip install 'cython>=3.2' 'setuptools>=77' -e '.[build,test]' brings what is needed"
READERS: Final = (
    "tests/models/formats",
    "tests/models/test_convert.py",
    "tests/models/test_convert_refuses.py",
    "tests/compute/test_intake.py",
    "tests/core/test_fuzz_loader.py",
    "tests/core/test_vad_files.py",
    "tests/core/test_weight_types.py",
    "tests/damaged",
    "tests/trials/test_t18_damaged.py",
)
COPIED: Final = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")
COPIED_FOLDERS: Final = ("whispyx", "tools", "backends", "vendor", "tests", "docs")
NOT_COPIED: Final = ("__pycache__", "_native", "*.so", "*.egg-info", ".*")


def compile_kernels(folder: Path, sets: Iterable[str], compiler: str, options: Iterable[str]) -> Path:
    """Compile kernels with options of CMake; return the folder that holds these libraries and no others."""
    cmake, ninja = program("cmake"), program("ninja")
    if cmake is None or ninja is None:
        raise SystemExit("cmake and ninja are needed; they come with pip install -e '.[build]'")
    configure = [cmake, "-S", str(ROOT / "backends/kernels"), "-B", str(folder), "-G", "Ninja"]
    configure += [f"-DCMAKE_MAKE_PROGRAM={ninja}", f"-DCMAKE_C_COMPILER={compiler}", *options]
    targets = [f"whispyx-kernels-{name}" for name in sets]
    jobs = str(len(os.sched_getaffinity(0)))
    for command in (configure, [cmake, "--build", str(folder), "--parallel", jobs, "--target", *targets]):
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
            raise SystemExit(f"this failed: {' '.join(command)}")
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


def run(command: list[str], variables: Mapping[str, str], folder: Path = ROOT) -> int:
    """Run a command in a folder and show all it writes; return its exit status, or 1 if a sanitizer reported something.

    The reports of undefined behaviour of gcc 12 go to stderr alone, and the process ends as if nothing had been.
    """
    with subprocess.Popen(
        command, cwd=folder, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, errors="replace",
    ) as process:  # fmt: skip
        reports = 0
        for line in process.stderr or ():
            sys.stderr.write(line)
            reports += REPORT.search(line) is not None
    print(f"sanitize: {reports or 'no'} reports, and the tests ended with {process.returncode}")
    return process.returncode or int(reports > 0)


def copy_tree(target: Path) -> None:
    """Make `target` the source tree as it is here, without what was built. Files that are the same are left alone,
    so that a second build compiles only what has changed."""
    wanted = {Path(name) for name in COPIED}
    for top in COPIED_FOLDERS:
        for folder, folders, names in os.walk(ROOT / top):
            skipped = shutil.ignore_patterns(*NOT_COPIED)(folder, [*folders, *names])
            folders[:] = [name for name in folders if name not in skipped]
            here = Path(folder).relative_to(ROOT)
            # The stamp of the unpacked ggml begins with a point.
            wanted |= {here / name for name in names if name not in skipped or here == Path("vendor/ggml")}
    for name in wanted:
        source, copy = ROOT / name, target / name
        if not copy.is_file() or not filecmp.cmp(source, copy, shallow=False):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)  # with the time of now: it may be older than what was built of the last one
    for top in COPIED_FOLDERS:
        for path in (target / top).rglob("*"):
            if path.suffix in (".py", ".pyx", ".pxd", ".pyi") and path.relative_to(target) not in wanted:
                path.unlink()  # renamed or removed since the last run


def readers(rest: list[str], folder: Path) -> int:
    """Build everything with the sanitizers and run the tests of the readers there; return the exit status."""
    lacking = [name for name in ("Cython", "setuptools", "pytest", "hypothesis") if find_spec(name) is None]
    if lacking:
        raise SystemExit(f"sanitize: this Python lacks {', '.join(lacking)}; {NEEDED}")
    compiler = os.environ.get("CC", "gcc")
    tree, logs = folder / "tree", folder / "reports"
    variables = reader_environment(compiler, logs)
    copy_tree(tree)
    build = {**os.environ, "WHISPYX_BUILD_TYPE": "sanitize", "WHISPYX_CPU_VARIANTS": "x64"}
    made = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tree, env=build)
    if made.returncode != 0:
        raise SystemExit("sanitize: the tree was not built with the sanitizers; its messages are above")
    command = [sys.executable, "-m", "pytest", "-q", "--capture=sys", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    return watched([*command, *(rest or READERS)], {**variables, "PYTHONPATH": str(tree)}, tree, logs)


def watched(command: list[str], variables: Mapping[str, str], folder: Path, logs: Path) -> int:
    """Run a command whose processes write their reports to files in `logs`; return as `run` does."""
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    status = run(command, variables, folder)
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(logs.iterdir())]
    reports = [text for text in texts if REPORT.search(text)]  # the others tell that an absurd size was refused
    print(*reports, f"sanitize: {len(reports) or 'no'} processes had something to report", sep="\n")
    return status or int(bool(reports))


def reader_environment(compiler: str, logs: Path) -> dict[str, str]:
    """Return the variables under which Python can open the whole package, built with the sanitizers.

    The tests run many processes and keep what those write. So ASan reports to files; UBSan, whose setting for that
    gcc 12 hands to ASan, ends the process at its first report. An absurd size from a file must be an error, as it is
    where memory ends, and not the end of the process.
    """
    variables = environment(compiler)
    library = subprocess.run([compiler, "-print-file-name=libstdc++.so.6"], capture_output=True, text=True)
    return variables | {
        # ASan looks for the exceptions of C++ when it starts, which is before any module of C++ is there.
        "LD_PRELOAD": f"{variables['LD_PRELOAD']} {library.stdout.strip()}",
        "ASAN_OPTIONS": f"{variables['ASAN_OPTIONS']}:allocator_may_return_null=1:max_allocation_size_mb=8192"
        f":log_path={logs / 'report'}",
        "UBSAN_OPTIONS": f"{variables['UBSAN_OPTIONS']}:halt_on_error=1",
    }


def kernels(sets: Iterable[str], rest: list[str], folder: Path, options: Iterable[str] = ()) -> int:
    """Run the tests of the kernels; return the exit status."""
    compiler = os.environ.get("CC", "gcc")
    watched_build = ("-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DWX_SANITIZE=ON")
    libraries = compile_kernels(folder, sets, compiler, (*watched_build, *options))
    # pytest must leave the stderr of C alone: what it captures of tests that pass, nobody sees.
    command = [sys.executable, "-m", "pytest", "-q", "--capture=sys", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    variables = {**environment(compiler), "WHISPYX_TEST_KERNELS": str(libraries)}
    return run([*command, *(rest or ["tests/kernels"])], variables)


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kernels", "readers"])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="of kernels (all)")
    parser.add_argument("--into", type=Path, default=ROOT / "build/sanitize", help="where it is built (%(default)s)")
    own, rest = sys.argv[1:], []
    if "--" in own:
        cut = own.index("--")
        own, rest = own[:cut], own[cut + 1 :]
    arguments = parser.parse_args(own)
    if arguments.what == "readers":
        return readers(rest, arguments.into.absolute())
    return kernels(arguments.sets, rest, arguments.into.absolute())


if __name__ == "__main__":
    sys.exit(main())
