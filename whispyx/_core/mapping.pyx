"""Model files in memory as they lie on the disk: what is not copied costs neither time nor memory of its own.

A page of a mapped file that no longer exists, because somebody made the file shorter, ends the process by SIGBUS. So
that signal is handled where it comes from a mapping of ours: what is left of the mapping becomes zeros, it is marked as
lost, and whoever computes with it raises an error. Every other SIGBUS goes where it went before. Only functions that
POSIX allows in signal handlers are called there, and mmap, which is a plain system call.

A program may set a handler of its own at any time, like faulthandler. So before each computation ours takes its place
again, and hands on to theirs what is not for us.
"""

import os

from whispyx._core.source cimport Source

from whispyx.errors import ModelError

cdef extern from *:
    """
    #include <pthread.h>
    #include <signal.h>
    #include <stdint.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    #include <unistd.h>

    #if defined(__APPLE__)
    #define WX_MTIME st_mtimespec
    #define WX_ANONYMOUS MAP_ANON
    #define WX_RAISED SI_USER
    #else
    #define WX_MTIME st_mtim
    #define WX_ANONYMOUS MAP_ANONYMOUS
    #define WX_RAISED SI_TKILL
    #endif

    enum { WX_SLOTS = 256, WX_HANDLERS = 8 };

    typedef struct {
        uintptr_t start, end;       /* start is 0 while there is no mapping */
        long long size, seconds, nanoseconds;
        int fd, taken, lost;        /* the file stays open, to see whether it is still what it was */
    } wx_slot;

    static wx_slot wx_slots[WX_SLOTS];
    static struct sigaction wx_others[WX_HANDLERS];     /* what handled the signal when ours took its place */
    static int wx_n_others, wx_other, wx_again;
    static int wx_handed_on;
    static uintptr_t wx_in_theirs;      /* thread that is in a handler of others, which ours has called */
    static uintptr_t wx_page;

    static int wx_stat(int fd, wx_slot * out) {
        struct stat found;
        if (fstat(fd, &found) != 0) return 0;
        out->size = (long long) found.st_size;
        out->seconds = (long long) found.WX_MTIME.tv_sec;
        out->nanoseconds = (long long) found.WX_MTIME.tv_nsec;
        return 1;
    }

    static int wx_intact(int at) {
        const wx_slot * slot = &wx_slots[at];
        wx_slot now;
        return !__atomic_load_n(&slot->lost, __ATOMIC_ACQUIRE) && wx_stat(slot->fd, &now) && now.size == slot->size
            && now.seconds == slot->seconds && now.nanoseconds == slot->nanoseconds;
    }

    /* The rest of a mapping becomes zeros: no more faults, and no more than one area for the system to keep. */
    static int wx_replace(uintptr_t at) {
        for (int i = 0; i < WX_SLOTS; i++) {
            uintptr_t start = __atomic_load_n(&wx_slots[i].start, __ATOMIC_ACQUIRE), end = wx_slots[i].end;
            if (start == 0 || at < start || at >= end) continue;
            at &= ~(wx_page - 1);
            __atomic_store_n(&wx_slots[i].lost, 1, __ATOMIC_SEQ_CST);      /* before anybody can read zeros */
            return mmap((void *) at, end - at, PROT_READ, MAP_PRIVATE | MAP_FIXED | WX_ANONYMOUS, -1, 0) != MAP_FAILED;
        }
        return 0;
    }

    /* Handlers like Python's faulthandler tell of a fault, put the one that was there before in place, which is ours,
       and raise the signal anew, without its address. Where a file of ours is damaged, the fault may be ours: it then
       happens once more and comes with its address. */
    static int wx_may_be_ours(void) {
        for (int i = 0; i < WX_SLOTS; i++)
            if (__atomic_load_n(&wx_slots[i].start, __ATOMIC_ACQUIRE) && !wx_intact(i)) return 1;
        return 0;
    }

    static void wx_on_bus_error(int number, siginfo_t * info, void * context) {
        const struct sigaction * other = &wx_others[__atomic_load_n(&wx_other, __ATOMIC_ACQUIRE)];
        const uintptr_t me = (uintptr_t) pthread_self();
        int fault = info->si_code > 0, raised = info->si_code == WX_RAISED && info->si_pid == getpid();
        if (fault ? wx_replace((uintptr_t) info->si_addr) : raised && wx_may_be_ours()) return;
        /* Those who came after us may call us, or raise what we have handed on to them: that must end. */
        int back = wx_again && (wx_in_theirs == me || (raised && wx_handed_on));
        if (!back && (other->sa_flags & SA_SIGINFO || (other->sa_handler != SIG_DFL && other->sa_handler != SIG_IGN))) {
            wx_handed_on |= fault;
            wx_in_theirs = me;
            if (other->sa_flags & SA_SIGINFO) other->sa_sigaction(number, info, context);
            else other->sa_handler(number);
            wx_in_theirs = 0;
        } else if (back || fault || other->sa_handler == SIG_DFL) {
            signal(number, SIG_DFL);    /* the process ends as it would have without us */
            raise(number);
        }
    }

    static int wx_is_ours(const struct sigaction * action) {
        return action->sa_flags & SA_SIGINFO && action->sa_sigaction == wx_on_bus_error;
    }

    /* Called with the GIL held. Also lets the signal through to this thread and those that it starts: one that holds
       it back is ended by it. */
    static int wx_handle_bus_errors(void) {
        struct sigaction ours, now;
        sigset_t bus;
        int i = 0;
        sigemptyset(&bus);
        sigaddset(&bus, SIGBUS);
        if (pthread_sigmask(SIG_UNBLOCK, &bus, NULL) != 0 || sigaction(SIGBUS, NULL, &now) != 0) return 0;
        if (wx_is_ours(&now)) return 1;
        while (i < wx_n_others && (wx_others[i].sa_sigaction != now.sa_sigaction
                                   || wx_others[i].sa_flags != now.sa_flags)) i++;
        if (i == WX_HANDLERS) return 0;
        if (i == wx_n_others) wx_others[wx_n_others++] = now;
        wx_page = (uintptr_t) sysconf(_SC_PAGESIZE);
        wx_again = wx_n_others > 1 || wx_again;
        __atomic_store_n(&wx_other, i, __ATOMIC_RELEASE);
        memset(&ours, 0, sizeof(ours));
        ours.sa_sigaction = wx_on_bus_error;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&ours.sa_mask);
        return sigaction(SIGBUS, &ours, NULL) == 0;
    }

    static int wx_take_slot(void) {
        for (int i = 0; i < WX_SLOTS; i++)
            if (!__atomic_exchange_n(&wx_slots[i].taken, 1, __ATOMIC_ACQ_REL)) return i;
        return -1;
    }

    static void * wx_map(int at, int fd, long long size) {
        wx_slot * slot = &wx_slots[at];
        void * found;
        if (!wx_stat(fd, slot) || slot->size != size) return NULL;      /* it is changing: whoever reads it tells */
        found = mmap(NULL, (size_t) size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (found == MAP_FAILED) return NULL;
        slot->fd = fd;
        slot->lost = 0;
        slot->end = (uintptr_t) found + (size_t) size;
        __atomic_store_n(&slot->start, (uintptr_t) found, __ATOMIC_RELEASE);
        return found;
    }

    static void wx_free_slot(int at) {
        wx_slot * slot = &wx_slots[at];
        uintptr_t start = slot->start;
        /* First: who comes next to these addresses may be somebody else. */
        __atomic_store_n(&slot->start, 0, __ATOMIC_SEQ_CST);
        if (start) munmap((void *) start, slot->end - start);
        __atomic_store_n(&slot->taken, 0, __ATOMIC_RELEASE);
    }
    """
    bint wx_handle_bus_errors() noexcept nogil
    int wx_take_slot() noexcept nogil
    void wx_free_slot(int at) noexcept nogil
    void * wx_map(int at, int fd, long long size) noexcept nogil
    bint wx_intact(int at) noexcept nogil


cdef void handle_bus_errors() noexcept:
    """Have the errors of mappings come to us, whoever has set a handler since, on this thread, too."""
    wx_handle_bus_errors()


cdef class Mapping:
    """A whole file, readable. It must not outlive what computes with it."""

    def __cinit__(self):
        self.fd = self.slot = -1

    @staticmethod
    cdef Mapping of(Source source):
        """Map the file of a source. None where there is no file, or where the system does not map it."""
        cdef Mapping self
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
        self.ptr = <char *>wx_map(self.slot, self.fd, source.size)
        if self.ptr == NULL:
            return None
        self.name, self.size = source.name, source.size
        return self

    cdef bint intact(self) noexcept nogil:
        """Whether the file is still what it was when it was mapped."""
        return wx_intact(self.slot)

    cdef int check(self) except -1:
        """Raise ModelError where the file was written to since."""
        if not self.intact():
            raise ModelError(
                f"{self.name} was written to, or could not be read, while its model was in use, and what was computed "
                "with it cannot be trusted: write the new file beside it and rename, or have models copied "
                "(WHISPYX_MMAP=0)"
            )
        return 0

    def __dealloc__(self):
        if self.slot >= 0:
            wx_free_slot(self.slot)
        if self.fd >= 0:
            os.close(self.fd)
