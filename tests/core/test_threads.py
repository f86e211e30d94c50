"""Jobs side by side: one context, a state per thread, the results of each alone, and an interpreter that stays free."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

from tests import data, heartbeat
from tests.trials import child
from tests.trials.bench import Bench, bench, files, hear
from whispyx._core.params import usable_cores
from whispyx._core.state import State

N_THREADS = 4
ROUNDS = 5 if child.SLOW else 2
# One clip per thread; the second half listens for voice first.
CLIPS = ("hello", "numbers", "german", "passage") if child.SLOW else ("hello", "numbers", "six", "german")


def together(model: str, vad_model: str) -> dict[str, Any]:
    """The results of every clip alone, and in `N_THREADS` threads at once, `ROUNDS` times."""
    with bench(model) as b:
        settings = [{"vad": True, "vad_model_path": vad_model} if i % 2 else {} for i in range(N_THREADS)]
        sounds = [hear(clip) for clip in CLIPS]
        states = [b.ctx.new_state() for _ in range(N_THREADS)]
        alone = [digest(b, states[0], sounds[i], settings[i]) for i in range(N_THREADS)]
        rounds = []
        for shift in range(ROUNDS):
            found: list[str] = [""] * N_THREADS

            def job(i: int, shift: int = shift, found: list[str] = found) -> None:
                found[i] = digest(b, states[(i + shift) % N_THREADS], sounds[i], settings[i])

            threads = [threading.Thread(target=job, args=(i,)) for i in range(N_THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rounds.append(found)
        for state in states:
            state.close()
    return {"alone": alone, "rounds": rounds}


def digest(b: Bench, state: State, samples: Any, settings: dict[str, Any]) -> str:
    """Texts, tokens, probabilities and times of a result, in short; 'failed: …' shows in the comparison."""
    try:
        result = b.run(samples, state=state, n_threads=1, temperature_inc=0.0, token_timestamps=True, **settings)
    except Exception as error:
        return f"failed: {error!r}"
    return f"{len(result.segments)} segments, {hashlib.sha256(repr(result.segments).encode()).hexdigest()}"


def test_four_threads_with_one_context_get_what_each_gets_alone() -> None:
    files("tiny.en")
    found = child.run(together, "tiny.en", str(data.or_skip(data.silero_ggml)), timeout=1200)
    assert all(not line.startswith(("failed", "0 segments")) for line in found["alone"]), found["alone"]
    assert len(found["rounds"]) == ROUNDS
    for number, one in enumerate(found["rounds"]):
        assert one == found["alone"], f"round {number}"


def beats(model: str, vad_model: str) -> dict[str, float]:
    rates = {}
    with bench(model) as b:
        cores = usable_cores()
        for name, settings in {
            "greedy": {},
            "beam": {"strategy": "beam_search", "beam_size": 5},
            "voice activity": {"vad": True, "vad_model_path": vad_model},
        }.items():
            wanted = heartbeat.wanted(cores)
            with heartbeat.Heartbeat() as beat:
                b.run("passage", n_threads=cores, temperature_inc=0.0, **settings)
            rates[name] = beat.rate / wanted
    return rates


def test_the_interpreter_stays_free_while_a_job_runs() -> None:
    files("tiny.en")
    rates = child.run(beats, "tiny.en", str(data.or_skip(data.silero_ggml)))
    print({name: round(rate, 2) for name, rate in rates.items()})
    assert {name: rate for name, rate in rates.items() if rate < 1.0} == {}
