from whispyx._core.results cimport TokenData
from whispyx._core.sequence cimport Decoder, Token
from whispyx._core.vocab cimport Vocab

cdef TokenData record(const Token * token, Vocab vocab)
cdef list cut(Decoder decoder, Vocab vocab, int seek, int seek_end, int audio_end, float no_speech_prob,
              float temperature, bint print_special, bint single_segment, bint tdrz)
cdef bint ends_with_single_timestamp(Decoder decoder, Vocab vocab, int max_tokens, bint single_segment) noexcept
