"""What happens to a window's segments before the caller sees them: whole characters, token times, wrapping, alignment,
words, and the way back from the time line without silence. Order of whisper.cpp 1.8.5, but with alignment in front of
the callbacks, so that each segment is given out once, complete and in order.
"""

import codecs

from whispyx._core.align.align cimport align_window
from whispyx._core.align.energy cimport TokenClock
from whispyx._core.align.fit cimport Loudness
from whispyx._core.context cimport Context
from whispyx._core.params cimport FullParams
from whispyx._core.results cimport SegmentData, TokenData, WordData
from whispyx._core.state cimport State

from whispyx._core.align.wrap import wrap


def clock(long long t) -> str:
    """Return a time given in units of 10 ms as HH:MM:SS.mmm."""
    cdef long long ms = 10 * t
    return f"{ms // 3600000:02d}:{ms // 60000 % 60:02d}:{ms // 1000 % 60:02d}.{ms % 1000:03d}"


cdef void shift_segment(SegmentData segment, long long shift):
    """Move a segment, its tokens and words by `shift` times 10 ms."""
    cdef TokenData token
    cdef WordData word
    segment.t0 += shift
    segment.t1 += shift
    for token in segment.tokens:
        if token.t0 >= 0:
            token.t0 += shift
            token.t1 += shift
        if token.t_dtw >= 0:
            token.t_dtw += shift
        if token.t_dtw_end >= 0:
            token.t_dtw_start += shift
            token.t_dtw_end += shift
    for word in segment.words:
        word.t0 += shift / 100.0
        word.t1 += shift / 100.0


cdef void keep_inside(SegmentData segment):
    """Let no token or word begin or end outside of its segment."""
    cdef TokenData token
    cdef WordData word
    for token in segment.tokens:
        if token.t0 >= 0:
            token.t0 = min(max(token.t0, segment.t0), segment.t1)
            token.t1 = min(max(token.t1, token.t0), segment.t1)
        if token.t_dtw_end >= 0:
            token.t_dtw_start = min(max(token.t_dtw_start, segment.t0), segment.t1)
            token.t_dtw_end = min(max(token.t_dtw_end, token.t_dtw_start), segment.t1)
    for word in segment.words:
        word.t0 = min(max(word.t0, segment.t0 / 100.0), segment.t1 / 100.0)
        word.t1 = min(max(word.t1, word.t0), segment.t1 / 100.0)


cdef class Emitter:
    """Finishes segments and hands them to the caller, in order.

    Parameters
    ----------
    ctx, state, params
        Those of the run.
    samples
        What is recognised, float32 (n,); None when the run began with a spectrogram.
    time_map
        Way back to the recording when silence was cut out of `samples`, or None.
    """

    def __cinit__(self, Context ctx, State state, FullParams params, samples, time_map):
        self.ctx, self.state, self.params, self.samples = ctx, state, params, samples
        self.time_map = time_map
        self.characters = codecs.getincrementaldecoder("utf-8")("ignore")
        self.segments = []
        self.clock = None
        self.loudness = None

    cdef int start(self) except -1:
        """Get ready: samples and time map will not change any more."""
        if self.params.get("token_timestamps"):
            self.clock = TokenClock(self.samples, self.params.get("thold_pt"), self.params.get("thold_ptsum"),
                                    self.ctx.vocab)
        if self.params.get("word_timestamps"):
            self.loudness = Loudness(self.samples)
        return 0

    cdef int window(self, list found, int seek, int n_frames, int lang, int n_threads) except -1:
        """Finish the segments of the window that starts at frame `seek` and give them out."""
        cdef list batches
        cdef SegmentData segment, piece
        for segment in found:
            self.show(segment)
        batches = [self.dress(segment) for segment in found]
        pieces = [piece for batch in batches for piece in batch]
        if pieces and (self.params.get("dtw") or self.params.get("word_timestamps")):
            align_window(self.state, pieces, seek, n_frames, lang, n_threads, self.params.get("translate"),
                         self.params.get("dtw"), self.loudness)
        for piece in pieces:
            self.to_recording(piece)
        for batch in batches:
            self.give_out(batch)
        return 0

    cdef int show(self, SegmentData segment) except -1:
        """Leave whole characters only in the text, each where its last byte is; the tokens keep their bytes.

        A text that was cut short, or sampled at a high temperature, has bytes that belong to no character.
        """
        cdef TokenData token
        cdef bint special = self.params.get("print_special")
        cdef list text = []
        if special:     # in front are timestamps that belong to no segment
            text.append(segment.text[:len(segment.text) - sum([len((<TokenData>t).text) for t in segment.tokens])])
        for token in segment.tokens:
            if self.ctx.vocab.is_text(token.id):
                token.shown = self.characters.decode(token.text).encode()
                text.append(token.shown)
            elif special:
                text.append(token.text)
        segment.text = b"".join(text)
        return 0

    cdef list dress(self, object segment):
        """Give a segment's tokens their times, and cut it where it is too long. Cutting needs the times."""
        if self.clock is None:
            return [segment]
        (<TokenClock>self.clock).times(segment)
        keep_inside(segment)    # the first token begins where the segment before ended
        if self.params.get("max_len") == 0:
            return [segment]
        return wrap(segment, self.params.get("max_len"), self.params.get("split_on_word"), self.ctx.vocab)

    cdef long long place(self, long long t) except? -1:
        """Return where the time t of `samples` lies in the recording, 10 ms units."""
        t += self.shift
        return t if self.time_map is None else min(<long long>self.time_map.segment_t0(t), self.end)

    cdef int to_recording(self, object piece) except -1:
        """Turn the times of a segment, its tokens and words into those of the recording."""
        cdef SegmentData segment = piece
        cdef TokenData token
        cdef WordData word
        if self.shift == 0 and self.time_map is None:
            return 0
        shift_segment(segment, self.shift)
        to = self.time_map
        if to is None:
            return 0
        segment.t0, segment.t1 = to.segment(segment.t0, segment.t1)
        segment.t0, segment.t1 = min(segment.t0, self.end), min(segment.t1, self.end)
        for token in segment.tokens:
            if token.t0 >= 0:
                token.t0, token.t1 = to.token(token.t0, token.t1)
            if token.t_dtw >= 0:
                token.t_dtw = min(<long long>to.token_t0(token.t_dtw), self.end)
            if token.t_dtw_end >= 0:
                token.t_dtw_start, token.t_dtw_end = to.token(token.t_dtw_start, token.t_dtw_end)
        for word in segment.words:
            word.t0, word.t1 = to.seconds(word.t0), to.seconds(word.t1)
        keep_inside(segment)    # the end of a segment in a cut-out silence lies before the speech behind it
        return 0

    cdef int give_out(self, list pieces) except -1:
        cdef SegmentData piece
        if self.params.get("print_realtime"):
            for piece in pieces:
                text = piece.text.decode()
                if self.params.get("print_timestamps"):
                    print(f"[{clock(piece.t0)} --> {clock(piece.t1)}]  {text}", flush=True)
                else:
                    print(text, end="", flush=True)
        self.segments.extend(pieces)
        callback = self.params.get("new_segment_callback")
        if callback is not None:
            callback(list(pieces))
        return 0
