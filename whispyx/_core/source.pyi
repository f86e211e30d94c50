import os
from typing import BinaryIO

class Source:
    name: str
    size: int
    pos: int

def open_source(source: str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO) -> Source: ...
