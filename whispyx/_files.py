"""Files that are read whole, whatever gives them, and files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from whispyx.errors import ModelError

__all__ = ["WholeFile", "read_all"]

_MAX_PREFIX = 100  # of a temporary file's name, which must not be longer than the system allows


def read_all(file: Any, name: str = "") -> bytes:
    """Read a binary file object to its end, however little it gives at a time.

    Parameters
    ----------
    file : binary file object
    name : str, optional
        How messages call it; what it calls itself if it does.

    Raises
    ------
    TypeError
        It gives something else than bytes.
    ModelError
        It cannot be read.
    """
    parts: list[bytes | bytearray] = []
    try:
        while part := file.read():
            if not isinstance(part, (bytes, bytearray)):
                raise TypeError("a model file object must be opened in binary mode")
            parts.append(part)
    except OSError as error:
        name = name or str(getattr(file, "name", "the model file object"))
        raise ModelError(f"reading {name} failed: {error}") from error
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


class WholeFile:
    """A file to write, as a context: it appears under its name at the end, and not when anything was raised.

    Its folder is made with it. What stood under the name stays until then, and for good after an error.

    Parameters
    ----------
    target : path

    Raises
    ------
    ModelError
        It cannot be made, written or put in its place. What the body raises goes through unchanged, for an error of the
        disk that a model is read from, or of whoever is told of the progress, is none of this file.
    """

    def __init__(self, target: str | os.PathLike[str]) -> None:
        self.target = Path(target)
        self._temporary: Path | None = None
        self._file: BinaryIO | None = None

    def __enter__(self) -> WholeFile:
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(
                prefix=f".{self.target.name[:_MAX_PREFIX]}.", suffix=".tmp", dir=self.target.parent
            )
        except OSError as error:
            raise self._failed(error) from error
        self._temporary, self._file = Path(temporary), os.fdopen(handle, "wb")
        return self

    def write(self, data: Any) -> int:
        """Append bytes or what lends them, such as an array."""
        assert self._file is not None
        try:
            return self._file.write(data)
        except OSError as error:
            raise self._failed(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._file is not None and self._temporary is not None
        try:
            if error is None:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._file.close()
                self._temporary.chmod(0o666 & ~_umask())
                self._temporary.replace(self.target)
        except OSError as problem:
            raise self._failed(problem) from problem
        finally:
            self._discard()

    def _discard(self) -> None:
        """Close and remove what is left; there is nothing when the file is in its place."""
        assert self._file is not None and self._temporary is not None
        try:
            self._file.close()  # writes what is left in its buffer, which a full disk refuses
        except OSError:
            pass
        self._temporary.unlink(missing_ok=True)

    def _failed(self, error: OSError) -> ModelError:
        return ModelError(f"{self.target} could not be written: {error.strerror or error}")


def _umask() -> int:
    """Return the process's file mode mask; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
