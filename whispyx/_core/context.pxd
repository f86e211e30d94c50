from whispyx._core.hparams cimport HParams
from whispyx._core.mel cimport Filters
from whispyx._core.description cimport Description
from whispyx._core.vocab cimport Vocab
from whispyx._core.weights cimport Weights


cdef class Context:
    cdef readonly HParams hparams
    cdef readonly Vocab vocab
    cdef readonly Filters filters
    cdef Weights weights              # None: the file holds no tensors
    cdef list device_list             # of Device, scheduler order
    cdef readonly tuple fallbacks     # of Fallback: what became of devices that come first by default
    cdef dict placement_of            # stage -> device -> operation -> count, of the first graph of each stage
    cdef readonly bint flash_attn
    cdef readonly str compute         # what was chosen: "f32", "bf16", "mixed", "int8", or "exact" without kernels
    cdef readonly double load_ms
    cdef str wanted                   # the precision that was asked for
    cdef bint may_use_kernels, mmap
    cdef readonly str path            # None: not loaded from a file
    cdef object origin                # what the model can be read from again, or None
    cdef readonly object alignment_heads    # (layer, head) pairs that the model's files name, or None
    cdef readonly str fingerprint     # of the network; None: the file holds no tensors
    cdef readonly object encoder      # what encodes for every state instead of the model itself, or None
    cdef readonly bint closed
    cdef readonly tuple aheads        # alignment heads, (layer, head) pairs of the decoder in ascending order
    cdef bint aheads_chosen           # somebody set them; else they are found when they are needed
    cdef readonly tuple suppress_tokens, begin_suppress_tokens      # that the model's files list
    cdef object reloading             # lock
    cdef int check_open(self) except -1
    cdef int need_aheads(self) except -1
    cdef bint _load(self, Description model, bint fallback, object progress) except -1
    cdef str _choose(self, str wanted)
    cdef int _fell_back(self, object fallback) except -1
    cdef Weights usable_weights(self)
