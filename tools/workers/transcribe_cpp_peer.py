"""transcribe-cpp as a worker process, in the environment of that peer.

load        model (a legacy ggml file), threads, compute (not used)   -> load_s
transcribe  samples (.npy, float32), language, beams (1 alone)        -> seconds, text, n_tokens, encode_ms
"""

from __future__ import annotations

import time
from typing import Any

import transcribe_cpp
from serving import read_samples, serve


class Worker:
    def __init__(self) -> None:
        self.session: Any = None

    def load(self, model: str, threads: int, compute: str = "") -> dict[str, Any]:
        self.session = None
        start = time.perf_counter()
        self.session = transcribe_cpp.Model(model).session(n_threads=threads)
        return {"load_s": time.perf_counter() - start}

    def transcribe(self, samples: str, language: str = "en", beams: int = 1) -> dict[str, Any]:
        if beams > 1:
            raise ValueError("transcribe-cpp decodes greedily")
        sound = read_samples(samples)
        options = transcribe_cpp.WhisperRunOptions(temperature_inc=0.0)
        start = time.perf_counter()
        result = self.session.run(sound, language=language, timestamps="segment", family=options)
        seconds = time.perf_counter() - start
        n_windows = max(1, -(-len(sound) // 480_000))  # a lower bound: windows end where a segment does
        return {
            "seconds": seconds,
            "text": result.text.strip(),
            "n_tokens": len(result.tokens) or None,
            "encode_ms": result.timings.encode_ms / n_windows if n_windows == 1 else None,
        }


if __name__ == "__main__":
    serve(Worker())
