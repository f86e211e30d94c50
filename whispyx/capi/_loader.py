"""Reads a model through a whisper_model_loader into one block of bytes: whisper.cpp's format field by field.

The C library asks for exactly the bytes of each field and ignores how many it got, so loaders exist whose count means
nothing. They work here too: what stays as it was before the call was not written. Formats that the C library does not
know are read in blocks, to the end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from whispyx._core.description import tensor_bytes
from whispyx.errors import ModelFormatError
from whispyx.models.formats.sniff import begins_a_model

if TYPE_CHECKING:
    from whispyx.capi.structs import whisper_model_loader

MARK: Final = bytes(range(0xA5, 0xA5 + 64)) * 4
"""What the start of a block holds before it is filled."""
MAGIC: Final = b"lmgg"
SNIFFED_BYTES: Final = 4096
"""Of what is not in whisper.cpp's format, so much is read before anybody believes that it is a model."""
MAX_FILE: Final = 1 << 33
"""A loader may never say that it is at its end. The largest Whisper, in f32, has 6.2 GB."""
MIN_BLOCK: Final = 1 << 12
ALIGNMENT: Final = 32
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

    def to_the_end(self) -> None:
        """Read until the loader says that it is at its end, or gives nothing.

        Raises
        ------
        ModelFormatError
            It gives more than any model has.
        """
        n = BLOCK_BYTES
        while not self.at_end():
            block = bytearray(MARK * (n // len(MARK)))
            count = self._read(self._context, memoryview(block), n)
            if isinstance(count, int) and not isinstance(count, bool) and 0 < count < n:
                self.data += memoryview(block)[:count]
                # Some give little at a time, however much is asked for.
                n = min(max(MIN_BLOCK, 1 << (2 * count - 1).bit_length()), BLOCK_BYTES)
            else:
                written = _written(block)
                if not written:
                    break
                self.data += memoryview(block)[:written]
            if len(self.data) > MAX_FILE:
                raise ModelFormatError(f"the loader gives more than {MAX_FILE} bytes; no model is that large")
        if self.data.startswith(b"PK") or len(self.data) % ALIGNMENT == 0:
            return
        # A model can end in a byte of the mark. Formats other than zip files bear some bytes too many.
        self.data += memoryview(MARK)[: -len(self.data) % ALIGNMENT]

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


def _written(block: bytearray) -> int:
    """Return where the part of a block begins that still is the mark, in which all of it began."""
    import numpy as np

    mark = np.frombuffer(MARK * (len(block) // len(MARK)), np.uint8)
    changed = np.flatnonzero(np.frombuffer(block, np.uint8) != mark)
    return int(changed[-1]) + 1 if len(changed) else 0


def _model_head(reader: Reader) -> bool:
    """Read what is between magic number and tensors of a Whisper model. False when it cannot be one or ends early."""
    if reader.i32(N_HPARAMS) is None:
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


def read_all(loader: whisper_model_loader, *, vad: bool = False) -> bytes | bytearray:
    """Return the bytes of the model behind a loader, and close the loader whatever happens.

    What is wrong with the bytes is for whoever reads them: reading stops where the next field cannot be found, or after
    `SNIFFED_BYTES` of what is no model.
    """
    try:
        reader = Reader(loader)
        if vad:
            if _vad_head(reader):
                for _ in _tensors(reader):
                    pass
        elif reader.take(len(MAGIC)) == MAGIC:
            if _model_head(reader):
                for _ in _tensors(reader):
                    pass
        elif len(reader.data) == len(MAGIC):
            reader.take(SNIFFED_BYTES - len(MAGIC))
            if begins_a_model(bytes(reader.data)):
                reader.to_the_end()
        return reader.data
    finally:
        if loader.close is not None:
            loader.close(loader.context)
