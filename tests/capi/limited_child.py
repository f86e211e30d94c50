"""Works until memory runs out, in a process of its own. Run by test_defects.py.

limited_child.py MODEL      prints what each call returned, as JSON
"""

from __future__ import annotations

import json
import logging
import resource
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2]))  # last: an installed whispyx comes first

from whispyx import capi

SPARE_BYTES = 12 << 20  # less than the cache of eight decoders takes, and more than the small things do


def size_of_process() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def main(model: str) -> dict[str, object]:
    logging.disable(logging.CRITICAL)
    sound = np.random.default_rng(1).normal(0, 0.1, 16000).astype(np.float32)
    params = capi.whisper_full_default_params(capi.WHISPER_SAMPLING_GREEDY)
    params.n_threads, params.temperature_inc = 1, 0.0
    many = params.copy()
    many.temperature, many.greedy.best_of = 1.0, 8
    ctx = capi.whisper_init_from_file(model)
    assert ctx is not None
    out: dict[str, object] = {"before": capi.whisper_full(ctx, params, sound, len(sound))}
    text = [capi.whisper_full_get_segment_text(ctx, i) for i in range(capi.whisper_full_n_segments(ctx))]
    limit = size_of_process() + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    out["many"] = [capi.whisper_full(ctx, many, sound, len(sound)) for _ in range(3)]
    out["state"] = [capi.whisper_init_state(ctx) is None for _ in range(3)]
    out["model"] = [capi.whisper_init_from_file(model) is None for _ in range(3)]
    out["after"] = capi.whisper_full(ctx, params, sound, len(sound))
    again = [capi.whisper_full_get_segment_text(ctx, i) for i in range(capi.whisper_full_n_segments(ctx))]
    out["same"] = again == text
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    out["with room"] = capi.whisper_full(ctx, many, sound, len(sound))
    state = ctx.state
    capi.whisper_free(ctx)
    capi.whisper_free_state(state)
    capi.whisper_free(ctx)
    return out


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
