"""T03: nothing of one call is in the results of the next. (whisper.cpp #3250, #3595, #3918)"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests import data
from tests.trials import child
from tests.trials.bench import bench, files
from whispyx._core.parallel import full_parallel

EMPTY = np.zeros(0, np.float32)


def parallel(ctx: Any, state: Any, params: Any, samples: Any) -> Any:
    return full_parallel(ctx, state, params, samples, 2)


def calls(vad_model: str) -> dict[str, Any]:
    found = {}
    vad = {"vad": True, "vad_model_path": vad_model}
    with bench("base") as b, b.ctx.new_state() as other:
        for name, settings in {
            "context": {},
            "state": {"state": other},
            "two processors": {"full": parallel},
        }.items():
            first = b.run("hello", language=None, **settings)
            silent = b.run("sil10", language=None, **vad, **settings)
            empty = b.run(EMPTY, language=None, **settings)
            again = b.run("hello", language=None, **settings)
            found[name] = {
                "first": [first.language, len(first.segments)],
                "silent": len(silent.segments),
                "empty": [empty.language, len(empty.segments)],
                "same": again.segments == first.segments and again.language == first.language,
            }
    return found


def test_a_call_without_speech_returns_nothing_of_the_call_before() -> None:
    files("base")
    for name, found in child.run(calls, str(data.or_skip(data.silero_ggml))).items():
        assert found["first"][0] == "en" and found["first"][1] > 0, name
        assert found["silent"] == 0, name
        assert found["empty"] == [None, 0], name
        assert found["same"], name
