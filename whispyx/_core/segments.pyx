"""Cuts a window's tokens into segments at timestamps. Rules of whisper.cpp 1.8.5 (`whisper_full_with_state`)."""

from whispyx._core.results cimport SegmentData, TokenData
from whispyx._core.sequence cimport Decoder, Token
from whispyx._core.vocab cimport Vocab


cdef TokenData record(const Token * token, Vocab vocab):
    cdef TokenData out = TokenData.__new__(TokenData)
    out.id, out.tid = token.id, token.tid
    out.p, out.plog, out.pt, out.ptsum = token.p, token.plog, token.pt, token.ptsum
    out.t0 = out.t1 = out.t_dtw = out.t_dtw_start = out.t_dtw_end = -1
    out.text = out.shown = vocab.text(token.id)
    return out


cdef SegmentData segment(Decoder decoder, Vocab vocab, int first, int last, long long t0, long long t1, list text,
                         bint turn, float no_speech_prob, float temperature):
    """Make a segment of tokens first..last."""
    cdef SegmentData out = SegmentData.__new__(SegmentData)
    cdef int i
    out.t0, out.t1 = t0, t1
    out.text = b"".join(text)
    out.tokens = tuple([record(&decoder.tokens[i], vocab) for i in range(first, last + 1)])
    out.no_speech_prob = no_speech_prob
    out.speaker_turn_next = turn
    out.avg_logprob = <float>decoder.avg_logprobs
    out.temperature = temperature
    return out


cdef list cut(Decoder decoder, Vocab vocab, int seek, int seek_end, int audio_end, float no_speech_prob,
              float temperature, bint print_special, bint single_segment, bint tdrz):
    """Return the window's segments. `seek` is the window's first frame; times are frames (10 ms) of the recording.

    The end of a segment without a closing timestamp lies before `seek_end`. No time lies beyond `audio_end`: a short
    silence is often closed at 10 s.
    """
    cdef int n = decoder.n_tokens, i = 0, first = 0, token
    cdef long long t0, t1
    cdef list found = [], text = []
    cdef bint turn = False
    if n == 0:
        return found
    t0 = min(<long long>seek + 2 * (decoder.tokens[0].tid - vocab.beg), <long long>audio_end)
    while i < n:
        token = decoder.tokens[i].id
        if vocab.is_text(token) or print_special:
            text.append(vocab.text(token))
        if tdrz and token == vocab.solm:
            turn = True
        if vocab.beg < token < vocab.end and not single_segment:
            t1 = min(<long long>seek + 2 * (decoder.tokens[i].tid - vocab.beg), <long long>audio_end)
            if any(text):
                found.append(segment(decoder, vocab, first, i, t0, t1, text, turn, no_speech_prob, temperature))
            text = []
            t0 = t1
            # Further timestamps move the start: the next segment begins at the last of them.
            while i + 1 < n and vocab.beg < decoder.tokens[i + 1].id < vocab.end:
                i += 1
                t0 = min(<long long>seek + 2 * (decoder.tokens[i].tid - vocab.beg), <long long>audio_end)
                if print_special:
                    text.append(vocab.text(decoder.tokens[i].id))
            first = i + 1
            turn = False
        i += 1
    if any(text):
        t1 = min(<long long>seek + decoder.seek_delta, <long long>max(seek_end, t0))
        found.append(segment(decoder, vocab, first, n - 1, t0, t1, text, turn, no_speech_prob, temperature))
    return found


cdef bint ends_with_single_timestamp(Decoder decoder, Vocab vocab, int max_tokens, bint single_segment) noexcept:
    """Whether the text ends with one timestamp: nothing was said after it, so the window is done."""
    cdef int n = decoder.n_tokens
    if max_tokens > 0 and not single_segment and n > max_tokens:
        return False
    return (n >= 2 and vocab.beg < decoder.tokens[n - 1].id < vocab.end
            and not vocab.is_time(decoder.tokens[n - 2].id))
