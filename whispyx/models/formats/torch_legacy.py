"""Files that PyTorch before 1.6 wrote: four pickles one behind the other, then the storages, each with its size."""

from __future__ import annotations

import struct
from typing import Final

from whispyx.errors import ModelFormatError

from .documents import shown
from .manifest import Blob
from .pickles import Storage, described, read_pickles
from .zips import STORED, Record

__all__ = ["MAGIC", "read_legacy"]

MAGIC: Final = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")
"""A pickle by itself: the number 0x1950a86a20f9469cfc6c."""

_VERSION: Final = 1001
_MAX_PICKLES: Final = 16 << 20  # bytes of all of them; the largest Whisper has 0.3 MB
_SIZES: Final = {
    "HalfStorage": 2, "FloatStorage": 4, "BFloat16Storage": 2, "DoubleStorage": 8, "LongStorage": 8, "IntStorage": 4,
    "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1,
}  # fmt: skip


def read_legacy(blob: Blob, root: str) -> tuple[object, dict[str, Record]]:
    """Find what a file of `torch.save` in the old layout holds. Nothing in it is run.

    Parameters
    ----------
    blob : Blob
        Begins with MAGIC.
    root : str
        What the names of records begin with.

    Returns
    -------
    object
        What was saved (see `read_pickle`).
    dict of str to Record
        Where the storages lie, as `root`/data/KEY, as if they were records of an archive.

    Raises
    ------
    ModelFormatError
        It is damaged, is of another version or byte order, or holds more than data.

    Notes
    -----
    torch/serialization.py, `_legacy_save`: the version, the system (a dict), the object, the list of storages' keys;
    then for each key i64 the number of values, and these.
    """
    data = blob.read(0, min(blob.size, _MAX_PICKLES), "the pickles")
    (version, system, content, keys), storages, at = read_pickles(data, blob.name, len(MAGIC), 4)
    if version != _VERSION:
        raise ModelFormatError(f"{blob.name}: its version is {described(version)}; {_VERSION} is expected")
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise ModelFormatError(f"{blob.name}: it does not say that its values are little endian")
    records: dict[str, Record] = {}
    for key, storage in _in_order(blob, keys, storages):
        (n,) = struct.unpack("<q", blob.read(at, 8, f"the size of storage {key[:80]!r}"))
        if n != storage.n:
            raise ModelFormatError(
                f"{blob.name}: storage {key[:80]!r} at offset {at} has {n} values, but {storage.n} according to its "
                "tensors"
            )
        at, n_bytes = at + 8, n * _SIZES[storage.kind]
        if at + n_bytes > blob.size:
            raise ModelFormatError(
                f"{blob.name} ends early: storage {key[:80]!r} needs {n_bytes} bytes at offset {at}, there are "
                f"{blob.size} bytes"
            )
        name = f"{root}/data/{key}"
        records[name] = Record(name, at, n_bytes, n_bytes, STORED, 0)
        at += n_bytes
    if at != blob.size:
        raise ModelFormatError(f"{blob.name}: {blob.size - at} bytes follow the last storage, at offset {at}")
    return content, records


def _in_order(blob: Blob, keys: object, storages: set[Storage]) -> list[tuple[str, Storage]]:
    """Return the storages in the order in which they lie in the file."""
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ModelFormatError(f"{blob.name}: a list of its storages is expected, not {described(keys)}")
    known = {storage.key: storage for storage in storages}
    if len(known) != len(storages):
        raise ModelFormatError(f"{blob.name}: a storage has several kinds or sizes")
    # the kind tells the size, and only tensors tell the kind
    missing = [key for key in known if key not in set(keys)]
    extra = [key for key in keys if key not in known]
    if missing or extra or len(keys) != len(known):
        raise ModelFormatError(
            f"{blob.name}: storages are missing in its list {shown(missing)}, belong to no tensor {shown(extra)}, or "
            "come twice"
        )
    return [(key, known[key]) for key in keys]
