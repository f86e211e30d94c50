"""Builds a plugin, shows what it does, and writes that into its page under docs/backends.

    python tools/prove.py vulkan                      build, test every operation, transcribe with tiny.en
    python tools/prove.py cuda                        compile for one architecture and load it (needs no GPU)
    python tools/prove.py vulkan --plugin FILE        with a plugin that was built before
    python tools/prove.py vulkan --only load speech   these steps; the others stay as they are in the page

With an NVIDIA GPU, tests/device/run.sh goes further. The exit status is 0 when every step went as it should.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOISE = ("lavapipe is not a conformant vulkan implementation",)
MODEL = "tiny.en"


@dataclass
class Proof:
    """One run: the plugin, where it lies, the variables that choose its device, and whether all is well so far."""

    name: str
    folder: Path
    plugin: Path | None
    env: dict[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    fine: bool = True

    def shown(self, text: str) -> str:
        """Return `text` without what belongs to this machine alone."""
        for path, name in ((str(self.folder), "PLUGINS"), (str(ROOT), "."), (str(Path.home()), "~")):
            text = text.replace(path, name)
        text = re.sub(r"/\S*/site-packages", "site-packages", text)
        return "\n".join(line.rstrip() for line in text.splitlines() if not any(noise in line for noise in NOISE))

    def run(self, command: list[str], title: str, *, expected: int = 0) -> str:
        """Run a command; return it with its output and its time as a Markdown block."""
        environment = {**os.environ, "WHISPYX_BACKEND_PATH": str(self.folder), **self.env}
        started = time.perf_counter()
        print(f"$ {title}", flush=True)
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
        )  # fmt: skip
        seconds = time.perf_counter() - started
        print(done.stdout, flush=True)
        if done.returncode != expected:
            self.fine = False
        variables = "".join(f"{key}={value} " for key, value in self.env.items())
        output = self.shown(done.stdout)
        return f"```text\n$ {variables}{title}\n{output}\n[exit status {done.returncode}, {seconds:.0f} s]\n```"


def build(proof: Proof) -> str:
    """compile the plugin"""
    file = f"libggml-{proof.name}.so"
    proof.folder.mkdir(parents=True, exist_ok=True)
    if proof.plugin is not None:
        shutil.copy(proof.plugin, proof.folder / file)
        text = "The plugin was compiled before this run."
    else:
        command = [sys.executable, "-m", "whispyx", "backends", "build", proof.name, "--into", str(proof.folder)]
        for option in proof.options:
            command += ["--set", option]
        options = "".join(f" --set {option}" for option in proof.options)
        text = proof.run(command, f"whispyx backends build {proof.name}{options}")
    made = proof.folder / file
    if not made.is_file():
        proof.fine = False
        return text + f"\n\nThere is no {file}."
    return text + f"\n\n`{file}`: {made.stat().st_size / 1e6:.1f} MB."


def load(proof: Proof) -> str:
    """load it"""
    # Without an NVIDIA GPU the CUDA plugin loads, starts and finds no device, and the command says so by its status.
    expected = 1 if proof.name == "cuda" else 0
    command = [sys.executable, "-m", "whispyx.plugins", "--backend", proof.name]
    return proof.run(command, f"python -m whispyx.plugins --backend {proof.name}", expected=expected)


def operations(proof: Proof) -> str:
    """compute every operation and compare with the plain CPU"""
    command = [sys.executable, "-m", "whispyx", "backends", "test", proof.name]
    return proof.run(command, f"whispyx backends test {proof.name}")


def speech(proof: Proof) -> str:
    """transcribe a recording and compare with the CPU"""
    where = [sys.executable, "-c", "from whispyx.models import sample; print(sample('jfk'))"]
    audio = subprocess.run(where, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    command = [sys.executable, "tests/device/compare.py", proof.name, "--models", MODEL, "--audio", audio]
    command += ["--runs", "1", "--seconds", "1800"]
    title = f"python tests/device/compare.py {proof.name} --models {MODEL} --audio jfk.wav --runs 1"
    return proof.run(command, title)


STEPS: dict[str, Callable[[Proof], str]] = {step.__name__: step for step in (build, load, operations, speech)}
STEPS_OF = {"vulkan": ("build", "load", "operations", "speech"), "cuda": ("build", "load")}


def machine() -> str:
    """Return one line about where and when this was."""
    cpu = platform.processor() or platform.machine()
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        found = None
    if found:
        cpu = found.group(1)
    date = datetime.datetime.now(datetime.timezone.utc).date()
    return f"{date}, {platform.system()} {platform.machine()}, {cpu}, {os.cpu_count()} cores."


def write(page: Path, step: str, text: str) -> None:
    """Put `text` between the markers of `step` in the page."""
    begin, end = f"<!-- proof: {step} -->\n", f"<!-- end: {step} -->"
    whole = page.read_text(encoding="utf-8")
    before, found, rest = whole.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{page} has no markers for the step '{step}'")
    page.write_text(f"{before}{begin}{text}\n{end}{after}", encoding="utf-8")


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(STEPS_OF))
    parser.add_argument("--plugin", type=Path, help="a plugin that was built before")
    parser.add_argument("--only", nargs="+", choices=list(STEPS), metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--set", action="append", default=[], metavar="OPTION=VALUE", help="of CMake, for the build")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "prove", help="where plugins go (%(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="do not write into the page")
    arguments = parser.parse_args()
    proof = Proof(arguments.name, (arguments.into / arguments.name).absolute(), arguments.plugin, options=arguments.set)
    if proof.name == "vulkan":
        proof.env["GGML_VK_VISIBLE_DEVICES"] = os.environ.get("GGML_VK_VISIBLE_DEVICES", "0")
        # Mesa's software driver (22.3.6) damages its own memory with products in f16.
        proof.env["GGML_VK_DISABLE_F16"] = os.environ.get("GGML_VK_DISABLE_F16", "1")
    elif not proof.options:
        proof.options = ["CMAKE_CUDA_ARCHITECTURES=75-virtual"]
    page = ROOT / "docs" / "backends" / f"{proof.name}.md"
    for step in STEPS_OF[proof.name]:
        if arguments.only and step not in arguments.only:
            continue
        text = f"{machine()}\n\n{STEPS[step](proof)}"
        if not arguments.dry_run:
            write(page, step, text)
    print("proven" if proof.fine else "NOT proven", proof.name)
    return 0 if proof.fine else 1


if __name__ == "__main__":
    sys.exit(main())
