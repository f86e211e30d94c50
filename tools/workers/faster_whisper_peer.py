"""faster-whisper as a worker process, in the environment of that peer.

load        model (a CTranslate2 folder), threads, compute    -> load_s
transcribe  samples (.npy, float32), language, beams, batch   -> seconds, text, n_tokens, encode_ms

`batch` above 1 cuts the recording at its own voice activity detection and runs several pieces together.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

# this file has the name of the package: it must not be found in its place
sys.path = [place for place in sys.path if Path(place or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np  # noqa: E402


class Worker:
    def __init__(self) -> None:
        import faster_whisper

        self.package = faster_whisper
        self.model: Any = None

    def load(self, model: str, threads: int, compute: str = "int8") -> dict[str, Any]:
        self.model = None
        start = time.perf_counter()
        self.model = self.package.WhisperModel(model, device="cpu", compute_type=compute, cpu_threads=threads)
        return {"load_s": time.perf_counter() - start}

    def transcribe(
        self, samples: str, language: str = "en", beams: int = 1, batch: int = 1, carry: bool = True
    ) -> dict[str, Any]:
        sound = np.load(samples)
        options: dict[str, Any] = {"language": language, "beam_size": beams, "temperature": 0.0}
        if not carry:
            options["condition_on_previous_text"] = False
        engine = self.model
        if batch > 1:
            engine = self.package.BatchedInferencePipeline(self.model)
            options |= {"batch_size": batch, "without_timestamps": False}
        encode = self.model.encode
        spent: list[float] = []

        def timed(features: Any) -> Any:
            start = time.perf_counter()
            result = encode(features)
            spent.append(time.perf_counter() - start)
            return result

        self.model.encode = timed
        try:
            start = time.perf_counter()
            segments = list(engine.transcribe(sound, **options)[0])
            seconds = time.perf_counter() - start
        finally:
            del self.model.encode
        return {
            "seconds": seconds,
            "text": "".join(segment.text for segment in segments).strip(),
            "n_tokens": sum(len(segment.tokens) for segment in segments),
            "encode_ms": 1e3 * sum(spent) / len(spent) if spent and batch == 1 else None,
            "n_encode": len(spent),
        }


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent))
    from serving import serve

    serve(Worker())
