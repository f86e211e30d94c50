"""Whether rounding decided: two continuations so close that either engine may take either."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tests import data
from tests.oracle.greedy import Follow, Transcriber
from tests.oracle.network import Whisper
from tests.oracle.reader import read_model
from tests.oracle.rules import Settings
from tests.parity import sounds
from tests.parity.compare import Answer
from tests.parity.engines import Engines
from tests.parity.grid import BASE, Case

CLOSE_CALL: Final = 0.02  # lead in logits below which rounding may decide, as in test_parity_whispercpp
MOST_CLOSE_CALLS: Final = 2


@lru_cache(maxsize=1)
def _oracle(model: str) -> Whisper:
    return Whisper(read_model(data.model_file(model)))


def near_tie(case: Case, ours: Answer, theirs: Answer, engines: Engines) -> str:
    """Say what decided when exact arithmetic allows both answers, else ""."""
    known = set(Settings.__dataclass_fields__) | {"n_threads", "temperature_inc", "token_timestamps"}
    params = {**BASE, **case.params}
    if not set(params) <= known or params["temperature_inc"] or params["language"] == "auto":
        return ""
    if case.n_processors > 1:
        return ""
    settings = Settings(**{name: value for name, value in params.items() if name in Settings.__dataclass_fields__})
    leads = []
    for answer in (theirs, ours):
        given = [token for segment in answer["segments"] for token in segment["tokens"]]
        follow = Follow(given, CLOSE_CALL)
        truth = Transcriber(_oracle(case.model), settings, follow).run(sounds.array(case.sound))
        if [token for segment in truth.segments for token in segment.tokens] != given:
            return ""
        if len(follow.close_calls) > MOST_CLOSE_CALLS:
            return ""
        leads += [lead for _, _, lead in follow.close_calls]
    return leads and "leads of " + ", ".join(f"{lead:.4f}" for lead in leads)
