"""The friendly API above a fake engine: options, callbacks, life cycle, threads."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest

import whispyx
from whispyx import (
    Aborted,
    AudioError,
    ComputeError,
    LanguageError,
    Model,
    ParamsError,
    Segment,
    StateError,
    TranscribeOptions,
)

from .fakes import FakeEngine, FakeSegment, FakeState, seconds_of_audio

Install = Callable[[FakeEngine], FakeEngine]
THREE = (FakeSegment(0, 100, b" One."), FakeSegment(100, 200, b" Two."), FakeSegment(200, 900, b" Three."))
SPEECH = seconds_of_audio(3.0)


def test_a_transcript_tells_what_was_said_and_how(install: Install) -> None:
    install(FakeEngine(THREE))
    transcript = Model("fake").transcribe(SPEECH, "German", temperature=0.4)
    assert transcript.text == "One. Two. Three."
    assert (transcript.language, transcript.language_probability) == ("de", None)
    assert transcript.duration == 3.0 and transcript.segments[-1].end == 3.0
    assert transcript.model == "fake" and transcript.devices == ("GPU0", "CPU")
    assert transcript.options.temperature == 0.4 and transcript.complete
    assert transcript.timings.n_decode == 2 and transcript.timings.load_ms == 12.5


def test_the_language_is_detected_when_none_is_given(install: Install) -> None:
    install(FakeEngine())
    transcript = Model("fake").transcribe(SPEECH)
    assert (transcript.language, transcript.language_probability) == ("fr", 0.75)


def test_an_english_only_model_takes_english_without_being_told(install: Install) -> None:
    engine = install(FakeEngine(multilingual=False))
    model = Model("fake.en")
    assert model.transcribe(SPEECH).language == "en"
    assert engine.asked[0].language == "en"
    assert model.languages == ("en",)


def test_an_english_only_model_refuses_other_languages_translation_and_detection(install: Install) -> None:
    install(FakeEngine(multilingual=False))
    model = Model("fake.en")
    with pytest.raises(LanguageError, match="English only, not German"):
        model.transcribe(SPEECH, "de")
    with pytest.raises(ParamsError, match="English only"):
        model.transcribe(SPEECH, task="translate")
    with pytest.raises(LanguageError, match="English only"):
        model.detect_language(SPEECH)


def test_a_language_that_came_with_later_models_is_refused_by_earlier_ones(install: Install) -> None:
    install(FakeEngine())
    with pytest.raises(LanguageError, match="Cantonese is not among them"):
        Model("fake").transcribe(SPEECH, "yue")


def test_options_reach_the_engine_in_its_names_and_units(install: Install) -> None:
    engine = install(FakeEngine())
    Model("fake").transcribe(
        SPEECH, "en", task="translate", initial_prompt="Names: Ann.", condition_on_previous_text=False,
        timestamps=False, offset=1.5, duration=0.0001, n_threads=3, max_tokens=50, seed=4,
    )  # fmt: skip
    asked = engine.asked[0].fields
    assert asked["translate"] is True and asked["initial_prompt"] == "Names: Ann."
    assert asked["n_max_text_ctx"] == 0 and asked["no_timestamps"] is True
    assert (asked["offset_ms"], asked["duration_ms"]) == (1500, 1)
    assert (asked["n_threads"], asked["max_tokens"], asked["seed"]) == (3, 50, 4)


def test_options_of_one_call_do_not_stay_for_the_next(install: Install) -> None:
    engine = install(FakeEngine())
    model = Model("fake")
    model.transcribe(SPEECH, "de", task="translate", initial_prompt="x", temperature=0.9)
    model.transcribe(SPEECH)
    fresh = Model("fake")
    fresh.transcribe(SPEECH)
    keep = lambda asked: {name: value for name, value in asked.fields.items() if "callback" not in name}  # noqa: E731
    assert keep(engine.asked[1]) == keep(engine.asked[2])


def test_the_threads_of_the_model_are_used_unless_a_call_says_otherwise(install: Install) -> None:
    engine = install(FakeEngine())
    model = Model("fake", n_threads=2)
    model.transcribe(SPEECH)
    model.transcribe(SPEECH, n_threads=1)
    assert [asked.fields["n_threads"] for asked in engine.asked] == [2, 1]
    with pytest.raises(ParamsError, match="n_threads"):
        Model("fake", n_threads=0)


def test_options_come_as_one_value_or_as_keywords_but_not_both(install: Install) -> None:
    install(FakeEngine())
    model = Model("fake")
    options = TranscribeOptions(language="de", temperature=0.2)
    assert model.transcribe(SPEECH, options=options).options == replace(options, n_threads=2)
    with pytest.raises(TypeError, match="not both"):
        model.transcribe(SPEECH, "en", options=options)
    with pytest.raises(TypeError, match="unknown transcription option 'temprature'"):
        model.transcribe(SPEECH, temprature=3)  # type: ignore[call-arg]


def test_bad_options_are_refused_before_the_audio_is_read(install: Install) -> None:
    engine = install(FakeEngine())

    def reading(audio: object, sample_rate: int | None) -> None:
        raise AssertionError("the audio was read")

    engine.load_audio = reading  # type: ignore[method-assign, assignment]
    with pytest.raises(ParamsError):
        Model("fake").transcribe("file.wav", best_of=99)


def test_no_audio_gives_an_empty_transcript_without_a_detected_language(install: Install) -> None:
    engine = install(FakeEngine())
    transcript = Model("fake").transcribe(seconds_of_audio(0))
    assert transcript.segments == () and transcript.language is None and transcript.duration == 0.0
    assert engine.asked == []
    assert Model("fake").transcribe(seconds_of_audio(0), "de").language == "de"


def test_each_segment_is_shown_once_in_order_and_equals_the_one_of_the_transcript(install: Install) -> None:
    split = "日".encode()
    install(FakeEngine((*THREE, FakeSegment(200, 250, split[:1]), FakeSegment(250, 300, split[1:] + b"x\xe6"))))
    seen: list[Segment] = []
    transcript = Model("fake").transcribe(SPEECH, on_segment=seen.append)
    assert tuple(seen) == transcript.segments
    assert transcript.text == "One. Two. Three.日x"


def test_progress_is_told_as_a_percentage(install: Install) -> None:
    install(FakeEngine(THREE))
    told: list[int] = []
    Model("fake").transcribe(SPEECH, progress=told.append)
    assert told == [33, 66, 100]


def test_an_error_in_a_callback_reaches_the_caller_with_what_was_recognised(install: Install) -> None:
    install(FakeEngine(THREE))

    def fussy(segment: Segment) -> None:
        if segment.id == 1:
            raise LookupError("not this one")

    with pytest.raises(LookupError, match="not this one") as caught:
        Model("fake").transcribe(SPEECH, on_segment=fussy)
    assert caught.value.partial.text == "One. Two."  # type: ignore[attr-defined]
    assert not caught.value.partial.complete  # type: ignore[attr-defined]
    assert caught.traceback[-1].name == "fussy"


def test_aborting_keeps_what_was_recognised(install: Install) -> None:
    install(FakeEngine(THREE))
    seen: list[Segment] = []
    with pytest.raises(Aborted) as caught:
        Model("fake").transcribe(SPEECH, on_segment=seen.append, abort=lambda: len(seen) == 2)
    partial = caught.value.partial
    assert partial.text == "One. Two." and partial.language == "fr" and not partial.complete


def test_ctrl_c_is_heard_while_the_engine_computes(install: Install) -> None:
    install(FakeEngine(THREE, during=lambda state: (_ for _ in ()).throw(KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt) as caught:
        Model("fake").transcribe(SPEECH)
    assert caught.value.partial.segments == ()  # type: ignore[attr-defined]


def test_after_an_error_the_model_goes_on_as_before(install: Install) -> None:
    engine = install(FakeEngine(THREE))
    model = Model("fake")
    with pytest.raises(ZeroDivisionError):
        model.transcribe(SPEECH, on_segment=lambda segment: 1 // 0)
    assert model.transcribe(SPEECH).text == "One. Two. Three."
    assert len(engine.opened[0].states) == 1


def test_a_state_whose_computation_failed_is_not_used_again(install: Install) -> None:
    failing = [ComputeError("the device is gone")]

    def fail_once(state: FakeState) -> None:
        if failing:
            raise failing.pop()

    engine = install(FakeEngine(during=fail_once))
    model = Model("fake")
    with pytest.raises(ComputeError, match="the device is gone"):
        model.transcribe(SPEECH)
    assert model.transcribe(SPEECH).text == "Hello."
    assert [state.closed for state in engine.opened[0].states] == [True, False]


def test_a_state_is_reused_from_job_to_job(install: Install) -> None:
    engine = install(FakeEngine())
    model = Model("fake")
    for _ in range(5):
        model.transcribe(SPEECH)
    assert len(engine.opened[0].states) == 1


def test_no_state_is_kept_when_none_is_wanted(install: Install) -> None:
    engine = install(FakeEngine())
    model = Model("fake", max_idle_states=0)
    model.transcribe(SPEECH)
    model.transcribe(SPEECH)
    assert [state.closed for state in engine.opened[0].states] == [True, True]


def test_threads_share_a_model_with_a_state_each_and_never_more_jobs_than_allowed(install: Install) -> None:
    gate = threading.Barrier(3, timeout=30)
    engine = install(FakeEngine(during=lambda state: gate.wait() and None))
    model = Model("fake", max_jobs=3, max_idle_states=1)
    texts: list[str] = []
    threads = [threading.Thread(target=lambda: texts.append(model.transcribe(SPEECH).text)) for _ in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert texts == ["Hello."] * 9
    assert engine.most_busy == 3
    assert sum(not state.closed for state in engine.opened[0].states) == 1


def test_a_callback_may_start_another_job_on_the_same_model(install: Install) -> None:
    engine = install(FakeEngine())
    model = Model("fake", max_jobs=1)
    inner: list[str] = []

    def again(segment: Segment) -> None:
        if not inner:
            inner.append("started")
            inner[0] = model.transcribe(SPEECH).text

    assert model.transcribe(SPEECH, on_segment=again).text == "Hello."
    assert inner == ["Hello."] and engine.most_busy == 2


def test_a_closed_model_refuses_every_use_and_closes_twice(install: Install) -> None:
    engine = install(FakeEngine())
    with Model("fake") as model:
        model.transcribe(SPEECH)
    model.close()
    assert model.closed and engine.opened[0].closed and all(state.closed for state in engine.opened[0].states)
    for use in (
        lambda: model.transcribe(SPEECH), lambda: model.detect_language(SPEECH), lambda: model.info,
        lambda: model.devices, lambda: model.__enter__(),
    ):  # fmt: skip
        with pytest.raises(StateError, match="closed"):
            use()
    assert "closed" in repr(model)


def test_closing_lets_a_running_job_end_and_sends_a_waiting_one_away(install: Install) -> None:
    running, go_on = threading.Event(), threading.Event()

    def hold(state: FakeState) -> None:
        running.set()
        assert go_on.wait(30)

    engine = install(FakeEngine(during=hold))
    model = Model("fake", max_jobs=1)
    outcome: dict[str, object] = {}

    def job(name: str) -> None:
        try:
            outcome[name] = model.transcribe(SPEECH).text
        except StateError as error:
            outcome[name] = error

    first, second = (threading.Thread(target=job, args=(name,)) for name in ("first", "second"))
    first.start()
    assert running.wait(30)
    second.start()
    model.close()
    second.join(30)
    go_on.set()
    first.join(30)
    assert outcome["first"] == "Hello." and isinstance(outcome["second"], StateError)
    assert [state.closed for state in engine.opened[0].states] == [True]


def test_info_is_typed_and_frozen(install: Install) -> None:
    install(FakeEngine())
    info = Model(Path("some/ggml-base.bin")).info
    assert info.name == "some/ggml-base.bin" and info.type == "base" and info.n_audio_state == 512
    assert len(info.languages) == 99 and info.languages[0] == "en"
    with pytest.raises(FrozenInstanceError):
        info.type = "tiny"  # type: ignore[misc]


def test_the_language_of_speech_is_detected_with_all_probabilities(install: Install) -> None:
    install(FakeEngine())
    found = Model("fake").detect_language(SPEECH)
    assert found.language == "de" and found.probability == pytest.approx(0.902)
    assert next(iter(found.probabilities)) == "de" and len(found.probabilities) == 99
    assert sum(found.probabilities.values()) == pytest.approx(1.0)


def test_detecting_a_language_needs_audio_behind_the_offset(install: Install) -> None:
    install(FakeEngine())
    model = Model("fake")
    with pytest.raises(AudioError, match="no audio"):
        model.detect_language(seconds_of_audio(0))
    with pytest.raises(AudioError, match="offset is 5 s"):
        model.detect_language(SPEECH, offset=5)


def test_a_model_of_a_forked_process_is_refused_instead_of_hanging(install: Install) -> None:
    install(FakeEngine())
    model = Model("fake")
    asked, answer = multiprocessing.Pipe(duplex=False)

    def child() -> None:
        try:
            model.transcribe(SPEECH)
        except StateError as error:
            answer.send(str(error))
        else:
            answer.send("no error")

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert asked.poll(30) and "after the fork" in asked.recv()
    process.join(30)


def test_loading_reports_its_progress(install: Install) -> None:
    install(FakeEngine())
    told: list[tuple[int, int | None, str]] = []
    Model("fake", progress=lambda *what: told.append(what))
    assert told == [(50, 100, "read"), (100, 100, "read")]


def test_the_short_way_opens_and_closes_a_model(install: Install) -> None:
    engine = install(FakeEngine())
    assert whispyx.transcribe(SPEECH, "fake", "de").language == "de"
    assert engine.opened[0].closed


def test_the_short_way_leaves_a_given_model_open(install: Install) -> None:
    install(FakeEngine())
    model = Model("fake")
    assert whispyx.transcribe(SPEECH, model).text == "Hello."
    assert not model.closed
    with pytest.raises(ParamsError, match="backend"):
        whispyx.transcribe(SPEECH, model, backend="cpu")


@pytest.mark.parametrize(
    ("cores", "n_threads", "expected"),
    [(1, None, (1, 1)), (2, None, (2, 1)), (16, None, (4, 4)), (16, 3, (3, 5)), (2, 8, (8, 1))],
)
def test_jobs_at_once_use_no_more_threads_than_there_are_cores(
    install: Install, cores: int, n_threads: int | None, expected: tuple[int, int]
) -> None:
    engine = install(FakeEngine(cores=cores))
    model = Model("fake", n_threads=n_threads)
    model.transcribe(SPEECH)
    assert (engine.asked[0].fields["n_threads"], model._states._max_jobs) == expected


def test_limits_of_the_pool_are_checked(install: Install) -> None:
    install(FakeEngine())
    with pytest.raises(ParamsError, match="max_jobs"):
        Model("fake", max_jobs=0)


@pytest.mark.parametrize(
    "wrong",
    [{"max_jobs": "2"}, {"max_jobs": 1.5}, {"max_jobs": True}, {"max_idle_states": None}, {"flash_attn": "no"},
     {"progress": 5}],
)  # fmt: skip
def test_arguments_of_a_model_of_the_wrong_kind_are_refused_by_name(install: Install, wrong: dict[str, Any]) -> None:
    engine = install(FakeEngine())
    with pytest.raises(ParamsError, match=next(iter(wrong))):
        Model("fake", **wrong)
    assert not engine.opened


@pytest.mark.parametrize("name", ["on_segment", "progress", "abort"])
def test_a_callback_that_cannot_be_called_is_refused_before_the_work(install: Install, name: str) -> None:
    engine = install(FakeEngine())
    with Model("fake") as model, pytest.raises(ParamsError, match=name):
        model.transcribe(seconds_of_audio(1), **{name: 5})  # type: ignore[arg-type]
    assert not engine.asked


def test_options_of_another_type_are_refused(install: Install) -> None:
    install(FakeEngine())
    with Model("fake") as model, pytest.raises(TypeError, match="TranscribeOptions"):
        model.transcribe(seconds_of_audio(1), options={"temperature": 1.0})  # type: ignore[arg-type]


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_model_is_neither_copied_nor_pickled(install: Install, way: Callable[[Model], object]) -> None:
    install(FakeEngine())
    with Model("fake") as model, pytest.raises(TypeError, match="another process makes its own"):
        way(model)
