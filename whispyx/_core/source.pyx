"""Where a model's bytes come from: a file read straight to its destination, or memory.

Every read states what it is for; one that runs past the end raises ModelFormatError with that name.
"""

import os
import stat

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from posix.unistd cimport read as posix_read

from whispyx._files import read_all
from whispyx.errors import ModelError, ModelFormatError, ModelNotFoundError


cdef enum:
    AHEAD_BYTES = 65536
    AHEAD_LEAST = 512
    PART_BYTES = 8 << 20


cdef class Source:
    """Bytes of known size with a read position."""

    cdef int read(self, void * out, size_t n, str what) except -1:
        if n > <size_t>(self.size - self.pos):
            raise ModelFormatError(
                f"{self.name} ends early: {what} needs {n} bytes at offset {self.pos}, the file has {self.size} bytes"
            )
        self._read(out, n)
        self.pos += n
        return 0

    cdef int _read(self, void * out, size_t n) except -1:
        raise TypeError("abstract")

    cdef int seek(self, long long pos) except -1:
        self.pos = pos
        return 0

    cdef bytes take(self, size_t n, str what):
        if n > <size_t>(self.size - self.pos):
            raise ModelFormatError(
                f"{self.name} ends early: {what} needs {n} bytes at offset {self.pos}, the file has {self.size} bytes"
            )
        cdef bytes out = bytes(n)
        if n:
            self.read(<char *>out, n, what)
        return out

    cdef int i32(self, str what) except? -1:
        cdef int32_t value
        self.read(&value, sizeof(value), what)
        return value

    cdef int descriptor(self) noexcept:
        """The open file, -1 where there is none."""
        return -1

    cdef const char * memory(self) noexcept:
        """All bytes where they lie in memory, else NULL."""
        return NULL

    cdef int check_read(self, int failed, long long offset) except -1:
        """Raise where reading what begins at `offset` failed: with this errno, or with -1 where the file ended."""
        if failed > 0:
            raise ModelError(f"reading {self.name} at offset {offset} failed: {os.strerror(failed)}")
        if failed:
            raise ModelFormatError(f"{self.name} became shorter while it was read at offset {offset}")
        return 0

    cdef int check_unchanged(self) except -1:
        """Raise where a file was written to while it was read: what was read is neither the old nor the new one."""
        return 0

    cdef void close(self) noexcept:
        pass


cdef class FileSource(Source):
    # The vocabulary is 50,000 tiny fields: small reads come from a buffer, large ones go straight to their place.
    cdef int fd
    cdef long long changed              # when it was written to last, in ns
    cdef char * ahead
    # The headers of tensors lie far apart: after a seek little is read ahead, then twice as much each time.
    cdef size_t ahead_at, ahead_size        # next unread byte of the buffer, bytes in it
    cdef size_t ahead_next                  # how many are read next

    def __cinit__(self):
        self.fd = -1
        self.ahead_next = AHEAD_LEAST
        self.ahead = <char *>malloc(AHEAD_BYTES)
        if self.ahead == NULL:
            raise MemoryError

    def __init__(self, path: str) -> None:
        self.name = path
        try:
            self.fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            found = os.fstat(self.fd)
            if stat.S_ISDIR(found.st_mode):
                raise ModelFormatError(f"{path} is a folder, not a model file")
            if not stat.S_ISREG(found.st_mode):
                raise ModelFormatError(f"{path} is a device, not a model file")
            self.size, self.changed = found.st_size, found.st_mtime_ns
        except (FileNotFoundError, UnicodeError):
            raise ModelNotFoundError(f"there is no model file {path!r}") from None
        except ModelError:
            raise
        except ValueError as error:     # a null byte in the name
            raise ModelNotFoundError(f"there is no model file {path!r}: {error}") from None
        except OSError as error:
            raise ModelError(f"the model file {path} cannot be opened: {error.strerror}") from error

    cdef int _read(self, void * out, size_t n) except -1:
        cdef size_t part = min(n, self.ahead_size - self.ahead_at)
        memcpy(out, self.ahead + self.ahead_at, part)
        self.ahead_at += part
        if part == n:
            return 0
        if n - part >= AHEAD_BYTES:
            return self._read_file(<char *>out + part, n - part)
        self.ahead_at = 0
        self.ahead_size = min(max(self.ahead_next, n - part), <size_t>(self.size - self.pos) - part)
        self.ahead_next = min(<size_t>AHEAD_BYTES, 2 * self.ahead_next)
        self._read_file(self.ahead, self.ahead_size)
        memcpy(<char *>out + part, self.ahead, n - part)
        self.ahead_at = n - part
        return 0

    cdef int _read_file(self, void * out, size_t n) except -1:
        cdef size_t done = 0
        cdef Py_ssize_t got
        cdef int failed = 0
        while done < n:
            with nogil:
                got = posix_read(self.fd, <char *>out + done, min(n - done, <size_t>PART_BYTES))
                failed = errno if got < 0 else 0
            if got > 0:
                done += got
            elif got == 0 or failed != EINTR:
                break
            PyErr_CheckSignals()        # one part at a time: Ctrl-C is heard on a slow disk, too
        return self.check_read(failed if failed or done == n else -1, self.pos)

    cdef int check_unchanged(self) except -1:
        found = os.fstat(self.fd)
        if found.st_size != self.size or found.st_mtime_ns != self.changed:
            raise ModelFormatError(f"{self.name} was written to while it was read: load it again")
        return 0

    cdef int descriptor(self) noexcept:
        return self.fd

    cdef int seek(self, long long pos) except -1:
        if pos != self.pos:
            os.lseek(self.fd, pos, os.SEEK_SET)
            self.ahead_at = self.ahead_size = 0
            self.ahead_next = AHEAD_LEAST
            self.pos = pos
        return 0

    cdef void close(self) noexcept:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __dealloc__(self):
        free(self.ahead)
        if self.fd >= 0:
            os.close(self.fd)


cdef class MemorySource(Source):
    cdef Py_buffer view
    cdef bint held

    def __init__(self, data, name: str = "the model buffer") -> None:
        try:
            PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        except BufferError as error:
            raise ModelError(f"{name} cannot be read: {error}") from None
        self.held = True
        self.name = name
        self.size = self.view.len

    cdef int _read(self, void * out, size_t n) except -1:
        memcpy(out, <char *>self.view.buf + self.pos, n)
        return 0

    cdef const char * memory(self) noexcept:
        return <const char *>self.view.buf

    cdef void close(self) noexcept:
        if self.held:
            self.held = False
            PyBuffer_Release(&self.view)

    def __dealloc__(self):
        self.close()


def is_pipe(path) -> bool:
    """Whether a path leads to a pipe, which has no size and can be read once."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False            # whoever opens it tells


def open_source(source) -> Source:
    """Open a path, a bytes-like object or a binary file object (read to its end) as a Source."""
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if is_pipe(path):
            with open(path, "rb") as pipe:
                return open_source(pipe)
        return FileSource(path)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return MemorySource(source)
    if hasattr(source, "read"):
        name = str(getattr(source, "name", "the model file object"))
        return MemorySource(read_all(source, name), name)
    raise TypeError(f"a model is a path, bytes or a binary file object, not {type(source).__name__}")
