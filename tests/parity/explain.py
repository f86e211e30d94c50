"""What whisper.cpp's answer would be without its known defects.

Each repair follows from the defect's description alone and never looks at our answer. Where a repair computes something
anew, it first computes what whisper.cpp gave, defect included: only if that agrees is the defect the reason.
"""

from __future__ import annotations

from dataclasses import replace

from tests.oracle import mel
from tests.parity import sounds
from tests.parity.compare import WITHIN, Answer, Facts, tokens_of
from tests.parity.engines import Engines
from tests.parity.grid import Case
from tests.parity.silence import cut
from tests.parity.times import token_times, wrap

WINDOW = 3000


def repaired(case: Case, answer: Answer, engines: Engines) -> tuple[Answer, list[str]]:
    """Return the answer without known defects, and the numbers of those that had an effect.

    Among the numbers, "?" says that the defects as described do not lead to what whisper.cpp gave.
    """
    if case.params.get("vad"):
        return _spoken(case, answer, engines)
    facts = Facts.of(case)
    found: list[str] = []
    if case.params.get("duration_ms", 0) > 10 * (facts.n_frames - facts.seek_start) > 0:
        # B15: what lies beyond the end is made up.
        answer, found = engines.theirs(case, duration_ms=0), ["B15"]
    if case.params.get("max_len"):
        # Pieces are cut by token times, so both are made anew from the segments as they were.
        answer = engines.theirs(case, max_len=0)
    if case.params.get("suppress_regex"):
        # B24: patterns are also matched with texts such as "[_TT_50]" that stand for timestamps.
        on_text = engines.theirs(case, suppress_regex=rf"(?!\[_)(?:{case.params['suppress_regex']})")
        if tokens_of(on_text) != tokens_of(answer):
            answer, found = on_text, ["B24"]
    given = answer["segments"]
    answer = {**answer, "segments": [dict(segment) for segment in given]}
    for number, repair in (("B2", _starts), ("B3", _ends), ("P1", _shifts)):
        before = [dict(segment) for segment in answer["segments"]]
        repair(case, facts, answer)
        if not _same_times(before, answer["segments"]):
            found.append(number)
    if case.params.get("token_timestamps"):
        found += _token_times(case, facts, given, answer)
    if case.params.get("max_len"):
        rules, params = facts.rules(), case.params
        answer["segments"] = [
            piece
            for segment in answer["segments"]
            for piece in wrap(segment, rules, params["max_len"], params.get("split_on_word", False))
        ]
    return answer, found


def _spoken(case: Case, answer: Answer, engines: Engines) -> tuple[Answer, list[str]]:
    """V7: times of tokens left on the time line without silence.

    Cutting silence out by hand and recognising the rest must give what whisper.cpp gives with `vad`. Then the defects
    of that are repaired, and its times mapped back.
    """
    regions = [(round(t0), round(t1)) for t0, t1 in engines.speech(case)["regions"]]
    if not regions:
        return answer, ["?"] if answer["segments"] else []
    overlap = case.params.get("vad_params", {}).get("samples_overlap", 0.1)
    sound, way = cut(sounds.array(case.sound), regions, overlap)
    params = {name: value for name, value in case.params.items() if not name.startswith("vad")}
    spoken = replace(case, sound=sounds.derive(sound), params=params)
    again = engines.theirs(spoken)
    times = [way.segment(segment["t0"], segment["t1"]) for segment in again["segments"]]
    defects = [] if times == [(s["t0"], s["t1"]) for s in answer["segments"]] else ["?"]
    fixed, others = repaired(spoken, again, engines)
    back = way.answer(fixed)
    if any(t >= 0 for segment in back["segments"] for t in segment["token_t0"]):
        defects.append("V7")
    return back, defects + others


def _chunks(case: Case, facts: Facts) -> list[tuple[int, int, int, int]]:
    """First and last sample, shift and end in frames, of what each processor hears."""
    n = len(sounds.array(case.sound))
    if case.n_processors == 1:
        return [(0, n, 0, facts.seek_end)]
    offset = 16 * case.params.get("offset_ms", 0)
    size = (n - offset) // case.n_processors
    out = []
    for i in range(case.n_processors):
        last = n if i == case.n_processors - 1 else offset + (i + 1) * size
        first = offset + i * size if i else 0
        shift = 100 * i * size // 16000 + offset // 160 if i else 0
        out.append((first, last, shift, shift + mel.n_frames_of_sound(last - first)))
    return out


def _chunk_of(case: Case, facts: Facts, segment: Answer) -> tuple[int, int, int, int]:
    return [chunk for chunk in _chunks(case, facts) if chunk[2] <= max(0, segment["t0"])][-1]


def _starts(case: Case, facts: Facts, answer: Answer) -> None:
    """B2: without timestamps, the start of a window is missed by a token id that was never set."""
    if not case.params.get("no_timestamps"):
        return
    for segment in answer["segments"]:
        window = segment["t1"] - WINDOW
        if segment["t0"] == window + 2 * (segment["tid"][0] - facts.special.beg):
            segment["t0"] = window
        segment["tid"] = [max(tid, facts.special.beg) for tid in segment["tid"]]


def _ends(case: Case, facts: Facts, answer: Answer) -> None:
    """B3: a segment that no timestamp closes ends with its window, even where the sound ends earlier, and timestamps
    may lie beyond the sound.

    Where processors share the sound, that also puts off the start of the next one's first segment.
    """
    shift = before = 0
    for segment in answer["segments"]:
        chunk = _chunk_of(case, facts, segment)
        if chunk[2] != shift:
            shift = chunk[2]
            segment["t0"] = max(before, shift + _own_start(facts, segment))
        audio_end = shift + max(mel.n_frames_of_sound(chunk[1] - chunk[0]), (chunk[1] - chunk[0] + 159) // 160)
        closed = segment["tokens"][-1] > facts.special.beg and not case.params.get("single_segment")
        segment["t0"] = min(segment["t0"], audio_end)
        segment["t1"] = before = min(segment["t1"], audio_end if closed else max(chunk[3], segment["t0"]))


def _own_start(facts: Facts, segment: Answer) -> int:
    """Start of the first segment of a sound."""
    return max(0, 2 * int(segment["tid"][0] - facts.special.beg))


def _shifts(case: Case, facts: Facts, answer: Answer) -> None:
    """P1: times of tokens count from the start of what their processor heard."""
    if case.n_processors == 1:
        return
    for segment in answer["segments"]:
        shift = _chunk_of(case, facts, segment)[2]
        for name in ("token_t0", "token_t1", "t_dtw"):
            segment[name] = [t + shift if t >= 0 else t for t in segment[name]]


def _same_times(a: list[Answer], b: list[Answer]) -> bool:
    """Whether two lists of segments have the same times, up to one unit."""
    return all(
        abs(x - y) <= WITHIN
        for one, other in zip(a, b, strict=True)
        for name in ("t0", "t1", "token_t0", "token_t1", "t_dtw")
        for x, y in zip(_listed(one[name]), _listed(other[name]), strict=True)
    )


def _listed(value: int | list[int]) -> list[int]:
    return value if isinstance(value, list) else [value]


def _token_times(case: Case, facts: Facts, given: list[Answer], answer: Answer) -> list[str]:
    """B20, B19, I3: loudness looked up at the wrong place, texts weighed by bytes, tokens outside of their segment."""

    def computed(segments: list[Answer], shifted: bool = True, **defects: bool) -> list[Answer]:
        out = []
        for first, last, shift, _ in _chunks(case, facts):
            part = [s for s in segments if _chunk_of(case, facts, s)[2] == shift]
            moved = [{**s, "t0": s["t0"] - shift, "t1": s["t1"] - shift} for s in part]
            if shift and moved:
                moved[0]["t0"] = _own_start(facts, moved[0])
            times = token_times(moved, sounds.array(case.sound)[first:last], facts.rules(**defects))
            back = shift if shifted else 0
            for segment, (t0, t1) in zip(part, times, strict=True):
                starts, ends = [t + back for t in t0], [t + back for t in t1]
                out.append({**segment, "token_t0": starts, "token_t1": ends})
        return out

    right = computed(answer["segments"])
    answer["segments"] = right
    if _same_times(given, right):
        return []
    numbers = [] if _same_times(right, computed(right, relative=True)) else ["B20"]
    numbers += [] if _same_times(right, computed(right, by_bytes=True)) else ["B19"]
    numbers += [] if _same_times(right, computed(right, astray=True)) else ["I3"]
    if _same_times(given, computed(given, shifted=False, relative=True, by_bytes=True, astray=True)):
        return numbers
    return [*numbers, "?"]  # the rules as described do not give what whisper.cpp gave
