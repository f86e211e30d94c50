"""Files are read back with the json module, strict readers of our own, and readers of others where there are some."""

from __future__ import annotations

import html
import io
import itertools
import json
import os
import re
import stat
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whispyx import ParamsError, Segment, Token, Transcript, writers
from whispyx.writers import Writer
from whispyx.writers.cues import clean_lines, clock, cues

from .readers import read_srt, read_vtt

ODD_TEXTS = (
    ' He said "yes", then left.',
    " commas, and; semicolons\ttabs",
    " <b>bold</b> & <i>more</i> &amp; done",
    " --> an arrow --> in the text",
    " emoji \U0001f642 and \u05d0\u05d1\u05d2 right to left",
    " two\nlines",
    " 日本語のテキスト。",
    " Back\\slash and 'quotes'",
)


def transcript_of(*texts: str, step: float = 1.5) -> Transcript:
    parts = tuple(Segment(i, i * step, (i + 1) * step, text) for i, text in enumerate(texts))
    return Transcript(segments=parts, language="en", duration=len(texts) * step, model="x")


def text_of(transcript: Transcript, format: str) -> str:
    stream = io.StringIO(newline="")
    writers.write(transcript, stream, format)
    return stream.getvalue()


def test_txt_has_a_line_per_segment() -> None:
    assert text_of(transcript_of(" One.", " Two\nlines.", "  "), "txt") == "One.\nTwo lines.\n"


def test_srt_is_read_back_with_the_same_texts_and_times() -> None:
    transcript = transcript_of(*ODD_TEXTS)
    assert read_srt(text_of(transcript, "srt")) == [
        (i * 1500, i * 1500 + 1500, t.strip()) for i, t in enumerate(ODD_TEXTS)
    ]


def test_vtt_is_read_back_with_the_same_texts_and_times() -> None:
    transcript = transcript_of(*ODD_TEXTS)
    assert read_vtt(text_of(transcript, "vtt")) == [
        (i * 1500, i * 1500 + 1500, t.strip()) for i, t in enumerate(ODD_TEXTS)
    ]


def test_the_srt_package_reads_the_same() -> None:
    srt = pytest.importorskip("srt", reason="the package srt, another reader of SubRip, is not installed")
    found = list(srt.parse(text_of(transcript_of(*ODD_TEXTS), "srt"), ignore_errors=False))
    assert [cue.content for cue in found] == [text.strip() for text in ODD_TEXTS]
    assert [cue.start / timedelta(milliseconds=1) for cue in found] == [i * 1500 for i in range(len(ODD_TEXTS))]
    odd = transcript_of(" x\n\n2\n00:00:05,000 --> 00:00:06,000\ninjected", " real")
    assert len(list(srt.parse(text_of(odd, "srt"), ignore_errors=False))) == 2


def test_the_webvtt_package_reads_the_same() -> None:
    webvtt = pytest.importorskip("webvtt", reason="the package webvtt-py, another reader of WebVTT, is not installed")
    found = list(webvtt.from_string(text_of(transcript_of(*ODD_TEXTS), "vtt")))
    assert [html.unescape(cue.text) for cue in found] == [text.strip() for text in ODD_TEXTS]
    assert list(webvtt.from_string(text_of(Transcript(), "vtt"))) == []


def test_json_is_read_back_exactly() -> None:
    texts = (*ODD_TEXTS, " NUL \x00 and bell \x07", " \ud800 half a pair")
    segments = tuple(
        Segment(i, 0.0, 1.0, text, (Token(7, "t", b"t", 0.5, -0.69, 0.1, 0.2),), -0.25, 0.01)
        for i, text in enumerate(texts)
    )
    transcript = Transcript(segments=segments, language="en", model=os.fsdecode(b"\xff.bin"))
    written = text_of(transcript, "json")
    written.encode()  # stands in UTF-8
    found = json.loads(written)
    assert [segment["text"] for segment in found["segments"]] == list(texts)
    assert found["model"] == os.fsdecode(b"\xff.bin") and found["schema"] == 1
    assert found["segments"][0]["tokens"][0]["probability"] == 0.5
    assert {"text", "language", "duration", "segments", "options", "timings", "devices"} <= set(found)


def test_json_keeps_letters_readable() -> None:
    assert "日本語" in text_of(transcript_of(" 日本語"), "json")


@pytest.mark.parametrize("format", ["txt", "srt", "vtt", "json"])
def test_a_transcript_without_speech_is_a_valid_file(format: str) -> None:
    text = text_of(Transcript(duration=3.0), format)
    if format == "json":
        assert json.loads(text)["segments"] == []
    elif format == "vtt":
        assert read_vtt(text) == [] and text == "WEBVTT\n"
    else:
        assert text == ""


def test_hours_go_beyond_two_digits() -> None:
    transcript = Transcript(segments=(Segment(0, 360_000.5, 363_661.25, " late"),))
    assert read_srt(text_of(transcript, "srt")) == [(360_000_500, 363_661_250, "late")]
    assert "100:00:00.500 --> 101:01:01.250" in text_of(transcript, "vtt")
    assert read_vtt(text_of(transcript, "vtt")) == [(360_000_500, 363_661_250, "late")]


def test_blank_lines_inside_a_text_do_not_end_its_cue() -> None:
    transcript = transcript_of(" a\n\n\nb\r\n\r\nc", " next")
    assert [cue[2] for cue in read_srt(text_of(transcript, "srt"))] == ["a\nb\nc", "next"]
    assert [cue[2] for cue in read_vtt(text_of(transcript, "vtt"))] == ["a\nb\nc", "next"]


def test_a_text_that_looks_like_a_cue_makes_no_cue() -> None:
    transcript = transcript_of(" x\n\n2\n00:00:05,000 --> 00:00:06,000\ninjected", " real")
    assert [cue[2] for cue in read_srt(text_of(transcript, "srt"))][1:] == ["real"]
    assert len(read_vtt(text_of(transcript, "vtt"))) == 2
    assert text_of(transcript, "srt").count("-->") == 2
    assert text_of(transcript, "vtt").count("-->") == 2


def test_nul_and_control_characters_are_left_out_of_subtitles() -> None:
    transcript = transcript_of(" a\x00b\x07c\x1bd\x7f\ufeffe")
    assert read_srt(text_of(transcript, "srt"))[0][2] == "abcde"
    assert read_vtt(text_of(transcript, "vtt"))[0][2] == "abcde"
    assert text_of(transcript, "txt") == "abcde\n"


def test_segments_without_text_make_no_cue() -> None:
    assert len(read_srt(text_of(transcript_of(" a", " \n ", "", "\x00", " b"), "srt"))) == 2


def test_a_cue_that_runs_into_the_next_is_cut_there() -> None:
    parts = (Segment(0, 0.0, 5.0, " a"), Segment(1, 3.0, 4.0, " b"))
    assert [(cue.start_ms, cue.end_ms) for cue in cues(parts)] == [(0, 3000), (3000, 4000)]


def test_cues_without_length_last_a_millisecond_and_do_not_overlap() -> None:
    parts = tuple(Segment(i, 1.0, 1.0, f" {i}") for i in range(3))
    assert [(cue.start_ms, cue.end_ms) for cue in cues(parts)] == [(1000, 1001), (1001, 1002), (1002, 1003)]


@given(st.lists(st.tuples(st.floats(0, 500_000), st.floats(0, 40), st.text(max_size=30)), max_size=12))
def test_cues_never_overlap_and_always_last(rows: list[tuple[float, float, str]]) -> None:
    parts = [Segment(i, start, start + length, text) for i, (start, length, text) in enumerate(rows)]
    made = cues(parts)
    assert all(cue.start_ms < cue.end_ms for cue in made)
    assert all(before.end_ms <= after.start_ms for before, after in itertools.pairwise(made))
    assert [cue.lines for cue in made] == [lines for part in parts if (lines := clean_lines(part.text))]


@given(st.lists(st.text(max_size=60), max_size=6))
def test_any_text_gives_files_that_others_can_read(texts: list[str]) -> None:
    transcript = transcript_of(*texts)
    expected = ["\n".join(lines) for text in texts if (lines := clean_lines(text))]
    assert [cue[2] for cue in read_vtt(text_of(transcript, "vtt"))] == expected
    found = [cue[2] for cue in read_srt(text_of(transcript, "srt"))]
    plain = [text for text in expected if "-->" not in text and not re.search(r"^\d+\W", text, re.MULTILINE)]
    assert len(found) == len(expected) and set(plain) <= set(found)
    assert [s["text"] for s in json.loads(text_of(transcript, "json"))["segments"]] == texts


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [(0, "00:00:00,000"), (3_599_999, "00:59:59,999"), (3_600_000, "01:00:00,000"), (359_999_999, "99:59:59,999")],
)
def test_clock(milliseconds: int, expected: str) -> None:
    assert clock(milliseconds, ",") == expected


# ---- files


@pytest.mark.parametrize("format", writers.formats())
def test_files_are_utf8_with_plain_line_ends_in_any_locale(tmp_path: Path, format: str) -> None:
    script = (
        "import sys; from whispyx import Segment, Transcript, writers;"
        f"writers.save(Transcript(segments=(Segment(0, 0.0, 1.0, {' Grüße 日本'!a}),)), sys.argv[1], {format!r})"
    )
    path = tmp_path / f"out.{format}"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "cp1252"}
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, env=environment, timeout=60)
    data = path.read_bytes()
    assert "Grüße 日本" in data.decode("utf-8") and b"\r" not in data and data.endswith(b"\n")


def test_the_format_is_taken_from_the_ending(tmp_path: Path) -> None:
    writers.save(transcript_of(" hi"), tmp_path / "a.VTT")
    assert (tmp_path / "a.VTT").read_text().startswith("WEBVTT")
    with pytest.raises(ParamsError, match="unknown output format 'docx': choose from txt, srt, vtt, json"):
        writers.save(transcript_of(" hi"), tmp_path / "a.docx")
    assert [path.name for path in tmp_path.iterdir()] == ["a.VTT"]


def _failing(transcript: Transcript, stream: TextIO) -> None:
    stream.write("half of it")
    raise OSError("no space left")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(writers.registry._WRITERS, "bad", Writer("bad", "fails", _failing))
    target = tmp_path / "out.bad"
    with pytest.raises(OSError, match="no space"):
        writers.save(transcript_of(" hi"), target)
    assert list(tmp_path.iterdir()) == []
    target.write_text("old")
    with pytest.raises(OSError, match="no space"):
        writers.save(transcript_of(" hi"), target)
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


def test_a_file_is_never_seen_half_written(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    short, long = transcript_of(" a"), transcript_of(*[" words" * 50] * 200)
    writers.save(short, target)
    sizes = {target.stat().st_size}
    whole = {len(text_of(short, "txt")), len(text_of(long, "txt"))}
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            sizes.add(len(target.read_bytes()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    for i in range(40):
        writers.save(long if i % 2 else short, target)
    done.set()
    watcher.join()
    assert sizes <= whole


def test_an_existing_file_keeps_its_mode_and_a_new_one_follows_the_umask(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    before = os.umask(0o027)
    try:
        writers.save(transcript_of(" hi"), target)
    finally:
        os.umask(before)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    target.chmod(0o604)
    writers.save(transcript_of(" hi"), target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o604


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.txt"
    link.symlink_to(tmp_path / "real" / "out.txt")
    writers.save(transcript_of(" hi"), link)
    assert link.is_symlink() and (tmp_path / "real" / "out.txt").read_text() == "hi\n"


def test_a_pipe_is_written_to_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    writers.save(transcript_of(" hi"), pipe, "txt")
    reader.join(30)
    assert read == ["hi\n"] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_name_as_long_as_the_file_system_allows_can_be_written(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 251 + ".txt")
    writers.save(transcript_of(" hi"), target)
    assert target.read_text() == "hi\n"


def test_a_format_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers.registry, "_WRITERS", dict(writers.registry._WRITERS))

    def shout(transcript: Transcript, stream: Any) -> None:
        stream.write(transcript.text.upper())

    writers.register(Writer("loud", "capitals", shout))
    assert "loud" in writers.formats()
    assert text_of(transcript_of(" hi"), "loud") == "HI"
    with pytest.raises(ParamsError, match="plain word"):
        writers.register(Writer("a/b", "", shout))


def test_links_in_a_circle_are_an_os_error(tmp_path: Path) -> None:
    loop = tmp_path / "loop.txt"
    loop.symlink_to(loop)
    with pytest.raises(OSError):
        writers.save(Transcript(), loop)
    assert [path.name for path in tmp_path.iterdir()] == ["loop.txt"]
