"""Real speech and real models for tests: fetched once by package name and checksum, kept in whispyx's cache folder.

Each function returns what it names, or raises `Unavailable` with the reason; `or_skip` turns that into a skip:

    wav = data.or_skip(data.jfk_wav)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar, cast

import pytest

from whispyx.errors import WhispyxError
from whispyx.models import cache_root, resolve, sample
from whispyx.models.offline import offline
from whispyx.models.packages import fetch_files

P = ParamSpec("P")
T = TypeVar("T")

PYWHISPERCPP: Final = "pywhispercpp==1.5.1"
POCKETSPHINX: Final = "pocketsphinx==5.1.1"
SILERO: Final = "silero-vad==6.2.3"

FOR_TESTS: Final = {
    "tiny": "c486fb9f14a28b1c1dc252741a431646cc573450c900b9d9c406e10294aa01e6",
    "tiny.en": "dd6b7796204a1cdf7164666423034e6e1a7a3e9f5c22327b4b7974c4584bd82d",
    "base": "ddf6ff3e5f9e0da794fee41652559af1efaa6118f3cc699f250991c515b6af2a",
    "base.en": "1bc042ca584ff1895897e95bffb34ccf357be46c1fca97cf7fbe32f2060aa9e8",
    "small": "e3cd79f6d818b13aea6427e0c56ca97d6d82274585efb8bd25187a37b944024b",
    "small.en": "5618c8b3cf34b1fa4493789eb92c9ff68796fb789a58180a8c4b3fb5b28789e2",
    "medium": "f676437ddef445443e95fc77d88d59013e9f6dc05d25ebcbabd89abeefc5565b",
    "medium.en": "52c051196f9b2737679722239bc7f649f4a3b0a84d418be0adfd7aed72480827",
    "large": "bf987facca89f2d75a843d5467d91668fba5c23debf66a0644df53f0accf0cfb",
}
"""Model files without weights: settings, mel filters and a vocabulary in which bytes that are not UTF-8 are lost."""

JFK_MP3: Final = "whisper.cpp/samples/jfk.mp3"
SILERO_GGML: Final = "whisper.cpp/models/for-tests-silero-v6.2.0-ggml.bin"

LIBRIVOX: Final = {
    "0870": ("b0557cf95c974d930577e58e46b7f068c432a6e3afcc286563d88922b2a5315c",
             "6d3883a910d6646b74e73480922e2f0bcd294f617bd19f2c885a736088a9532c"),
    "0880": ("fbec491ef00ee734a67f0ee318e98c51c157b479e1629ff4f4426861ecac0414",
             "ecd310a6bae6db4c4ad142e46257681d412fbd62634d66664084fe932ac692cb"),
    "0890": ("5793ffbdee55fb8bfd284943a6866864c832d9d4accf2661cabd39915c84ee10",
             "eca493f8d07b95a03c9ac99f614c8346111e72f624b665650d6a0d122dac7b24"),
    "0920": ("40882414ef4cc51f3ff7a63bad0c8c87e7f595ffeb8209fbf756c8ebc5c28a59",
             "e81bd5f50b920e3f81831e49b1566c2361db67d393ecd9d8f313b3b6b81ec866"),
    "0930": ("954adbf0b56ac8a148cbe77b39ca18d76b5f2a1e1f405565bd786ce3e68a68b7",
             "06d7a9eaaa5801ce8589d2218ea2fe8ea2e4b0c8783470bdfa68c49b043f7479"),
}  # fmt: skip
"""By clip number: checksum of the sound and of its word times."""
LIBRIVOX_STEM: Final = "sense_and_sensibility_01_austen_64kb-"
LIBRIVOX_TEXT: Final = ("transcription", "4cc29e04a6dcd29242893b3ee20470e50b6ace45f4387bb619e5218145c66f99")

SILERO_CLIPS: Final = {
    "test.wav": "89f17d9c94c4b31eb320f424628bcbc920abaddbee6e2760fd868bfb1d9a2e47",
    "test.mp3": "65a63b8ab116e80078cfc700ebec6d496b769c33bde72018ea41d535d4cfea0e",
    "test.opus": "8c009ea434e0323f453dc311f03d980929406af6c44c34897503f0b01e84265e",
}


class Unavailable(Exception):
    """The data is not in the cache and cannot be fetched here."""


class Clip(NamedTuple):
    """A recording, what is said in it, and the file with the times of its words."""

    wav: Path
    text: str
    words: Path


def or_skip(get: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
    """Return `get(…)`, or skip the test and say why."""
    try:
        return get(*args, **keywords)
    except Unavailable as error:
        pytest.skip(str(error))


def _once(get: Callable[P, T]) -> Callable[P, T]:
    """Remember what `get` returned, and also that it failed, so that one dead network is waited for once."""
    outcomes: dict[object, tuple[T, None] | tuple[None, Unavailable]] = {}

    @wraps(get)
    def remembered(*args: P.args, **keywords: P.kwargs) -> T:
        key = (args, tuple(keywords.items()))
        if key not in outcomes:
            try:
                outcomes[key] = get(*args, **keywords), None
            except Unavailable as error:
                outcomes[key] = None, error
        value, failure = outcomes[key]
        if failure is not None:
            raise failure
        return cast(T, value)

    return remembered


@_once
def _files(requirement: str, files: tuple[tuple[str, str], ...]) -> dict[str, Path]:
    folder = cache_root() / "test-data" / requirement
    wanted = dict(files)
    kept = {member: folder / member.rpartition("/")[2] for member in wanted}
    if offline() and not all(path.is_file() for path in kept.values()):
        raise Unavailable(f"{requirement} is not in {folder.parent}, and WHISPYX_OFFLINE forbids fetching it")
    try:
        return fetch_files(requirement, wanted, folder)
    except WhispyxError as error:
        raise Unavailable(str(error)) from error


def _pywhispercpp() -> dict[str, Path]:
    models = {f"whisper.cpp/models/for-tests-ggml-{name}.bin": sha256 for name, sha256 in FOR_TESTS.items()}
    others = {
        JFK_MP3: "20d3323a2bcce6f25498b8911a397503a0a99fa92b6ba58d62788cb42b6e5459",
        SILERO_GGML: "2aa269b785eeb53a82983a20501ddf7c1d9c48e33ab63a41391ac6c9f7fb6987",
    }
    return _files(PYWHISPERCPP, tuple((models | others).items()))


@_once
def jfk_wav() -> Path:
    """11 s of speech, 16 kHz, mono; its text is `whispyx.models.SAMPLES["jfk"].text`."""
    try:
        return sample("jfk")
    except WhispyxError as error:
        raise Unavailable(str(error)) from error


def jfk_mp3() -> Path:
    """The same speech as MP3."""
    return _pywhispercpp()[JFK_MP3]


def for_tests_model(name: str) -> Path:
    """A model file without weights, of the size `name`."""
    return _pywhispercpp()[f"whisper.cpp/models/for-tests-ggml-{name}.bin"]


def silero_ggml() -> Path:
    """The voice activity model of Silero, version 6.2, in ggml's layout."""
    return _pywhispercpp()[SILERO_GGML]


def librivox_clips() -> list[Clip]:
    """Five clips of 3 to 7 s from an audio book, 16 kHz, mono, with their words in lower case."""
    folder = "test/data/librivox/"
    members = {folder + LIBRIVOX_TEXT[0]: LIBRIVOX_TEXT[1]}
    for number, (wav_sha256, json_sha256) in LIBRIVOX.items():
        members[f"{folder}{LIBRIVOX_STEM}{number}.wav"] = wav_sha256
        members[f"{folder}{LIBRIVOX_STEM}{number}.json"] = json_sha256
    files = _files(POCKETSPHINX, tuple(members.items()))
    lines = files[folder + LIBRIVOX_TEXT[0]].read_text("utf-8")
    found = re.findall(r"^<s> (.*) </s> \(.*-(\d+)\)$", lines, re.MULTILINE)
    texts = {number: text for text, number in found}
    return [
        Clip(
            files[f"{folder}{LIBRIVOX_STEM}{number}.wav"],
            texts[number],
            files[f"{folder}{LIBRIVOX_STEM}{number}.json"],
        )
        for number in LIBRIVOX
    ]


def silero_clip(kind: str) -> Path:
    """One of three different recordings: "wav" (60 s of a lecture, 16 kHz, mono), "mp3" (2.5 s at 44.1 kHz, stereo,
    with a large picture in its tag), "opus" (8 s, mono)."""
    members = {f"tests/data/{name}": sha256 for name, sha256 in SILERO_CLIPS.items()}
    return _files(SILERO, tuple(members.items()))[f"tests/data/test.{kind}"]


def lecture_wav() -> Path:
    """60 s of a lecture, 16 kHz, mono."""
    return silero_clip("wav")


@_once
def model_file(name: str) -> Path:
    """A whole model, "tiny.en" or "base", in f16."""
    try:
        return resolve(name)
    except WhispyxError as error:
        raise Unavailable(str(error)) from error
