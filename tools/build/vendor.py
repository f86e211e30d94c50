"""Puts the pinned ggml source into vendor/ggml: fetch by name, verify, unpack, patch, rename into place."""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tools.build import ROOT, BuildError
from tools.build.config import BuildConfig
from tools.build.patching import PatchError, apply_patch

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Pin", "check_tree", "ensure", "pinned", "read_pin", "source_tree", "unpack"]

VENDOR: Final = ROOT / "vendor"
STAMP: Final = ".whispyx-pin.json"
"""File inside the unpacked tree that says which pin and patches made it."""


@dataclass(frozen=True)
class Pin:
    """What vendor/ggml.toml says."""

    package: str
    package_version: str
    sha256: str
    folder: str
    build_backend: str
    ggml_version: str
    api_version: int
    keep: tuple[str, ...]

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.package_version}"


def read_pin(path: Path = VENDOR / "ggml.toml") -> Pin:
    """Read the pin file."""
    with path.open("rb") as file:
        data = tomllib.load(file)
    package, ggml = data["package"], data["ggml"]
    return Pin(
        package=package["name"],
        package_version=package["version"],
        sha256=package["sha256"],
        folder=package["folder"],
        build_backend=package["build-backend"],
        ggml_version=ggml["version"],
        api_version=ggml["api-version"],
        keep=tuple(ggml["keep"]),
    )


def source_tree(config: BuildConfig) -> Path:
    """Return the ggml tree this build uses, fetching the pinned one if it is not there yet."""
    if config.ggml_source is None:
        return ensure(offline=config.offline)
    check_tree(config.ggml_source, read_pin(), "WHISPYX_GGML_SOURCE")
    return config.ggml_source


def ensure(*, offline: bool = False, vendor: Path = VENDOR, target: Path | None = None) -> Path:
    """Return a ggml tree, fetched and patched as the pin says.

    Parameters
    ----------
    offline : bool
        Raise instead of fetching.
    vendor : pathlib.Path
        Folder that holds ggml.toml and patches/.
    target : pathlib.Path, optional
        Where the tree is wanted; `vendor`/ggml by default.

    Raises
    ------
    BuildError
        The source cannot be fetched, is not the pinned one, or a patch does not apply.
    """
    pin = read_pin(vendor / "ggml.toml")
    patches = sorted((vendor / "patches").glob("*.patch"))
    wanted = _stamp(pin, patches)
    target = vendor / "ggml" if target is None else target
    if _is_made_of(target, wanted):
        return target
    if offline:
        where = "vendor/ggml" if target == VENDOR / "ggml" else str(target)
        raise BuildError(
            f"{where} does not hold ggml {pin.ggml_version} as pinned, and WHISPYX_BUILD_OFFLINE=1 forbids to fetch "
            f"it. Build once with the network, start from our source distribution (it contains the tree), or set "
            f"WHISPYX_GGML_SOURCE to a tree of ggml {pin.ggml_version}."
        )
    with tempfile.TemporaryDirectory(prefix="whispyx-ggml-") as scratch:
        archive = fetch(pin, Path(scratch))
        unpack(archive, pin, patches, target, wanted)
    return target


def pinned(vendor: Path = VENDOR) -> tuple[str, bool]:
    """Return a short digest of the pin and the patches in `vendor`, and whether `vendor`/ggml is made of them."""
    wanted = _stamp(read_pin(vendor / "ggml.toml"), sorted((vendor / "patches").glob("*.patch")))
    return hashlib.sha256(wanted.encode()).hexdigest()[:12], _is_made_of(vendor / "ggml", wanted)


def _is_made_of(tree: Path, stamp: str) -> bool:
    try:
        return (tree / STAMP).read_text(encoding="utf-8") == stamp
    except OSError:
        return False  # no tree yet, or one without a stamp


def _stamp(pin: Pin, patches: list[Path]) -> str:
    digests = {patch.name: hashlib.sha256(patch.read_bytes()).hexdigest() for patch in patches}
    made_of = {"package": pin.requirement, "sha256": pin.sha256, "keep": pin.keep, "patches": digests}
    return json.dumps(made_of, indent=1)


def fetch(pin: Pin, folder: Path) -> Path:
    """Let pip download the source distribution into `folder`; return the verified archive."""
    # pip asks the package's build backend for its metadata before it hands the archive over. A stand-in answers, so
    # that no foreign code runs and nothing else has to be fetched; with --require-hashes pip itself refuses a wrong
    # archive even before that.
    module = folder.joinpath("stand-in", *pin.build_backend.split(".")).with_suffix(".py")
    module.parent.mkdir(parents=True)
    stem = pin.package.replace("-", "_")
    module.write_text(_STAND_IN.format(name=pin.package, stem=stem, version=pin.package_version), encoding="utf-8")
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{pin.requirement} --hash=sha256:{pin.sha256}\n", encoding="utf-8")
    downloads = folder / "downloads"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation", "--use-pep517"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--no-binary", pin.package]
    command += ["--require-hashes", "-r", str(requirements), "-d", str(downloads)]
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder / "stand-in"), env.get("PYTHONPATH")]))
    env.pop("PIP_BUILD_TRACKER", None)  # this pip is not a step of the pip that may have started us
    print(f"whispyx build: fetching {pin.requirement} (ggml {pin.ggml_version}) with pip", flush=True)
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise _fetch_error(pin, done.stdout + done.stderr)
    archives = sorted(downloads.glob("*.tar.gz"))
    if len(archives) != 1:
        raise BuildError(
            f"pip downloaded {[a.name for a in sorted(downloads.glob('*'))]} for {pin.requirement}, but exactly one "
            f".tar.gz was expected. The index that pip uses offers something else under that name."
        )
    return archives[0]


_STAND_IN: Final = """\
import os

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = "{stem}-{version}.dist-info"
    os.mkdir(os.path.join(metadata_directory, folder))
    with open(os.path.join(metadata_directory, folder, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return folder
"""


def _fetch_error(pin: Pin, output: str) -> BuildError:
    by_hand = (
        f"An archive fetched by other means works too: put it into a folder and set PIP_FIND_LINKS=FOLDER; or set "
        f"WHISPYX_GGML_SOURCE to a tree of ggml {pin.ggml_version}; or start from our source distribution, which "
        f"contains the tree."
    )
    got = re.search(r"Got\s+([0-9a-f]{64})", output)
    if got or "DO NOT MATCH THE HASHES" in output:
        return _hash_error(pin, got.group(1) if got else "something else")
    if "No module named pip" in output:
        return BuildError(
            f"The ggml source ({pin.requirement}) has to be fetched with pip, but {sys.executable} has no pip. "
            f"Run '{sys.executable} -m ensurepip', then build again. {by_hand}"
        )
    last = next((line.strip() for line in reversed(output.splitlines()) if "error" in line.lower()), "no message")
    return BuildError(
        f"The ggml source ({pin.requirement}) could not be fetched with pip. Check the network and pip's index "
        f"settings ('pip config list'). {by_hand} pip said: {last}"
    )


def _hash_error(pin: Pin, got: str) -> BuildError:
    return BuildError(
        f"The archive of {pin.requirement} has SHA-256 {got}, but vendor/ggml.toml pins {pin.sha256}. It was damaged "
        f"on the way or is not the file that was pinned, and nothing of it is used. Fetch again ('pip cache purge' "
        f"first), or check the index or folder that pip takes it from."
    )


def unpack(archive: Path, pin: Pin, patches: list[Path], target: Path, stamp: str) -> None:
    """Verify `archive`, unpack the ggml tree in it beside `target`, patch it, and rename it to `target`."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != pin.sha256:
        raise _hash_error(pin, digest)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".ggml-", dir=target.parent))
    except OSError as error:
        raise BuildError(
            f"The ggml source cannot be unpacked into {target.parent}: {error.strerror}. The build writes into the "
            f"source tree: make it writable, or copy the tree to a folder that is."
        ) from error
    try:
        fresh = scratch / "new"
        _extract(archive, pin, fresh)
        check_tree(fresh, pin, f"The archive of {pin.requirement}")
        for patch in patches:
            try:
                apply_patch(patch.read_text(encoding="utf-8"), fresh)
            except PatchError as error:
                raise BuildError(
                    f"{patch.name} does not apply to ggml {pin.ggml_version}: {error}. Nothing was unpacked. Make the "
                    f"patch again from the pinned tree, or remove it from vendor/patches if upstream has the change."
                ) from error
        (fresh / STAMP).write_text(stamp, encoding="utf-8")
        if target.exists():
            _keep_times(target, fresh)
            target.rename(scratch / "old")
        fresh.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _keep_times(old: Path, fresh: Path) -> None:
    """Give files that did not change their old time, so that only what a new patch touches is compiled again."""
    for path in fresh.rglob("*"):
        before = old / path.relative_to(fresh)
        if path.is_file() and before.is_file() and filecmp.cmp(path, before, shallow=False):
            stat = before.stat()
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _extract(archive: Path, pin: Pin, target: Path) -> None:
    """Write the kept files of the ggml folder to `target`; plain files only, and never outside of it."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                parts = PurePosixPath(member.name).parts[1:]  # the first is name-version
                if len(parts) < 2 or parts[0] != pin.folder or parts[1] not in pin.keep or not member.isfile():
                    continue
                if ".." in parts:
                    raise BuildError(
                        f"The archive of {pin.requirement} holds the unsafe path {member.name!r}: refused."
                    )
                source = tar.extractfile(member)
                assert source is not None  # a plain file always has content
                path = target.joinpath(*parts[1:])
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(source.read())
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BuildError(f"The archive of {pin.requirement} cannot be unpacked: {error}.") from error


def check_tree(tree: Path, pin: Pin, what: str) -> None:
    """Raise BuildError unless `tree` is ggml of the pinned version and plugin interface."""
    try:
        cmake = (tree / "CMakeLists.txt").read_text(encoding="utf-8", errors="replace")
        header = (tree / "src" / "ggml-backend-impl.h").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BuildError(
            f"{what} is not a ggml source tree: {error.filename} is missing. The top folder of ggml {pin.ggml_version} "
            f"is expected, the one with CMakeLists.txt, include/ and src/."
        ) from error
    numbers = [re.search(rf"set\(GGML_VERSION_{part}\s+(\d+)\)", cmake) for part in ("MAJOR", "MINOR", "PATCH")]
    version = ".".join(found.group(1) if found else "?" for found in numbers)
    if version != pin.ggml_version:
        raise BuildError(
            f"{what} holds ggml {version}, but this whispyx is made for ggml {pin.ggml_version}: names, layouts and "
            f"results differ between releases. Use that release, or leave WHISPYX_GGML_SOURCE unset."
        )
    api = re.search(r"#\s*define\s+GGML_BACKEND_API_VERSION\s+(\d+)", header)
    if not api or int(api.group(1)) != pin.api_version:
        raise BuildError(
            f"{what} has plugin interface (GGML_BACKEND_API_VERSION) {api.group(1) if api else 'unknown'}, but "
            f"{pin.api_version} is expected by this whispyx. Use an unchanged ggml {pin.ggml_version}."
        )
