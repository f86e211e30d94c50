cdef class Record:
    pass


cdef class TokenData(Record):
    cdef readonly int id, tid
    cdef readonly float p, plog, pt, ptsum
    cdef readonly long long t0, t1, t_dtw, t_dtw_start, t_dtw_end
    cdef readonly float vlen
    cdef readonly bytes text
    cdef bytes shown            # what it adds to the text: whole characters that end in it (`Emitter.show`)


cdef class WordData(Record):
    cdef readonly bytes text
    cdef readonly double t0, t1
    cdef readonly float probability
    cdef readonly tuple tokens


cdef class SegmentData(Record):
    cdef readonly long long t0, t1
    cdef readonly bytes text
    cdef readonly tuple tokens
    cdef readonly float no_speech_prob
    cdef readonly bint speaker_turn_next
    cdef readonly float avg_logprob, temperature
    cdef readonly tuple words


cdef class WindowData(Record):
    cdef readonly long long t0, t1
    cdef readonly float temperature, avg_logprob, entropy, no_speech_prob
    cdef readonly str verdict


cdef class Timings(Record):
    cdef readonly double load_ms, mel_ms, encode_ms, cross_ms, decode_ms, batchd_ms, prompt_ms, sample_ms, total_ms
    cdef readonly int n_encode, n_decode, n_batchd, n_prompt, n_sample, n_fail_p, n_fail_h


cdef class RunResult(Record):
    cdef readonly object language               # code, or None: nothing was heard
    cdef readonly object language_probability   # float, or None: not detected
    cdef readonly tuple segments
    cdef readonly Timings timings
    cdef readonly int n_samples
    cdef readonly tuple windows
    cdef readonly tuple vad_segments            # (t0, t1) of each speech region, 10 ms units
    cdef readonly object seed
