"""Files of `torch.save`: an archive with one pickle, which describes tensors whose values are records of their own.

What PyTorch before 1.6 wrote is read as if it were one (see torch_legacy.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from whispyx.errors import ModelFormatError

from .manifest import GGML_TYPES, Blob, Tensor
from .pickles import SavedTensor, Storage, read_pickle
from .torch_legacy import MAGIC, read_legacy
from .zips import STORED, Record, read_records, stored_bytes

__all__ = ["TorchFile"]

_MAX_PICKLE: Final = 16 << 20  # the largest Whisper has 0.3 MB
_MAX_NOTE: Final = 64
_TYPES: Final = {"HalfStorage": ("f16", 2), "FloatStorage": ("f32", 4), "BFloat16Storage": ("bf16", 2)}

_LEGACY_ROOT: Final = "archive"
_SAVE_AGAIN: Final = "load it with PyTorch and save it again with torch.save(checkpoint, path)"


@dataclass(slots=True)
class TorchFile:
    """What a file of `torch.save` holds (see `read_pickle`), and where its tensors lie. Nothing in it is run.

    Raises
    ------
    ModelFormatError
        It is another kind of file, is damaged, or holds more than data.
    """

    blob: Blob
    root: str
    content: object
    records: dict[str, Record]

    @classmethod
    def read(cls, blob: Blob) -> TorchFile:
        """Read the directory and the pickle of `blob`."""
        start = blob.read(0, min(blob.size, 512), "the start of the file")
        if start.startswith(MAGIC):
            return cls(blob, _LEGACY_ROOT, *read_legacy(blob, _LEGACY_ROOT))
        _refuse_other_kinds(blob, start)
        records = read_records(blob)
        pickles = [name for name in records if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ModelFormatError(
                f"{blob.name}: a zip file with {len(pickles)} records NAME/data.pkl; a file of torch.save has one"
            )
        root = pickles[0].removesuffix("/data.pkl")
        if any(name.startswith((f"{root}/code/", f"{root}/constants.pkl")) for name in records):
            raise ModelFormatError(f"{blob.name}: a program of TorchScript, not a checkpoint")
        order = records.get(f"{root}/byteorder")
        if order is not None and stored_bytes(blob, order, _MAX_NOTE) != b"little":
            raise ModelFormatError(f"{blob.name}: its values are not little endian ({order.name!r}); {_SAVE_AGAIN}")
        data = stored_bytes(blob, records[pickles[0]], _MAX_PICKLE)
        return cls(blob, root, read_pickle(data, f"{blob.name}: {pickles[0]}"), records)

    def tensor(self, name: str, saved: SavedTensor) -> Tensor:
        """Return where the values of `saved` lie in the file.

        Raises
        ------
        ModelFormatError
            It has another type than f16, bf16 or f32, is not contiguous, or its record is missing, packed or too small.
        """
        storage = saved.storage
        if storage.kind not in _TYPES:
            raise self._error(name, f"its values are a {storage.kind}; f16, bf16 and f32 can be read")
        type_name, n_bytes = _TYPES[storage.kind]
        n = math.prod(saved.shape)
        if not _is_contiguous(saved):
            raise self._error(
                name, f"shape {saved.shape} with strides {saved.strides} is not contiguous; save tensor.contiguous()"
            )
        if saved.start + n > storage.n:
            raise self._error(
                name, f"{n} values from number {saved.start} of storage {storage.key[:80]!r}, which has {storage.n}"
            )
        record = self._record(name, storage, storage.n * n_bytes)
        offset = record.offset + saved.start * n_bytes
        return Tensor(name, saved.shape, GGML_TYPES[type_name], 0, offset, n * n_bytes)

    def _record(self, name: str, storage: Storage, n_bytes: int) -> Record:
        record = self.records.get(f"{self.root}/data/{storage.key}")
        if record is None:
            raise self._error(name, f"its storage {storage.key[:80]!r} is not in the file")
        if record.method != STORED:
            raise self._error(
                name, f"its record {record.name!r} is {record.how}, but must be stored as it is; {_SAVE_AGAIN}"
            )
        if record.n_bytes != n_bytes:
            raise self._error(
                name, f"its record {record.name!r} has {record.n_bytes} bytes, but {storage.n} values take {n_bytes}"
            )
        return record

    def _error(self, name: str, reason: str) -> ModelFormatError:
        return ModelFormatError(f"{self.blob.name}: tensor {name[:200]!r}: {reason}")


def _is_contiguous(saved: SavedTensor) -> bool:
    expected = 1
    for n, stride in zip(reversed(saved.shape), reversed(saved.strides), strict=True):
        if n != 1 and stride != expected:
            return False
        expected *= n
    return True


def _refuse_other_kinds(blob: Blob, start: bytes) -> None:
    if start[:4] in (b"PK\3\4", b"PK\5\6", b"PK\6\6"):
        return
    if start[257:262] == b"ustar":
        raise ModelFormatError(f"{blob.name}: a tar file; if it is a checkpoint of PyTorch before 0.2, {_SAVE_AGAIN}")
    if start[:1] == b"\x80" and start[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        raise ModelFormatError(f"{blob.name}: a bare pickle, which can run code and is not loaded; {_SAVE_AGAIN}")
    raise ModelFormatError(f"{blob.name}: not a file of torch.save, for it begins with {start[:16]!r}")
