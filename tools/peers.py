"""Other speech recognisers to compare with, each in a virtual environment of its own.

They bring their own ggml or OpenMP, so they never share a process or an environment with whispyx.

    python tools/peers.py pywhispercpp                 the wheel: whisper.cpp 1.8.5, portable code
    python tools/peers.py --native pywhispercpp        the same built here for this machine's CPU, for benchmarks
    python tools/peers.py --list

The environments lie in `.peers/` of the checkout, or in the folder that WHISPYX_PEERS names. One that is there and
complete is left alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STAMP = "whispyx-peer.json"


@dataclass(frozen=True)
class Peer:
    """A pinned package, and how to build it for this CPU where that makes a difference."""

    requirement: str
    module: str
    native_env: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.requirement.split("==")[0]


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "pywhispercpp==1.5.1",
            "_pywhispercpp",
            # its build hands every environment variable to CMake as a definition
            {
                "GGML_NATIVE": "ON",
                "GGML_OPENMP": "ON",
                "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
                "CMAKE_INSTALL_RPATH": "$ORIGIN",  # the libraries lie beside the extension module
            },
        ),
        Peer("transcribe-cpp==0.4.1", "transcribe_cpp"),
        Peer("faster-whisper==1.2.1", "faster_whisper"),
    )
}


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


def python(name: str, native: bool = False) -> Path | None:
    """The interpreter of a peer's environment; None when it has not been set up, or for another version."""
    where = environment(name, native)
    try:
        found = json.loads((where / STAMP).read_text())
    except (OSError, ValueError):
        return None
    wanted = _stamp(PEERS[name], native)
    # which Python runs the peer does not matter, as long as it is the one it was installed with
    same = all(found.get(key) == wanted[key] for key in ("requirement", "native"))
    return where / "bin" / "python" if same else None


def install(name: str, native: bool = False) -> Path:
    """Set up a peer unless it is there, and return its interpreter.

    The stamp is written last: an environment whose installation broke off is made anew.
    """
    peer = PEERS[name]
    if native and not peer.native_env:
        raise PeerError(f"{name} has no build of its own for this CPU: its wheel chooses at run time")
    ready = python(name, native)
    if ready:
        return ready
    where = environment(name, native)
    shutil.rmtree(where, ignore_errors=True)
    where.parent.mkdir(parents=True, exist_ok=True)
    venv.create(where, with_pip=True, symlinks=os.name != "nt")
    interpreter = where / "bin" / "python"
    choice = ["--no-binary", name, "--no-cache-dir"] if native else ["--only-binary", name]
    command = [str(interpreter), "-m", "pip", "install", "--disable-pip-version-check", *choice, peer.requirement]
    variables = {**os.environ, **peer.native_env} if native else dict(os.environ)
    polite = ["nice", "-n", "10"] if native and shutil.which("nice") else []  # minutes of compiling
    _run([*polite, *command], variables)
    _run([str(interpreter), "-c", f"import {peer.module}"], dict(os.environ))
    (where / STAMP).write_text(json.dumps(_stamp(peer, native), indent=1) + "\n")
    return interpreter


def _run(command: list[str], variables: dict[str, str]) -> None:
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-30:])
        raise PeerError(f"{' '.join(command)} ended with {done.returncode}:\n{tail}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="peers.py", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--native", action="store_true", help="build from source for this CPU")
    parser.add_argument("--list", action="store_true", help="show what is set up and where")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in PEERS]
    if unknown:
        parser.error(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    if not options.names and not options.list:
        parser.error("name a peer, or ask for --list")
    try:
        for name in options.names:
            print(f"{name}: {install(name, options.native)}")
    except (PeerError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.list:
        for name, peer in PEERS.items():
            for native in (False, True) if peer.native_env else (False,):
                print(f"{environment(name, native).name:22} {python(name, native) or 'not set up'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
