"""Model files in memory as they lie on the disk: what is not copied costs neither time nor memory of its own.

A page of a mapped file that no longer exists, because somebody made the file shorter, ends the process by SIGBUS. So
that signal is handled where it comes from a mapping of ours: the page becomes one of zeros, the mapping is marked as
lost, and whoever computes with it raises an error. Every other SIGBUS goes where it went before. Only functions that
POSIX allows in signal handlers are called there, and mmap, which is a plain system call.
"""

import os

from whispyx._core.source cimport Source

from whispyx.errors import ModelError

cdef extern from *:
    """
    #include <signal.h>
    #include <stdint.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    #include <unistd.h>

    #if defined(__APPLE__)
    #define WX_MTIME st_mtimespec
    #define WX_ANONYMOUS MAP_ANON
    #else
    #define WX_MTIME st_mtim
    #define WX_ANONYMOUS MAP_ANONYMOUS
    #endif

    enum { WX_SLOTS = 256 };
    static struct { uintptr_t start, end; int taken, lost; } wx_slots[WX_SLOTS];
    static struct sigaction wx_before;
    static uintptr_t wx_page;

    static void wx_on_bus_error(int number, siginfo_t * info, void * context) {
        uintptr_t at = (uintptr_t) info->si_addr;
        for (int i = 0; i < WX_SLOTS; i++) {
            uintptr_t start = __atomic_load_n(&wx_slots[i].start, __ATOMIC_ACQUIRE);
            if (start == 0 || at < start || at >= wx_slots[i].end) continue;
            if (mmap((void *) (at & ~(wx_page - 1)), wx_page, PROT_READ, MAP_PRIVATE | MAP_FIXED | WX_ANONYMOUS, -1, 0)
                == MAP_FAILED) break;
            __atomic_store_n(&wx_slots[i].lost, 1, __ATOMIC_RELEASE);
            return;
        }
        if (wx_before.sa_flags & SA_SIGINFO) {
            wx_before.sa_sigaction(number, info, context);
        } else if (wx_before.sa_handler != SIG_DFL && wx_before.sa_handler != SIG_IGN) {
            wx_before.sa_handler(number);
        } else if (wx_before.sa_handler == SIG_DFL || info->si_code > 0) {
            signal(number, SIG_DFL);    /* the process ends as it would have without us */
            raise(number);
        }
    }

    /* Called with the GIL held. */
    static int wx_handle_bus_errors(void) {
        struct sigaction ours;
        if (wx_page) return 1;
        ours.sa_sigaction = wx_on_bus_error;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&ours.sa_mask);
        wx_page = (uintptr_t) sysconf(_SC_PAGESIZE);
        if (sigaction(SIGBUS, &ours, &wx_before) == 0) return 1;
        wx_page = 0;
        return 0;
    }

    static int wx_take_slot(void) {
        for (int i = 0; i < WX_SLOTS; i++)
            if (!__atomic_exchange_n(&wx_slots[i].taken, 1, __ATOMIC_ACQ_REL)) return i;
        return -1;
    }

    static void wx_free_slot(int slot) {
        __atomic_store_n(&wx_slots[slot].start, 0, __ATOMIC_RELEASE);
        wx_slots[slot].end = 0;
        wx_slots[slot].lost = 0;
        __atomic_store_n(&wx_slots[slot].taken, 0, __ATOMIC_RELEASE);
    }

    static void * wx_map(int fd, size_t size, int slot) {
        void * found = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (found == MAP_FAILED) return NULL;
        wx_slots[slot].end = (uintptr_t) found + size;
        __atomic_store_n(&wx_slots[slot].start, (uintptr_t) found, __ATOMIC_RELEASE);
        return found;
    }

    static void wx_unmap(void * start, size_t size) { munmap(start, size); }

    static int wx_is_lost(int slot) { return __atomic_load_n(&wx_slots[slot].lost, __ATOMIC_ACQUIRE); }

    static int wx_when_written(int fd, long long * size, long long * seconds, long long * nanoseconds) {
        struct stat found;
        if (fstat(fd, &found) != 0) return 0;
        *size = (long long) found.st_size;
        *seconds = (long long) found.WX_MTIME.tv_sec;
        *nanoseconds = (long long) found.WX_MTIME.tv_nsec;
        return 1;
    }
    """
    bint wx_handle_bus_errors() noexcept nogil
    int wx_take_slot() noexcept nogil
    void wx_free_slot(int slot) noexcept nogil
    void * wx_map(int fd, size_t size, int slot) noexcept nogil
    void wx_unmap(void * start, size_t size) noexcept nogil
    bint wx_is_lost(int slot) noexcept nogil
    bint wx_when_written(int fd, long long * size, long long * seconds, long long * nanoseconds) noexcept nogil


cdef class Mapping:
    """A whole file, readable. It must not outlive what computes with it."""

    def __cinit__(self):
        self.fd = self.slot = -1

    @staticmethod
    cdef Mapping of(Source source):
        """Map the file of a source. None where there is no file, or where the system does not map it."""
        cdef Mapping self
        cdef long long size = 0
        if source.descriptor() < 0 or source.size == 0 or not wx_handle_bus_errors():
            return None
        self = Mapping.__new__(Mapping)
        self.slot = wx_take_slot()
        if self.slot < 0:
            return None
        try:
            self.fd = os.dup(source.descriptor())
        except OSError:
            return None             # too many files are open: the model is copied
        if not wx_when_written(self.fd, &size, &self.seconds, &self.nanoseconds) or size != source.size:
            return None             # it is changing: whoever reads it tells
        self.ptr = <char *>wx_map(self.fd, size, self.slot)
        if self.ptr == NULL:
            return None
        self.name, self.size = source.name, size
        return self

    cdef bint intact(self) noexcept nogil:
        """Whether the file is still what it was when it was mapped."""
        cdef long long size = 0, seconds = 0, nanoseconds = 0
        return (not wx_is_lost(self.slot) and wx_when_written(self.fd, &size, &seconds, &nanoseconds)
                and size == <long long>self.size and seconds == self.seconds and nanoseconds == self.nanoseconds)

    cdef int check(self) except -1:
        """Raise ModelError where the file was written to since."""
        if not self.intact():
            raise ModelError(
                f"{self.name} was written to while its model was in use, and what was computed with it cannot be "
                "trusted: write the new file beside it and rename, or have models copied (WHISPYX_MMAP=0)"
            )
        return 0

    def __dealloc__(self):
        if self.ptr != NULL:
            wx_unmap(self.ptr, self.size)
        if self.slot >= 0:
            wx_free_slot(self.slot)
        if self.fd >= 0:
            os.close(self.fd)
