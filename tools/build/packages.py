"""Python packages that a compilation uses: those of this environment, or fetched with pip into a folder of our own."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools.build import BuildError

__all__ = ["folder_of", "provide"]


def folder_of(module: str) -> Path | None:
    """Return the folder of an importable package without importing it, or None."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    return Path(places[0]) if places else None


def provide(requirement: str, store: Path, tell: Callable[[str], None], *, offline: bool) -> None:
    """Make a package importable here and its programs found; fetch it with pip into `store` unless it lies there.

    Raises
    ------
    BuildError
        It cannot be fetched; with what to do.
    """
    name = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
    kind = hashlib.sha256(f"{requirement} {sysconfig.get_platform()}".encode()).hexdigest()[:8]
    folder = store / f"{name}-{kind}"
    if not folder.is_dir():
        if offline:
            raise BuildError(
                f"{requirement} is needed and WHISPYX_BUILD_OFFLINE=1 forbids to fetch it. Install it by other means "
                f"first: '{sys.executable} -m pip install {requirement!r}' from a folder of wheels, for example."
            )
        tell(f"getting {requirement}")
        store.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=store))
        try:
            _fetch(requirement, scratch)
            scratch.chmod(0o755)
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    # Programs in it, such as ninja.
    os.environ["PATH"] = os.pathsep.join(filter(None, [str(folder / "bin"), os.environ.get("PATH")]))


def _fetch(requirement: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--target", str(folder), "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-warn-script-location", "--progress-bar", "off", requirement]
    env = {**os.environ, "PIP_USER": "0"}  # a setting of the user's that --target does not go together with
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode == 0:
        return
    output = done.stdout + done.stderr
    if "No module named pip" in output:
        raise BuildError(
            f"{requirement} has to be fetched with pip, but {sys.executable} has no pip. Run '{sys.executable} -m "
            f"ensurepip', or install {requirement} with your own installer, and build again."
        )
    last = next((line.strip() for line in reversed(output.splitlines()) if "error" in line.lower()), "no message")
    raise BuildError(
        f"{requirement} is needed to build and could not be fetched with pip. Check the network and pip's index "
        f"settings ('pip config list'), or install it by other means ('pip install whispyx[build]' brings cmake and "
        f"ninja; those of the system are used when they are on PATH). pip said: {last}"
    )
