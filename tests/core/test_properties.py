"""Whatever the parameters, however short the sound: a sound result or a typed error, never the process's end."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel
from whispyx._core.params import FIELDS

ROOT = Path(__file__).resolve().parents[2]
MODEL = TinyModel(n_vocab=51865, end_after=8)
SECONDS_PER_CASE = 120
TYPED = {"ParamsError", "AudioError", "LanguageError", "StateError", "ComputeError", "ModelFormatError",
         "ModelNotFoundError", "Aborted"}  # fmt: skip
STATUSES = {f"status {-n}" for n in range(1, 10)} | {"status 0"}


class Child:
    """A process that runs cases; a new one follows when it has ended."""

    def __init__(self, face: str) -> None:
        self.face = face
        self.process: subprocess.Popen[str] | None = None

    def run(self, case: dict[str, Any]) -> dict[str, str]:
        if self.process is None:
            script = ROOT / "tests" / "core" / "properties_child.py"
            command = [sys.executable, str(script), str(pair(MODEL).path), self.face]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS_PER_CASE)
        answer = self.process.stdout.readline() if ready else ""
        if answer:
            return json.loads(answer)  # type: ignore[no-any-return]
        if not ready:
            self.process.kill()
        _, said = self.process.communicate()
        status, self.process = self.process.returncode, None
        pytest.fail(f"the process ended with {status} ({'too slow' if not ready else 'by itself'}): {said[-2000:]}")

    def close(self) -> None:
        if self.process is not None:
            self.process.communicate()  # the end of its input ends it


@pytest.fixture(scope="module", params=["core", "capi"])
def child(request: pytest.FixtureRequest) -> Iterator[Child]:
    found = Child(request.param)
    yield found
    found.close()


wild = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([-1, 0, 1, 2, 8, 9, 2**31 - 1, 2**31, -(2**31), 2**63]),
    st.floats(),
    st.sampled_from([1e-9, 0.009, 0.01, 1e30, -1e30]),
    st.text(max_size=8),
    st.lists(st.integers(-5, 60000), max_size=4),
)
flags = st.booleans()
reals = st.floats(-10, 10)
called = st.sampled_from(["true", "false"])
sound_values: dict[str, st.SearchStrategy[Any]] = {
    "strategy": st.sampled_from(["greedy", "beam_search"]),
    "n_threads": st.sampled_from([1, 2, 3, 40]),
    "n_max_text_ctx": st.one_of(st.integers(0, 500), st.just(16384)),
    "offset_ms": st.one_of(st.integers(0, 200), st.just(2**31 - 1)),
    "duration_ms": st.one_of(st.integers(0, 200), st.just(2**31 - 1)),
    **dict.fromkeys(
        (
            "translate",
            "no_context",
            "no_timestamps",
            "single_segment",
            "print_special",
            "print_realtime",
            "print_timestamps",
            "token_timestamps",
            "split_on_word",
            "tdrz_enable",
            "no_pad",
            "carry_initial_prompt",
            "detect_language",
            "suppress_blank",
            "suppress_listed",
            "suppress_nst",
            "word_timestamps",
        ),
        flags,
    ),
    **dict.fromkeys(("thold_pt", "thold_ptsum", "length_penalty", "entropy_thold", "logprob_thold"), reals),
    "no_speech_thold": st.floats(-1, 2),
    "max_len": st.integers(0, 20),
    "max_tokens": st.one_of(st.integers(0, 8), st.just(2**31 - 1)),
    "audio_ctx": st.integers(0, 120),
    "suppress_regex": st.sampled_from(["", ".*", "[a-z]", "(a*)*b", "[", "(", "ü|ö", r"(.)\1"]),
    "suppress_regex_search": flags,
    "initial_prompt": st.one_of(st.text(max_size=20), st.just("ba " * 300)),
    "prompt_tokens": st.lists(st.integers(0, 52000), max_size=6),
    "language": st.sampled_from(["en", "de", "yue", "german", "auto", "", "xx", None]),
    "temperature": st.sampled_from([0.0, 1e-7, 0.4, 1.0, 5.0, 100.0]),
    "temperature_inc": st.sampled_from([0.0, 0.5, -1.0]),
    "max_initial_ts": st.one_of(st.floats(-1, 40), st.just(1e6)),
    "best_of": st.integers(1, 8),
    "beam_size": st.integers(1, 8),
    "patience": st.floats(-1, 3),
    "grammar": st.sampled_from(
        ['root ::= " ba" | "bu" [a-z]+', "root ::= .*", 'root ::= "x" root "y" | "x" root "z" | "w"']
    ),
    "grammar_penalty": st.sampled_from([0.0, 100.0, -100.0, 1e6]),
    "vad": flags,
    "vad_model_path": st.sampled_from(["", "no-such-file", str(ROOT), __file__]),
    "vad_params": st.fixed_dictionaries({}, optional={"threshold": reals, "samples_overlap": reals}),
    "seed": st.integers(0, 2**32 - 1),
    "progress_callback": called,
    "new_segment_callback": called,
    "encoder_begin_callback": called,
    "abort_callback": called,
    "logits_filter_callback": called,
}
one_value = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda name: st.tuples(st.just(name), st.one_of(*[sound_values.get(name, wild)] * 8, wild))
)
lengths = st.one_of(st.integers(0, 2000), st.sampled_from([0, 1, 159, 160, 1599, 1600, 1760, 2000]))
sounds = st.sampled_from([*["noise"] * 8, "zeros", "nan", "inf", "loud"])


def cases(n_samples: st.SearchStrategy[int], values: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[Any]:
    params = st.lists(values, max_size=6).map(dict)
    return st.fixed_dictionaries({"n_samples": n_samples, "sound": sounds, "params": params})


def check(child: Child, case: dict[str, Any]) -> None:
    answer = child.run(case)
    event(answer["outcome"])
    allowed = TYPED | {"done"} if child.face == "core" else STATUSES | {"ParamsError", "LanguageError", "not set"}
    if "raise" in case["params"].values():
        allowed.add("raised")
    assert answer["outcome"] in allowed, answer
    if answer["outcome"] not in ("done", "raised"):
        assert answer["message"]


relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@settings(relaxed, max_examples=250)
@given(case=cases(lengths, one_value))
def test_any_parameters_and_short_sounds(child: Child, case: dict[str, Any]) -> None:
    check(child, case)


@settings(relaxed, max_examples=40)
@given(case=cases(st.integers(2000, 32000), st.sampled_from(sorted(sound_values)).flatmap(
    lambda name: st.tuples(st.just(name), sound_values[name]))))  # fmt: skip
def test_parameters_in_their_ranges_and_up_to_two_seconds(child: Child, case: dict[str, Any]) -> None:
    check(child, case)


@settings(relaxed, max_examples=25)
@given(case=cases(st.integers(1600, 2000), one_value), name=st.sampled_from(
    ["progress_callback", "new_segment_callback", "encoder_begin_callback", "abort_callback",
     "logits_filter_callback"]))  # fmt: skip
def test_callbacks_that_raise(child: Child, case: dict[str, Any], name: str) -> None:
    case["params"][name] = "raise"
    check(child, case)


def test_every_field_has_values_in_range() -> None:
    # A new parameter is drawn from its range too, not only from outside.
    assert set(FIELDS) - set(sound_values) <= {"dtw", "reference_sampling"}
