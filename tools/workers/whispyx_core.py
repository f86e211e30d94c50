"""whispyx as a worker process, through its core. Same commands and answers as whispercpp.py, but for `logits`.

`params` may also have what only whispyx knows, such as `reference_sampling`; answers also have `vad_segments`, the
regions of speech that were kept.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

try:
    import whispyx  # noqa: F401
except ImportError:  # not installed: use the checkout that this file belongs to
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

import numpy as np

# as TokenData has it: as the answers have it
TOKEN_FIELDS = {name: name for name in ("tid", "p", "plog", "pt", "ptsum", "t_dtw")} | {
    "t0": "token_t0",
    "t1": "token_t1",
}
STAGES = ("mel_ms", "encode_ms", "cross_ms", "prompt_ms", "batchd_ms", "decode_ms", "sample_ms", "total_ms")


def peak_kb() -> int:
    """Most memory this program has held. (ru_maxrss would count what the parent held when it started us.)"""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


class Worker:
    """One context and one state at a time, kept between commands."""

    def __init__(self) -> None:
        import whispyx.plugins

        whispyx.plugins.load()
        self.ctx: Any = None
        self.state: Any = None
        self.loaded: Any = None

    def load(
        self, model: str, flash_attn: bool, aheads: dict[str, Any] | None = None, compute: str = "exact"
    ) -> dict[str, Any]:
        from whispyx._core.context import Context

        self.loaded = None
        if self.ctx is not None:
            self.state.close()
            self.ctx.close()
        start = time.perf_counter()
        self.ctx = Context.load(model, flash_attn=flash_attn, compute=compute)
        if aheads:
            from whispyx._core.align.heads import resolve

            heads = [tuple(head) for head in aheads.get("heads", ())]
            self.ctx.set_aheads(resolve(aheads["preset"], aheads.get("n_top", -1), heads, self.ctx.hparams))
        self.state = self.ctx.new_state()
        return {"load_s": time.perf_counter() - start, "compute": self.ctx.compute, "kernels": self.ctx.kernels}

    def windows(self, samples: str, n_regions: int, together: int, params: dict[str, Any]) -> dict[str, Any]:
        """Several copies of a recording as regions of one batch; milliseconds per token of a region, all included
        but the encoder."""
        from whispyx._core.batched import full_batch

        sound = np.ascontiguousarray(np.load(samples), np.float32)
        start = time.perf_counter()
        results = full_batch(self.ctx, self.state, self._params(params, False), [sound] * n_regions, together)
        spent_ms = 1e3 * (time.perf_counter() - start)
        # the state's clocks go on from region to region
        encode_ms = max(result.timings.encode_ms + result.timings.cross_ms for result in results)
        n_tokens = sum(len(segment.tokens) for result in results for segment in result.segments)
        texts = {b"".join(segment.text for segment in result.segments) for result in results}
        return {
            "token_ms": (spent_ms - encode_ms) / n_tokens,
            "encode_ms": encode_ms / n_regions,
            "n_texts": len(texts),
        }

    def mel(self, samples: str, rounds: int) -> dict[str, Any]:
        """Log mel spectrogram of a recording on one thread; the quickest of some rounds."""
        from whispyx._core.mel import MelSpectrogram

        sound = np.ascontiguousarray(np.load(samples), np.float32)
        spent = []
        for _ in range(rounds):
            start = time.perf_counter()
            MelSpectrogram.of_samples(sound, self.ctx.filters, 1)
            spent.append(time.perf_counter() - start)
        return {"ms": 1e3 * min(spent)}

    @staticmethod
    def _params(params: dict[str, Any], dtw: bool) -> Any:
        from whispyx._core.params import FullParams

        params = dict(params)
        if "grammar" in params:
            from whispyx._core.grammar import Grammar

            rules = [[tuple(element) for element in rule] for rule in params["grammar"]["rules"]]
            params["grammar"] = Grammar.from_rules(rules, params["grammar"]["start"])
        if "vad_params" in params:
            from whispyx._core.params import VadParams

            params["vad_params"] = VadParams(**params["vad_params"])
        if dtw:
            params["dtw"] = True
        return FullParams(**params)

    def full(self, samples: str, params: dict[str, Any], n_processors: int = 1) -> dict[str, Any]:
        from whispyx._core.run import FullRun
        from whispyx._core.steps import decoder_spent

        sound = np.ascontiguousarray(np.load(samples), np.float32)
        full_params = self._params(params, bool(getattr(self.ctx, "aheads", ())))
        ops_ms, n_runs = decoder_spent(self.state)
        start = time.perf_counter()
        vad_segments: list[tuple[int, int]] = []
        if n_processors == 1:
            run = FullRun(self.ctx, self.state, full_params, sound)
            result = run.run()
            vad_segments = list(getattr(run, "vad_segments", ()))
        else:
            from whispyx._core.parallel import full_parallel

            result = full_parallel(self.ctx, self.state, full_params, sound, n_processors)
        seconds = time.perf_counter() - start
        spent = decoder_spent(self.state)
        t = result.timings
        timings = {
            "encode_ms": (t.encode_ms + t.cross_ms) / max(1, t.n_encode),  # whisper.cpp counts both as one
            "decode_ms": t.decode_ms / max(1, t.n_decode),
        }
        return {
            "code": 0,
            "language": result.language,
            "segments": [self._segment(segment) for segment in result.segments],
            "vad_segments": vad_segments,
            "seconds": seconds,
            "timings": timings,
            "stages": {name: getattr(t, name) for name in STAGES},
            "decoder": {"ops_ms": spent[0] - ops_ms, "runs": spent[1] - n_runs},
        }

    @staticmethod
    def _segment(segment: Any) -> dict[str, Any]:
        return {
            "t0": segment.t0,
            "t1": segment.t1,
            "text_hex": segment.text.hex(),
            "no_speech_prob": segment.no_speech_prob,
            "speaker_turn_next": segment.speaker_turn_next,
            "tokens": [t.id for t in segment.tokens],
            **{name: [getattr(t, field) for t in segment.tokens] for field, name in TOKEN_FIELDS.items()},
        }

    def fresh(
        self,
        model: str,
        flash_attn: bool,
        samples: str,
        params: dict[str, Any],
        n_processors: int = 1,
        aheads: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        loaded = (model, flash_attn, json.dumps(aheads))
        if self.loaded != loaded:
            self.load(model, flash_attn, aheads)
            self.loaded = loaded
        else:
            self.state.close()
            self.state = self.ctx.new_state()
        return self.full(samples, params, n_processors)

    def speech(self, vad_model: str, samples: str, vad_params: dict[str, Any], n_threads: int = 4) -> dict[str, Any]:
        from whispyx._core.params import VadParams
        from whispyx._core.vad.detect import VadModel
        from whispyx._core.vad.regions import regions, to_cs

        sound = np.ascontiguousarray(np.load(samples), np.float32)
        with VadModel.load(vad_model, n_threads=n_threads) as vad:
            start = time.perf_counter()
            probs = vad.detect(sound)
            found = to_cs(regions(probs, VadParams(**vad_params), vad.n_window))
            seconds = time.perf_counter() - start
        return {"probs": probs.tolist(), "regions": [list(region) for region in found], "seconds": seconds}

    def rss(self) -> dict[str, Any]:
        return {"peak_kb": peak_kb()}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # anything printed by mistake must not get between the answers
    worker = Worker()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(worker, command.pop("do"))(**command)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
