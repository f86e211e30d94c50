"""T24: callbacks, stopping, and an interpreter that stays free. (pywhispercpp PR #124, #137; whisper.cpp #1185)"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests import heartbeat
from tests.trials import child
from tests.trials.bench import bench, files, hear
from tests.trials.checks import RATE, check_transcript
from whispyx import Aborted, Model
from whispyx._core.params import usable_cores

FAILS_AT = 3
SOON_S = 3.0  # a stop is heard within a graph; the rest is for a busy machine (all of 'long' takes many times that)


class Mine(Exception):
    pass


def raise_mine(*_: object) -> None:
    raise Mine("from the callback")


def caught(call: Callable[[], Any], kind: type[BaseException]) -> BaseException:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} came")


def friendly() -> dict[str, Any]:
    """Every way a job of the friendly API can end early; what was recognised so far must be with the exception."""
    found: dict[str, Any] = {}
    sound = hear("long")[: 120 * RATE]
    with Model(str(child.model("tiny.en"))) as model:
        before = model.transcribe(hear("hello")).segments
        shown: list[Any] = []

        def at_third(segment: Any) -> None:
            shown.append(segment)
            if len(shown) == FAILS_AT:
                raise Mine("segment 3")

        def cancel_at_third(segment: Any) -> None:
            shown.append(segment)

        def note(name: str, error: BaseException) -> None:
            partial = error.partial  # type: ignore[attr-defined]
            check_transcript(partial)
            found[name] = {
                "type": type(error).__name__,
                "frames": [frame.name for frame in traceback.extract_tb(error.__traceback__)],
                "complete": partial.complete,
                "partial": [s.text for s in partial.segments],
                "shown": [s.text for s in shown],
                "as before": model.transcribe(hear("hello")).segments == before,
            }
            shown.clear()

        note("raises", caught(lambda: model.transcribe(sound, on_segment=at_third), Mine))
        note("progress raises", caught(lambda: model.transcribe(sound, progress=raise_mine), Mine))
        note("abort raises", caught(lambda: model.transcribe(sound, abort=raise_mine), Mine))  # type: ignore[arg-type]
        stop = caught(
            lambda: model.transcribe(sound, on_segment=cancel_at_third, abort=lambda: len(shown) >= FAILS_AT), Aborted
        )
        note("cancels", stop)

        flag, asked = threading.Event(), [0.0]

        def set_flag() -> None:
            time.sleep(1.0)
            asked[0] = time.perf_counter()
            flag.set()

        other = threading.Thread(target=set_flag)
        other.start()
        stop = caught(lambda: model.transcribe(hear("long"), on_segment=shown.append, abort=flag.is_set), Aborted)
        found["stopped after"] = time.perf_counter() - asked[0]
        other.join()
        note("another thread cancels", stop)

        end = time.perf_counter() + 1.0  # a time limit
        stop = caught(lambda: model.transcribe(hear("long"), abort=lambda: time.perf_counter() > end), Aborted)
        found["ran over by"] = time.perf_counter() - end
        note("time limit", stop)

        timer = threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        stop = caught(lambda: model.transcribe(hear("long"), on_segment=shown.append), KeyboardInterrupt)
        note("Ctrl-C", stop)
    return found


def test_whatever_stops_a_job_reaches_the_caller_with_what_was_recognised() -> None:
    files("tiny.en")
    found = child.run(friendly)
    assert found.pop("stopped after") < SOON_S
    assert found.pop("ran over by") < SOON_S
    for name, outcome in found.items():
        assert outcome["as before"], name
        assert not outcome["complete"], name
        if outcome["shown"]:
            assert outcome["shown"] == outcome["partial"], name
    assert found["raises"]["type"] == "Mine" and found["raises"]["frames"][-1] == "at_third"
    assert len(found["raises"]["partial"]) == FAILS_AT
    assert len(found["cancels"]["partial"]) >= FAILS_AT  # the rest of the window was known already
    for name in ("progress raises", "abort raises"):
        assert found[name]["type"] == "Mine" and found[name]["frames"][-1] == "raise_mine", name


def core() -> dict[str, Any]:
    found: dict[str, Any] = {}
    sound = hear("passage")[: 45 * RATE]
    with bench("tiny.en") as b:
        for name in (
            "new_segment_callback", "progress_callback", "encoder_begin_callback", "abort_callback",
            "logits_filter_callback",
        ):  # fmt: skip
            error = b.refused(Mine, sound, **{name: raise_mine})
            found[name] = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        b.ctx.set_aheads(child.heads("tiny.en", b.ctx))
        for name, params in {
            "plain": {},
            "words": {"word_timestamps": True},
            "dtw": {"dtw": True},
            "pieces": {"max_len": 20, "token_timestamps": True, "dtw": True},
        }.items():
            told: list[Any] = []
            sizes: list[int] = []

            def tell(batch: list[Any], told: list[Any] = told, sizes: list[int] = sizes) -> None:
                told.extend(batch)
                sizes.append(len(batch))

            result = b.run(sound, new_segment_callback=tell, **params)
            found[name] = [tuple(told) == result.segments, len(told), min(sizes)]
    return found


def test_T1_each_segment_is_told_once_and_in_order_and_exceptions_of_every_callback_come_out() -> None:
    files("tiny.en")
    found = child.run(core)
    for name in ("plain", "words", "dtw", "pieces"):
        same, n, fewest = found.pop(name)
        assert same and n >= (16 if name == "pieces" else 6) and fewest >= 1, name
    for name, frames in found.items():
        assert frames[-1] == "raise_mine", name


def beating() -> float:
    with bench("tiny.en") as b:
        b.ctx.set_aheads(child.heads("tiny.en", b.ctx))
        wanted = heartbeat.wanted(usable_cores())
        with heartbeat.Heartbeat() as beat:
            b.run("passage", word_timestamps=True, n_threads=usable_cores(), new_segment_callback=lambda batch: None)
    return beat.rate / wanted


def test_other_threads_get_their_time_during_a_job() -> None:
    files("tiny.en")
    assert child.run(beating) >= 1.0


def again() -> list[bool]:
    with Model(str(child.model("tiny.en"))) as model:
        expected = model.transcribe(hear("hello")).segments
        inner: list[Any] = []

        def inside(segment: Any) -> None:
            if not inner:
                inner.append(model.transcribe(hear("hello")).segments)

        outer = model.transcribe(hear("hello"), on_segment=inside).segments
        return [inner == [expected], outer == expected]


def test_a_callback_may_use_the_model() -> None:
    files("tiny.en")
    assert child.run(again) == [True, True]
