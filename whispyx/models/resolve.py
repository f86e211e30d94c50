"""From what a user writes as a model to a file on disk."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from whispyx.errors import ModelError, ModelNotFoundError, ParamsError

from .cache import cache_root, check_cached, locked, remember, workspace
from .names import ALIASES, MODELS, KnownModel, find, looks_like_path
from .offline import offline
from .progress import Progress

__all__ = ["cached_path", "resolve"]

log = logging.getLogger("whispyx.models")


def cached_path(name: str) -> Path:
    """Return where the cache keeps (or would keep) the model called `name`."""
    return cache_root() / "models" / find(name).file_name


def resolve(name_or_path: str | os.PathLike[str], *, progress: Progress | None = None) -> Path:
    """Return the file of a model, fetching or converting it if need be.

    Parameters
    ----------
    name_or_path : str or path
        A path (anything with a separator, a leading `~` or the ending of a model file, and every path object), or a
        name such as "tiny.en". A known name always means that model; write "./base" for a file called so.
    progress : callable, optional
        Called with (done, total or None, word) while something is fetched or converted; done and total are bytes.

    Returns
    -------
    Path
        An existing file, or a folder of a model's files.

    Raises
    ------
    ModelNotFoundError
        There is no such file, no such name, or no source has the model; the message says what each source answered.
    ModelError
        The cached file is damaged and must not be fetched again, or the cache cannot be used.
    """
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise ParamsError(f"a model is a name or a path, not {type(name_or_path).__name__}")
    if not isinstance(name_or_path, str) or looks_like_path(name_or_path):
        return _explicit(Path(os.fsdecode(name_or_path)))
    if name_or_path not in MODELS and name_or_path not in ALIASES and os.path.exists(name_or_path):
        return Path(name_or_path)
    model = find(name_or_path)
    target = cached_path(model.name)
    if _usable(target):
        return target
    with locked(target):
        if not _usable(target, warn=True):  # another process may have made it meanwhile
            _make(model, target, progress)
    return target


def _explicit(path: Path) -> Path:
    try:
        path = path.expanduser()
        os.stat(path)
    except (RuntimeError, ValueError) as error:  # the home of a user there is not; a null byte
        raise ModelNotFoundError(f"there is no model file {str(path)!r}: {error}") from error
    except (FileNotFoundError, NotADirectoryError):
        raise ModelNotFoundError(f"there is no model file {path}") from None
    except OSError as error:
        raise ModelNotFoundError(f"the model file {path} cannot be reached: {error.strerror}") from error
    return path  # a folder of a model's files, or a pipe, which can be read once


def _usable(target: Path, *, warn: bool = False) -> bool:
    try:
        problem = check_cached(target) if target.is_file() else None
    except OSError as error:
        raise ModelError(f"the cached model {target} cannot be read: {error}") from error
    if problem is None:
        return target.is_file()
    if offline():
        raise ModelError(
            f"the cached model {target} is damaged: {problem}; WHISPYX_OFFLINE forbids fetching it again, "
            "so unset that or remove the file"
        )
    if warn:
        log.warning("the cached model %s is damaged: %s; it is fetched again", target, problem)
    return False


def _make(model: KnownModel, target: Path, progress: Progress | None) -> None:
    from .sources import make_from, sources_of  # the network and the converter: only when they are needed

    answers = []
    for source in sources_of(model):
        try:
            with workspace(target) as work:
                sha256 = make_from(source, work, target, progress)
                remember(target, sha256, source.label)
        except ModelError as error:
            log.info("%s: %s: %s", model.name, source.label, error)
            answers.append(f"\n  - {source.label}: {error}")
        except OSError as error:
            raise ModelError(f"the cache folder {target.parent} cannot be used: {error}") from error
        else:
            log.info("%s: made from %s", model.name, source.label)
            return
    here = "is damaged at" if target.is_file() else "is not at"
    raise ModelNotFoundError(f"the model {model.name!r} {here} {target}, and no source has it:{''.join(answers)}")
