"""Invented text in silence is marked and not written."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tests.high.fakes import FakeSegment
from tests.oracle.tiny_model import speechlike
from whispyx import Transcript
from whispyx._assemble import SegmentBuilder, is_steady
from whispyx.writers import write

RATE = 16000
EOT = 50256
RNG = np.random.default_rng(3)
TIME = np.arange(3 * RATE) / RATE
STEADY = {
    "silence": np.zeros(3 * RATE, np.float32),
    "hiss": RNG.normal(0, 0.02, 3 * RATE).astype(np.float32),
    "hum": (0.1 * np.sin(2 * np.pi * 50 * TIME)).astype(np.float32),
}


@pytest.mark.parametrize("name", STEADY)
def test_silence_hum_and_hiss_are_steady(name: str) -> None:
    assert is_steady(STEADY[name])


def test_speech_is_not_steady_and_nothing_is_known_of_no_sound() -> None:
    assert not is_steady(speechlike(3, 1))
    assert not is_steady(speechlike(3, 1) + STEADY["hiss"])
    assert not is_steady(np.zeros(0, np.float32))


def built(samples: np.ndarray, no_speech_prob: float, thold: float = 0.6) -> Transcript:
    builder = SegmentBuilder(len(samples) / RATE, EOT, samples, thold)
    builder.add(FakeSegment(t0=0, t1=300, text=b" you", no_speech_prob=no_speech_prob))
    return Transcript(tuple(builder.segments), duration=len(samples) / RATE)


def text(transcript: Transcript, name: str) -> str:
    stream = io.StringIO()
    write(transcript, stream, name)
    return stream.getvalue()


def test_text_in_silence_is_marked_kept_in_json_and_not_written_elsewhere() -> None:
    found = built(STEADY["silence"], 0.9)
    assert found[0].no_speech and found[0].text == " you" and found.text == ""
    assert text(found, "txt") == text(found, "srt") == ""
    assert "you" not in text(found, "vtt")
    assert '"no_speech": true' in text(found, "json")


def test_text_is_kept_where_the_model_or_the_sound_speaks_for_it() -> None:
    for found in (built(STEADY["silence"], 0.5), built(speechlike(3, 1), 0.9), built(STEADY["hum"], 0.9, thold=1.0)):
        assert not found[0].no_speech and found.text == "you" and text(found, "txt") == "you\n"
