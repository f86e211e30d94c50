"""OpenVINO GenAI as a worker process, in the environment of that peer.

load        model (a folder exported by optimum-intel), threads, compute ("" is what OpenVINO prefers here) -> load_s
transcribe  samples (.npy, float32), language, beams          -> seconds, text, n_tokens, first_ms, token_ms
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino_genai
from serving import serve


class Worker:
    def __init__(self) -> None:
        self.pipeline: Any = None
        self.multilingual = True

    def load(self, model: str, threads: int, compute: str = "") -> dict[str, Any]:
        self.pipeline = None
        self.multilingual = json.loads((Path(model) / "generation_config.json").read_text())["is_multilingual"]
        settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads}
        if compute:
            settings["INFERENCE_PRECISION_HINT"] = compute
        start = time.perf_counter()
        self.pipeline = openvino_genai.WhisperPipeline(model, "CPU", **settings)
        return {"load_s": time.perf_counter() - start}

    def transcribe(self, samples: str, language: str = "en", beams: int = 1) -> dict[str, Any]:
        sound = np.load(samples).tolist()  # what the binding takes; not part of its time
        config = self.pipeline.get_generation_config()
        config.return_timestamps = True  # as the others do; it also moves windows by what was heard
        config.num_beams = beams
        if self.multilingual:
            config.language, config.task = f"<|{language}|>", "transcribe"
        start = time.perf_counter()
        result = self.pipeline.generate(sound, config)
        seconds = time.perf_counter() - start
        metrics = result.perf_metrics
        return {
            "seconds": seconds,
            "text": result.texts[0].strip(),
            "n_tokens": metrics.get_num_generated_tokens() // beams,  # those of every beam are counted
            "first_ms": metrics.get_ttft().mean,
            "token_ms": metrics.get_tpot().mean * beams,  # of a step
            "encode_ms": None,  # not told apart from the first token
        }


if __name__ == "__main__":
    serve(Worker())
