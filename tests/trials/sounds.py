"""The sounds of the trials: synthetic speech, noise and silence, made once with espeak-ng and sox, kept in the cache.

    wav = data.or_skip(sounds.wav, "hello")

The same versions of the two programs give the same samples: nothing is dithered, and the noise has a fixed seed.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final

from tests.data import Unavailable
from whispyx.models import cache_root

RATE: Final = 16000
TOOLS: Final = ("espeak-ng", "sox")
FORM: Final = ("-r", str(RATE), "-c", "1", "-b", "16")

SILENCES: Final = {"sil1_2": 1.2, "sil10": 10.0, "sil30": 30.0, "sil65": 65.0}
NOISES: Final = {
    "white10": ("synth", "10", "whitenoise", "vol", "0.02"),
    "pink7": ("synth", "7", "pinknoise", "vol", "0.05"),
    "hum20": ("synth", "20", "sine", "50", "vol", "0.1"),
}
KEYWORDS: Final = (
    "apple", "bridge", "candle", "desert", "engine", "forest", "garden", "hammer", "island", "jacket", "kitchen",
    "ladder", "market", "needle", "orange",
)  # fmt: skip
NUMBERS: Final = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen",
)  # fmt: skip
PASSAGE: Final = " ".join(
    f"Sentence number {number} is about the {thing}, and it is easy to hear in a quiet room."
    for number, thing in zip(NUMBERS, KEYWORDS, strict=True)
)
# name: voice, words per minute, text
SPEECH: Final = {
    "hello": ("en-us", 150, "Good morning. This is a short test of the speech recogniser."),
    "_down": ("en-us", 175, "Down."),
    "_stop": ("en-us", 150, "Stop."),
    "_six": ("en-us", 110, "six, six, six."),
    "love1": ("en-us", 150, "I love you."),
    "a": ("en-us", 150, "The quick brown fox jumps over the lazy dog near the river bank."),
    "b": ("en-us", 150, "Seven scientists studied the weather in the northern mountains."),
    "numbers": ("en-us", 150, "We go from 12 to 3 offices and pay 4500 dollars in 2026."),
    "german": ("de", 150, "Guten Morgen, heute ist das Wetter sehr schön und wir gehen in den Park."),
    "umlauts": (
        "de",
        140,
        "Die Tür ist grün, das Wetter ist schön, und wir hören fünf Vögel. Über Köln fährt ein Zug nach München.",
    ),
    "latvian": ("lv", 140, "Labdien, mani sauc Jānis un es dzīvoju Rīgā pie jūras."),
    "russian": ("ru", 140, "Добрый день, сегодня очень хорошая погода, и мы идём в парк."),
    "japanese": ("ja", 140, "おはようございます。きょうはいいてんきですね。"),
    "chinese": ("cmn", 140, "早上好，今天天气很好，我们去公园。"),
    "passage": ("en-us", 150, PASSAGE + " "),
    "_line1": ("en-us", 160, "I have sixty thousand dollars."),
    "_line2": ("en-us", 160, "Next time, let us try again."),
    "_line3": ("en-us", 160, "Now it is fast."),
}
# name: the sounds it is joined from
JOINED: Final = {
    "love40": ("love1",) * 40,
    "pause5": ("a", "_sil5", "b"),
    "noise_then_speech": ("pink7", "hello"),
    "speech_then_sil30": ("hello", "sil30"),
    "sil40_german": ("_sil40", "german"),
    "de_then_en": ("german",) * 8 + ("a", "b") * 4,
    "long": ("passage",) * 5,
}
LINE_STARTS: Final = (10.3, 14.2, 21.1)


def _run(*command: str, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, env=plain_environment(), capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)[:200]} ended with {done.returncode}: {done.stderr}")


def _sox(*arguments: str, cwd: Path) -> None:
    _run("sox", "-R", "-D", *arguments, cwd=cwd)


def _make(folder: Path) -> None:
    """Make every sound, as NAME.wav; names that begin with "_" are parts."""
    for name, seconds in {**SILENCES, "_sil5": 5.0, "_sil40": 40.0}.items():
        _sox("-n", *FORM, f"{name}.wav", "trim", "0", str(seconds), cwd=folder)
    for name, effects in NOISES.items():
        _sox("-n", *FORM, f"{name}.wav", *effects, cwd=folder)
    for name, (voice, speed, text) in SPEECH.items():
        _run("espeak-ng", "-v", voice, "-s", str(speed), "-w", "_raw.wav", text, cwd=folder)
        _sox("-G", "_raw.wav", *FORM, f"{name}.wav", cwd=folder)
    _sox("_down.wav", "down.wav", "trim", "0", "0.6", cwd=folder)
    _sox("_stop.wav", "stop.wav", "trim", "0", "0.6", cwd=folder)
    _sox("_six.wav", "six.wav", "pad", "0.2", "0.8", cwd=folder)
    for name, parts in JOINED.items():
        _sox(*(f"{part}.wav" for part in parts), f"{name}.wav", cwd=folder)
    _sox("-n", *FORM, "_noise.wav", "synth", str(seconds_of(folder / "passage.wav")), "pinknoise", "vol", "0.25",
         cwd=folder)  # fmt: skip
    _sox("-m", "-v", "0.5", "passage.wav", "-v", "1", "_noise.wav", "noisy.wav", cwd=folder)
    for number, start in enumerate(LINE_STARTS, 1):
        _sox(f"_line{number}.wav", f"_padded{number}.wav", "pad", str(start), "0", cwd=folder)
    padded = [part for number in (1, 2, 3) for part in ("-v", "1", f"_padded{number}.wav")]
    _sox("-m", *padded, "lines24.wav", "pad", "0", "1", cwd=folder)
    whole = (folder / "hello.wav").read_bytes()
    (folder / "empty.wav").write_bytes(b"")
    (folder / "header_only.wav").write_bytes(whole[:44])
    (folder / "cut.wav").write_bytes(whole[: len(whole) // 2])


def seconds_of(path: Path) -> float:
    """Length of a wav file that sox wrote: 16 bits, mono, a header of 44 bytes."""
    return (path.stat().st_size - 44) / 2 / RATE


def plain_environment() -> dict[str, str]:
    """The environment without a sanitizer's library, under which espeak-ng hangs."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


@lru_cache(maxsize=1)
def folder() -> Path:
    """Return the folder of the sounds, made now unless it is there; `Unavailable` where a program is missing."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"the sounds of the trials are made with {' and '.join(missing)}, not installed here")
    versions = [
        subprocess.run([tool, "--version"], env=plain_environment(), capture_output=True, timeout=60).stdout
        for tool in TOOLS
    ]
    recipe = inspect.getsource(sys.modules[__name__]).encode()
    found = cache_root() / "test-data" / f"trials-{hashlib.sha256(b''.join([recipe, *versions])).hexdigest()[:16]}"
    if not found.is_dir():
        found.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".trials-", dir=found.parent))
        try:
            _make(temporary)
            for part in temporary.glob("_*.wav"):
                part.unlink()
            try:
                temporary.rename(found)
            except OSError:
                if not found.is_dir():  # otherwise another process was faster
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return found


def wav(name: str) -> Path:
    """Path of a sound, 16 kHz mono in 16 bits (or damaged: "empty", "header_only", "cut")."""
    path = folder() / f"{name}.wav"
    if not path.is_file():
        raise KeyError(f"no sound is called {name!r}: {', '.join(sorted(p.stem for p in folder().glob('*.wav')))}")
    return path


if __name__ == "__main__":
    print(os.fspath(folder()))
