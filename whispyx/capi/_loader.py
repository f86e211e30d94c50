"""Reads a model through a whisper_model_loader, field by field, into one block of bytes.

The C library asks for exactly the bytes of each field and ignores how many it got, so loaders exist whose count means
nothing. They work here too: a block that stays as it was before the call was not written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from whispyx._core.description import tensor_bytes
from whispyx.errors import ModelFormatError

if TYPE_CHECKING:
    from whispyx.capi.structs import whisper_model_loader

MARK: Final = bytes(range(0xA5, 0xA5 + 64)) * 4
"""What the start of a block holds before it is filled."""
MAX_FIELD: Final = 1 << 31
BLOCK_BYTES: Final = 1 << 22
HEAD_BYTES: Final = 12
"""Three numbers in front of each tensor."""
N_HPARAMS: Final = 11
"""Numbers after the magic."""


class Reader:
    """Takes fields from a loader and keeps all bytes."""

    def __init__(self, loader: whisper_model_loader) -> None:
        if loader.read is None or loader.eof is None:
            raise TypeError("a whisper_model_loader needs read and eof")
        self._read, self._eof, self._context = loader.read, loader.eof, loader.context
        self.data = bytearray()

    def take(self, n: int) -> bytes:
        """Read `n` bytes, or what there is of them."""
        if n > MAX_FIELD:
            raise ModelFormatError(f"the model of the loader has a field of {n} bytes")
        start = len(self.data)
        while (missing := n - (len(self.data) - start)) > 0:
            # Memory follows the data, not the number that the model claims.
            got = self._block(min(missing, BLOCK_BYTES))
            self.data += got
            if not got:
                break
        return memoryview(self.data)[start:].tobytes()

    def _block(self, n: int) -> bytes:
        """Ask the loader once, and find out how much it gave."""
        block = bytearray(n)
        before = MARK[:n]
        block[: len(before)] = before
        count = self._read(self._context, memoryview(block), n)
        if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= n:
            return bytes(memoryview(block)[:count])
        if block.startswith(before) and (n > len(MARK) or self.at_end()):
            return b""
        return bytes(block)  # the count cannot be right; a block that is this small may look as before by chance

    def i32(self, n: int = 1) -> tuple[int, ...] | None:
        """Read `n` integers; None when they are not all there."""
        raw = self.take(4 * n)
        return struct.unpack(f"<{n}i", raw) if len(raw) == 4 * n else None

    def at_end(self) -> bool:
        """Ask the loader whether its data has run out."""
        return bool(self._eof(self._context))


def _model_head(reader: Reader) -> bool:
    """Read what is in front of a Whisper model's tensors. False when it cannot be one or ends early."""
    if reader.i32() is None or reader.i32(N_HPARAMS) is None:
        return False
    shape = reader.i32(2)
    if shape is None or min(shape) < 0 or len(reader.take(4 * shape[0] * shape[1])) < 4 * shape[0] * shape[1]:
        return False
    count = reader.i32()
    if count is None:
        return False
    for _ in range(count[0]):
        length = reader.i32()
        if length is None or length[0] < 0 or len(reader.take(length[0])) < length[0]:
            return False
    return True


def _vad_head(reader: Reader) -> bool:
    """Read what is in front of a voice activity model's tensors."""
    if reader.i32() is None:
        return False
    length = reader.i32()
    if length is None or length[0] < 0 or len(reader.take(length[0])) < length[0]:
        return False
    if reader.i32(3) is None or reader.i32(2) is None:  # version; window and context
        return False
    layers = reader.i32()
    if layers is None or not 0 <= layers[0] <= 64 or (layers[0] and reader.i32(3 * layers[0]) is None):
        return False
    return reader.i32(4) is not None  # LSTM and last convolution


def _tensors(reader: Reader) -> Iterator[None]:
    """Read one tensor after another until the loader says that there is no more."""
    while True:
        head = reader.i32(3)
        if head is None:
            return
        if reader.at_end():
            del reader.data[-HEAD_BYTES:]  # the loader made up a head that it does not have
            return
        n_dims, n_name, kind = head
        if not 0 <= n_dims <= 4 or not 0 <= n_name <= 4096:
            return
        shape = reader.i32(n_dims) if n_dims else ()
        if shape is None or len(reader.take(n_name)) < n_name:
            return
        size = tensor_bytes(kind, shape)
        if size is None or len(reader.take(size)) < size:
            return
        yield


def read_all(loader: whisper_model_loader, *, vad: bool = False) -> bytes:
    """Return the bytes of the model behind a loader, and close the loader whatever happens.

    What is wrong with the bytes is for whoever reads them: reading stops where the next field cannot be found.
    """
    try:
        reader = Reader(loader)
        if _vad_head(reader) if vad else _model_head(reader):
            for _ in _tensors(reader):
                pass
        return bytes(reader.data)
    finally:
        if loader.close is not None:
            loader.close(loader.context)
