"""What a run tells about itself: how each window went and where the time was spent."""

from whispyx._core.clock cimport now_us
from whispyx._core.results cimport Timings, WindowData
from whispyx._core.sequence cimport Decoder, repeats
from whispyx._core.state cimport Clocks, State
from whispyx._core.vocab cimport Vocab

cdef enum:
    LOOP_REPEATS = 6        # a piece of text said more often in a row is called a loop


cdef WindowData window_of(Decoder best, Vocab vocab, int seek, int seek_end, float temperature, float no_speech_prob,
                          bint silent):
    """Describe the decoding of the window at frame `seek`, whose text is that of `best`."""
    cdef WindowData out = WindowData.__new__(WindowData)
    out.t0, out.t1 = seek, min(seek + best.seek_delta, seek_end)
    out.temperature, out.no_speech_prob = temperature, no_speech_prob
    out.avg_logprob, out.entropy = <float>best.avg_logprobs, <float>best.entropy
    if silent:
        out.verdict = "no_speech"
    elif best.looped or repeats(best, vocab) > LOOP_REPEATS:
        out.verdict = "loop"
    else:
        out.verdict = "failed" if best.failed else "speech"
    return out


cdef Timings timings_of(State state, long long started_us):
    cdef Timings out = Timings.__new__(Timings)
    cdef Clocks * c = &state.clocks
    out.load_ms = state.ctx.load_ms
    out.mel_ms, out.encode_ms, out.cross_ms = c.mel_us / 1e3, c.encode_us / 1e3, c.cross_us / 1e3
    out.decode_ms, out.batchd_ms, out.prompt_ms = c.decode_us / 1e3, c.batchd_us / 1e3, c.prompt_us / 1e3
    out.sample_ms = c.sample_us / 1e3
    out.total_ms = (now_us() - started_us) / 1e3
    out.n_encode, out.n_decode, out.n_batchd, out.n_prompt = c.n_encode, c.n_decode, c.n_batchd, c.n_prompt
    out.n_sample, out.n_fail_p, out.n_fail_h = c.n_sample, c.n_fail_p, c.n_fail_h
    return out
