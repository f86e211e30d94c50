"""Reads the legacy ggml model file: settings, mel filters, vocabulary, headers of tensors.

The layout is in docs/model-format.md. Every header is checked against the settings and the file's size; nothing is
allocated from a number that the file claims before that number is known to fit.
"""

from whispyx._core.description cimport Description, Record, check_record
from whispyx._core.hparams cimport HParams
from whispyx._core.source cimport Source
from whispyx._core.vocab cimport Vocab
from whispyx._ggml.ggml cimport ggml_row_size, ggml_type

from whispyx._core.hparams import FIELDS, LARGEST_PUBLISHED
from whispyx._core.vocab import MAX_TOKEN_BYTES, standard_special
from whispyx._core.weights import expected_tensors
from whispyx.constants import N_FFT_BINS
from whispyx.errors import ModelFormatError

MAGIC = 0x67676D6C
MAX_NAME_BYTES = 64
ENGLISH_TEXTS = 50256
HEAD_BYTES = 4096

# Models of other formats: who reads those comes before.
_OTHER_MODELS = ((b"GGUF", "a GGUF file"), (b"PK\x03\x04", "a zip archive or a checkpoint of PyTorch"))


cdef int read_magic(Source source, str what) except -1:
    """Refuse a file that is not `what`, and say what it is instead where that can be told."""
    if source.size == 0:
        raise ModelFormatError(f"{source.name} is empty")
    head = source.take(4, "the magic number")
    if int.from_bytes(head, "little") != MAGIC:
        raise ModelFormatError(f"{source.name} is {_instead(source, head, what)}")
    return 0


cdef str _instead(Source source, bytes head, str what):
    """Say what a file is that does not begin as `what` does."""
    from whispyx._signatures import GENERAL, instead     # nobody else needs it

    for start, meaning in _OTHER_MODELS:
        if head == start:
            return f"{meaning}, not {what}"
    source.seek(0)
    found = instead(source.take(min(source.size, HEAD_BYTES), "the first bytes"), source.size)
    source.seek(4)
    if found is None:
        return f"not {what}: it starts with {head!r}, not b'lmgg'"
    return f"{found[0]}, not {what}" + (f"; {found[1]}" if found[1] in GENERAL else "")


def located(Source source, error: ModelFormatError) -> ModelFormatError:
    """Return the error with the offset up to which the file was read, unless it gives one."""
    return error if " offset " in str(error) else ModelFormatError(f"{error} (before offset {source.pos})")


cdef HParams read_hparams(Source source):
    read_magic(source, "a ggml Whisper model")
    values = [source.i32(name) for name in FIELDS]
    # Silero's networks share the magic number; the length of their type's name follows, and the name.
    if values[0] == 10 and values[1] == int.from_bytes(b"sile", "little"):
        raise ModelFormatError(
            f"{source.name} is a model for voice activity, not for speech; give it as vad_model, and name a Whisper "
            "model here"
        )
    try:
        return HParams(*values)
    except ModelFormatError as error:
        raise ModelFormatError(f"{source.name}: {error}") from None


cdef bytes read_filter_bytes(Source source, HParams hp):
    cdef int n_mel = source.i32("the number of mel bands")
    cdef int n_fft = source.i32("the number of frequency bins")
    if n_mel != hp.n_mels or n_fft != N_FFT_BINS:
        raise ModelFormatError(
            f"{source.name}: the mel filters are {n_mel} x {n_fft}, expected {hp.n_mels} x {N_FFT_BINS}"
        )
    return source.take(<size_t>n_mel * n_fft * 4, "the mel filters")


cdef Vocab read_vocab(Source source, HParams hp):
    cdef int n = source.i32("the vocabulary count"), i, length
    if not 0 < n <= hp.n_vocab:
        raise ModelFormatError(f"{source.name} stores {n} tokens; the model has {hp.n_vocab}")
    stored = []
    # Two small fields 50,000 times: a name for each is made only where the file ends inside of it.
    for i in range(n):
        length = source.i32("" if source.size - source.pos >= 4 else f"the length of token {i}")
        if not 0 <= length <= MAX_TOKEN_BYTES:
            raise ModelFormatError(
                f"{source.name}: token {i} has {length} bytes; at most {MAX_TOKEN_BYTES} are plausible"
            )
        stored.append(source.take(length, "" if source.size - source.pos >= length else f"token {i}"))
    return Vocab(hp, stored, special_of(hp, stored))


cdef dict special_of(HParams hp, list stored):
    """Where the special tokens are; None: as whisper.cpp's loader says.

    It counts every token above those of the published models as one more language, and moves the special tokens by as
    many places. Fine-tuned models have such tokens behind the timestamps: added words, or rows that fill the embedding
    up to a round number. What is in front of them, the texts and the mel bands tell.
    """
    if hp.n_vocab <= LARGEST_PUBLISHED:
        return None
    # OpenAI's list for English has 50256 texts, Hugging Face's the end of the text behind them.
    hp.is_multilingual = not (len(stored) == ENGLISH_TEXTS
                              or len(stored) > ENGLISH_TEXTS and stored[ENGLISH_TEXTS] == b"<|endoftext|>")
    if not hp.is_multilingual:
        hp.n_languages = 99
    return standard_special(hp.is_multilingual, hp.n_languages)


cdef Record read_record(Source source, dict expected):
    cdef Record record = Record.__new__(Record)
    cdef int n_dims = source.i32("the number of dimensions of a tensor")
    cdef int n_name = source.i32("the length of a tensor's name")
    record.type = record.stored = source.i32("the type of a tensor")
    if not 1 <= n_dims <= 4:
        raise ModelFormatError(f"{source.name}: a tensor has {n_dims} dimensions (1 to 4 are possible)")
    if not 1 <= n_name <= MAX_NAME_BYTES:
        raise ModelFormatError(
            f"{source.name}: a tensor's name has {n_name} bytes (1 to {MAX_NAME_BYTES} are possible)"
        )
    dims = [source.i32("a tensor's dimensions") for _ in range(n_dims)]
    record.name = source.take(n_name, "a tensor's name").decode("utf-8", "backslashreplace")
    if record.name not in expected:
        raise ModelFormatError(
            f"{source.name} holds a tensor {record.name!r} that a Whisper model of these settings has not"
        )
    record.shape, rule = expected[record.name]
    if _significant(dims) != _significant(record.shape):
        raise ModelFormatError(f"{source.name}: {record.name} has shape {dims}, the settings say {list(record.shape)}")
    check_record(record, rule, source.name)
    record.n_bytes = ggml_row_size(<ggml_type>record.type, record.shape[0])
    for n in record.shape[1:]:
        record.n_bytes *= n
    record.source, record.offset = source, source.pos
    if record.offset + <long long>record.n_bytes > source.size:
        raise ModelFormatError(
            f"{source.name} ends early: {record.name} needs {record.n_bytes} bytes at offset {record.offset},"
            f" the file has {source.size} bytes"
        )
    source.seek(record.offset + record.n_bytes)
    return record


def _significant(dims) -> list[int]:
    """Dimensions other than one: a bias may be stored as (1, n) or (n)."""
    return [int(n) for n in dims if n != 1]


cdef list read_records(Source source, HParams hp):
    expected = expected_tensors(hp)
    cdef dict found = {}
    cdef Record record
    while source.pos < source.size:
        record = read_record(source, expected)
        if record.name in found:
            raise ModelFormatError(f"{source.name} holds tensor {record.name} twice")
        found[record.name] = record
    missing = [name for name in expected if name not in found]
    if found and missing:
        raise ModelFormatError(
            f"{source.name} lacks {len(missing)} of {len(expected)} tensors, the first is {missing[0]}"
        )
    return list(found.values())


cdef Description describe(Source source):
    """Read all but the weights of a file of whisper.cpp."""
    cdef Description found = Description.__new__(Description)
    found.name, found.sources = source.name, [source]
    try:
        found.hparams = read_hparams(source)
        found.filters = read_filter_bytes(source, found.hparams)
        found.vocab = read_vocab(source, found.hparams)
        found.records = read_records(source, found.hparams)
    except ModelFormatError as error:
        raise located(source, error) from None
    return found
