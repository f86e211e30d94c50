"""Records of what was recognised. They are copies and never point into a State."""


cdef class Record:
    """Equality and representation over the attributes named in `_fields`."""

    _fields = ()

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return all([getattr(self, name) == getattr(other, name) for name in self._fields])

    def __hash__(self):
        return hash(tuple([getattr(self, name) for name in self._fields]))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join([f'{name}={getattr(self, name)!r}' for name in self._fields])})"

    def as_dict(self) -> dict:
        """Return the attributes by name."""
        return {name: getattr(self, name) for name in self._fields}


cdef class TokenData(Record):
    """One token. Times are in units of 10 ms, -1 when unknown; `text` may hold part of a UTF-8 character.

    t0 and t1 are a guess from timestamp probabilities and the sound's energy. The rest comes from the alignment heads:
    t_dtw is whisper.cpp's one number (when the token has been said), t_dtw_start and t_dtw_end are where the token is
    heard.
    """

    _fields = ("id", "tid", "p", "plog", "pt", "ptsum", "t0", "t1", "t_dtw", "t_dtw_start", "t_dtw_end", "vlen", "text")

    def __init__(self, *, int id=0, int tid=0, float p=0, float plog=0, float pt=0, float ptsum=0, long long t0=-1,
                 long long t1=-1, long long t_dtw=-1, long long t_dtw_start=-1, long long t_dtw_end=-1,
                 float vlen=0, bytes text not None=b"") -> None:
        self.id, self.tid, self.p, self.plog, self.pt, self.ptsum = id, tid, p, plog, pt, ptsum
        self.t0, self.t1, self.t_dtw, self.t_dtw_start, self.t_dtw_end = t0, t1, t_dtw, t_dtw_start, t_dtw_end
        self.vlen, self.text, self.shown = vlen, text, text


cdef class WordData(Record):
    """One word: its bytes, start and end in seconds, mean probability, and the places of its tokens in the segment."""

    _fields = ("text", "t0", "t1", "probability", "tokens")


cdef class SegmentData(Record):
    """One segment. Times are in units of 10 ms; in the engine's results `text` is UTF-8, whole characters."""

    _fields = ("t0", "t1", "text", "tokens", "no_speech_prob", "speaker_turn_next", "avg_logprob", "temperature",
               "words")

    def __cinit__(self):
        self.words = ()

    def __init__(self, *, long long t0=0, long long t1=0, bytes text not None=b"", tokens=(), float no_speech_prob=0,
                 bint speaker_turn_next=False, float avg_logprob=0, float temperature=0) -> None:
        cdef TokenData token
        for token in tokens:
            if token is None:
                raise TypeError("tokens must be TokenData, not None")
        self.t0, self.t1, self.text, self.tokens = t0, t1, text, tuple(tokens)
        self.no_speech_prob, self.speaker_turn_next = no_speech_prob, speaker_turn_next
        self.avg_logprob, self.temperature = avg_logprob, temperature


cdef class WindowData(Record):
    """How the decoding of one window went. Times are in units of 10 ms.

    verdict: "speech"; "no_speech": nobody speaks, its text was left out; "loop": the text repeats itself; "failed": no
    attempt gave a text that passes the tests, the best one was taken.
    """

    _fields = ("t0", "t1", "temperature", "avg_logprob", "entropy", "no_speech_prob", "verdict")


cdef class Timings(Record):
    """Where the time of a run went, in milliseconds, and how often each stage ran.

    decode: single tokens; batchd: tokens of batches of 2 to 15; prompt: tokens of larger batches.
    """

    _fields = ("load_ms", "mel_ms", "encode_ms", "cross_ms", "decode_ms", "batchd_ms", "prompt_ms", "sample_ms",
               "total_ms", "n_encode", "n_decode", "n_batchd", "n_prompt", "n_sample", "n_fail_p", "n_fail_h")


cdef class RunResult(Record):
    """What a whole run found."""

    _fields = ("language", "language_probability", "segments", "timings", "n_samples", "windows", "vad_segments",
               "seed")
