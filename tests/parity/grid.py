"""The cases of the parity run, as data: which model hears which sound with which settings.

Both engines get the same settings. What a case leaves out has the value of `BASE`, else whisper.cpp's default. The
reference always runs without flash attention, which attends to padding there (defect B26), and with one thread unless
the case is about threads. Prompts are token ids wherever the two tokenizers might differ (defect B23).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

BASE: Final = {"n_threads": 1, "language": "en", "temperature_inc": 0.0}
MODELS: Final = ("tiny.en", "base")
CLIPS: Final = ("clip0", "clip1", "clip2", "clip3", "clip4")

# " The President spoke to the nation about freedom, duty and hope." in each model's vocabulary
TEXT: Final = {
    "tiny.en": (383, 1992, 5158, 284, 262, 3277, 546, 4925, 11, 7077, 290, 2911, 13),
    "base": (440, 3117, 7179, 281, 264, 4790, 466, 5645, 11, 9776, 293, 1454, 13),
}
# Prompts by name; "long" has 260 tokens, more than the 223 that fit.
PROMPTS: Final = {
    model: {"text": text, "long": text * 20, "odd": tuple(range(1000, 1040))} for model, text in TEXT.items()
}

# Grammars as whisper.h has them: rules of [type, value]. 0 ends a rule, 1 an alternative, 2 calls a rule, 3 is a
# character, 4 every other character, 5 the upper end of a range, 6 another character of the class.
END, ALT, RULE, CHAR, NOT, UPPER, OR = range(7)


def literal(text: str) -> list[list[int]]:
    return [[CHAR, ord(character)] for character in text]


LOWER: Final = {  # ([a-z '])+
    "rules": [
        [[CHAR, ord("a")], [UPPER, ord("z")], [OR, 32], [OR, 39], [RULE, 1], [END, 0]],
        [[CHAR, ord("a")], [UPPER, ord("z")], [OR, 32], [OR, 39], [RULE, 1], [ALT, 0], [END, 0]],
    ],
    "start": 0,
}
NO_E: Final = {  # ([^eE])*, that is, text without that letter
    "rules": [[[NOT, ord("e")], [OR, ord("E")], [RULE, 0], [ALT, 0], [END, 0]]],
    "start": 0,
}
COMMANDS: Final = {  # " ask" or " tell", then " me" or " not" or " us", and then a full stop or nothing
    "rules": [
        [[RULE, 1], [RULE, 2], [RULE, 3], [END, 0]],
        [*literal(" ask"), [ALT, 0], *literal(" tell"), [END, 0]],
        [*literal(" me"), [ALT, 0], *literal(" not"), [ALT, 0], *literal(" us"), [END, 0]],
        [[CHAR, ord(".")], [ALT, 0], [END, 0]],
    ],
    "start": 0,
}
HEADS: Final = {"tiny.en": [[1, 0], [2, 5], [3, 1], [3, 4]], "base": [[3, 1], [4, 7], [5, 2], [5, 6]]}


@dataclass(frozen=True)
class Case:
    """One combination.

    `sound` is a name that `sounds.array` knows, `aheads` the alignment heads as the workers take them, `ours` what
    only whispyx gets.
    """

    group: str
    name: str
    model: str
    sound: str
    params: dict[str, Any] = field(default_factory=dict)
    aheads: dict[str, Any] | None = None
    n_processors: int = 1
    ours: dict[str, Any] = field(default_factory=dict)
    flash_attn: bool = False  # ours only

    @property
    def title(self) -> str:
        return f"{self.model} {self.sound} {self.group} {self.name}".strip()


def beam(size: int, **more: Any) -> dict[str, Any]:
    # best_of counts the decoders of a fallback; one is whisper.cpp's choice with beams
    return {"strategy": "beam_search", "beam_size": size, "best_of": 1, **more}


# group: rows of (name, sounds, params)
Rows = dict[str, list[tuple[str, tuple[str, ...], dict[str, Any]]]]

BOTH: Final[Rows] = {
    "greedy": [
        ("", ("jfk", "lecture", *CLIPS), {}),
        ("2 threads", ("jfk",), {"n_threads": 2}),
        ("length_penalty=1", ("jfk",), {"length_penalty": 1.0}),
    ],
    "fallback": [
        ("default", ("jfk", "lecture"), {"temperature_inc": 0.2}),
        ("logprob", ("jfk", "clip1"), {"temperature_inc": 0.4, "logprob_thold": -0.05, "best_of": 3}),
        ("entropy", ("lecture20",), {"temperature_inc": 0.5, "entropy_thold": 5.0, "best_of": 2}),
    ],
    "beam": [
        ("2", ("jfk", "clip0", "lecture20"), beam(2)),
        ("5", ("jfk", "clip0", "clip4", "lecture20"), beam(5)),
        ("8", ("jfk", "clip0", "lecture20"), beam(8)),
        ("5 length_penalty=1", ("clip2",), beam(5, length_penalty=1.0)),
        ("5 at t=0.6", ("clip1",), beam(5, temperature=0.6, best_of=4)),
        ("5 with fallback", ("clip3",), beam(5, temperature_inc=0.4, logprob_thold=-0.05, best_of=2)),
    ],
    "best of": [
        ("2 at t=0.2", ("jfk", "clip3"), {"temperature": 0.2, "best_of": 2}),
        ("5 at t=0.4", ("jfk", "clip3"), {"temperature": 0.4, "best_of": 5}),
        ("5 at t=0.8", ("jfk", "clip3"), {"temperature": 0.8, "best_of": 5}),
        ("8 at t=1.0", ("jfk", "clip3"), {"temperature": 1.0, "best_of": 8}),
        ("1 at t=1.0", ("jfk",), {"temperature": 1.0, "best_of": 1}),
    ],
    "prompt": [
        ("text", ("jfk",), {"initial_prompt": " The President spoke to the nation."}),
        ("tokens", ("jfk", "clip1"), {"prompt_tokens": "text"}),
        ("260 tokens", ("jfk",), {"prompt_tokens": "long"}),
        ("carried", ("lecture",), {"prompt_tokens": "text", "carry_initial_prompt": True}),
        ("260 carried", ("jfk",), {"prompt_tokens": "long", "carry_initial_prompt": True}),
        ("no history", ("lecture",), {"n_max_text_ctx": 0}),
        ("16 of history", ("lecture",), {"n_max_text_ctx": 16, "prompt_tokens": "odd"}),
    ],
    "max_len": [
        ("1", ("jfk",), {"token_timestamps": True, "max_len": 1}),
        ("1 on words", ("jfk",), {"token_timestamps": True, "max_len": 1, "split_on_word": True}),
        ("12", ("jfk", "clip2"), {"token_timestamps": True, "max_len": 12}),
        ("12 on words", ("jfk", "clip2"), {"token_timestamps": True, "max_len": 12, "split_on_word": True}),
        ("30 on words", ("lecture20",), {"token_timestamps": True, "max_len": 30, "split_on_word": True}),
    ],
    "token times": [
        ("", ("jfk", "clip1", "lecture20"), {"token_timestamps": True}),
        ("thresholds", ("jfk",), {"token_timestamps": True, "thold_pt": 0.3, "thold_ptsum": 0.3}),
    ],
    "max_tokens": [
        ("1", ("jfk",), {"max_tokens": 1}),
        ("8", ("jfk", "clip4"), {"max_tokens": 8}),
        ("16, single_segment", ("jfk",), {"max_tokens": 16, "single_segment": True}),
        ("16, no_timestamps", ("jfk",), {"max_tokens": 16, "no_timestamps": True}),
    ],
    "segments": [
        ("no_timestamps", ("jfk", "lecture", "clip2"), {"no_timestamps": True}),
        ("single_segment", ("jfk", "lecture"), {"single_segment": True}),
        ("both", ("jfk",), {"single_segment": True, "no_timestamps": True}),
        ("no_timestamps, token times", ("jfk",), {"no_timestamps": True, "token_timestamps": True}),
        ("print_special", ("jfk",), {"print_special": True}),
        ("print_special, single_segment", ("clip1",), {"print_special": True, "single_segment": True}),
        ("tdrz_enable", ("jfk",), {"tdrz_enable": True}),
    ],
    "suppress": [
        ("blank off", ("clip1",), {"suppress_blank": False}),
        ("nst", ("lecture20",), {"suppress_nst": True}),
        ("max_initial_ts=0", ("gap3_jfk",), {"max_initial_ts": 0.0}),
        ("max_initial_ts=0.2", ("gap3_jfk",), {"max_initial_ts": 0.2}),
        ("regex words", ("jfk",), {"suppress_regex": " (ask|not|country)"}),
        ("regex capitals", ("jfk", "clip0"), {"suppress_regex": " ?[A-Z].*"}),
        ("regex o", ("jfk",), {"suppress_regex": ".*o.*"}),
        ("regex, part of a token", ("clip1",), {"suppress_regex": "e"}),
    ],
    "grammar": [
        ("lower case", ("jfk", "clip0"), {"grammar": LOWER}),
        ("lower case, penalty 5", ("jfk",), {"grammar": LOWER, "grammar_penalty": 5.0}),
        ("without e", ("jfk",), {"grammar": NO_E}),
        ("commands", ("jfk",), {"grammar": COMMANDS, "single_segment": True}),
        ("lower case, beam 2", ("jfk",), beam(2, grammar=LOWER)),
    ],
    "vad": [
        ("", ("jfk", "lecture", "gap3_jfk"), {"vad": True}),
        ("token times", ("jfk",), {"vad": True, "token_timestamps": True}),
        ("threshold 0.8", ("jfk",), {"vad": True, "vad_params": {"threshold": 0.8, "speech_pad_ms": 100}}),
        (
            "at most 3 s",
            ("lecture20",),
            {"vad": True, "vad_params": {"max_speech_duration_s": 3.0, "min_silence_duration_ms": 50}},
        ),
        ("max_len", ("jfk",), {"vad": True, "token_timestamps": True, "max_len": 16}),
        ("silence", ("zeros5",), {"vad": True}),
    ],
    "part": [
        ("offset", ("jfk", "lecture"), {"offset_ms": 3200}),
        ("duration", ("jfk", "lecture"), {"duration_ms": 5000}),
        ("both", ("lecture",), {"offset_ms": 20000, "duration_ms": 12000}),
        ("beyond the end", ("clip3",), {"duration_ms": 60000}),
        ("offset beyond the end", ("clip3",), {"offset_ms": 60000}),
    ],
    "audio_ctx": [
        ("512", ("clip0",), {"audio_ctx": 512}),
        ("768", ("jfk",), {"audio_ctx": 768}),
        ("1024", ("lecture20",), {"audio_ctx": 1024}),
    ],
    "short": [
        ("", ("jfk_0.05s", "jfk_0.3s", "jfk_1s"), {}),
    ],
}
BASE_ONLY: Final[Rows] = {
    "language": [
        ("auto", ("jfk", "clip2"), {"language": "auto"}),
        ("auto, offset", ("jfk",), {"language": "auto", "offset_ms": 3200}),
        ("detect only", ("jfk",), {"language": "auto", "detect_language": True}),
        ("de", ("jfk",), {"language": "de"}),
        ("german", ("clip0",), {"language": "german"}),
    ],
    "translate": [
        ("", ("jfk", "clip1"), {"translate": True}),
        ("from fr", ("jfk",), {"translate": True, "language": "fr"}),
    ],
}
# Sounds made for the trials: they need espeak-ng and sox.
TRIALS: Final[Rows] = {
    "trial": [
        ("", ("hello", "numbers", "passage"), {}),
        ("default", ("hello", "sil10", "six"), {"temperature_inc": 0.2}),
        ("beam 5", ("hello", "numbers"), beam(5)),
        ("regex digits", ("numbers",), {"suppress_regex": ".*[0-9].*"}),
        ("vad", ("hello", "pause5"), {"vad": True}),
        ("token times", ("pause5",), {"token_timestamps": True}),
        ("no_timestamps", ("pause5",), {"no_timestamps": True}),
    ],
}
TRIALS_BASE: Final[Rows] = {
    "trial": [
        ("de", ("german",), {"language": "de"}),
        ("de, translate", ("german",), {"language": "de", "translate": True}),
        ("auto", ("german", "russian"), {"language": "auto"}),
        ("ru, token times", ("russian",), {"language": "ru", "token_timestamps": True}),
        ("ja, max_len", ("japanese",), {"language": "ja", "token_timestamps": True, "max_len": 3}),
    ],
}


# The larger model takes twice the time, so it hears the main settings only, and short sounds.
ON_BASE: Final = {
    "greedy": ("",),
    "fallback": ("default", "logprob"),
    "beam": ("2", "5", "8", "5 at t=0.6"),
    "best of": ("2 at t=0.2", "5 at t=0.8", "8 at t=1.0"),
    "prompt": ("tokens", "260 tokens"),
    "max_len": ("12", "12 on words"),
    "token times": ("",),
    "max_tokens": ("8",),
    "segments": ("no_timestamps", "single_segment"),
    "suppress": ("regex words", "regex capitals"),
    "grammar": ("lower case", "commands"),
    "vad": ("", "token times"),
    "part": ("offset", "duration", "beyond the end"),
    "audio_ctx": ("512", "768"),
    "trial": ("", "beam 5"),
}
LONG_SOUNDS: Final = ("lecture", "lecture20", "passage")


def _on(model: str, group: str, name: str, sound: str) -> bool:
    return model != "base" or (name in ON_BASE.get(group, ()) and sound not in LONG_SOUNDS)


def _expand(rows: Rows, model: str) -> Iterator[Case]:
    for group, cases in rows.items():
        for name, sounds, params in cases:
            ours = {"reference_sampling": True} if params.get("strategy") == "beam_search" else {}
            if "prompt_tokens" in params:
                params = {**params, "prompt_tokens": PROMPTS[model][params["prompt_tokens"]]}
            for sound in sounds:
                if rows in (BASE_ONLY, TRIALS_BASE) or _on(model, group, name, sound):
                    yield Case(group, name, model, sound, params, ours=ours)


def _aligned(model: str) -> Iterator[Case]:
    preset = {"preset": model}
    for sound in ("jfk", "clip0"):
        yield Case("dtw", "preset", model, sound, aheads=preset)
    yield Case("dtw", "2 upper layers", model, "jfk", aheads={"preset": "n_top_most", "n_top": 2})
    yield Case("dtw", "own heads", model, "clip1", aheads={"preset": "custom", "heads": HEADS[model]})
    yield Case("dtw", "preset, beam 5", model, "clip2", beam(5), aheads=preset, ours={"reference_sampling": True})
    if model == "base":
        return
    yield Case("dtw", "preset", model, "lecture20", aheads=preset)
    yield Case("dtw", "preset, audio_ctx", model, "clip3", {"audio_ctx": 768}, aheads=preset)
    yield Case("dtw", "preset, ours with flash attention", model, "jfk", aheads=preset, flash_attn=True)


def grid() -> list[Case]:
    """Every combination, those of one model together."""
    cases: list[Case] = []
    for model in MODELS:
        cases += _expand(BOTH, model)
        cases += _aligned(model)
        sounds = ("jfk",) if model == "base" else ("jfk", "lecture20")
        for name, params in (("", {}), ("token times", {"token_timestamps": True})):
            cases += [Case("2 processors", name, model, sound, params, n_processors=2) for sound in sounds]
        cases += [Case("flash", "ours only", model, sound, flash_attn=True) for sound in sounds]
        if model == "base":
            cases += _expand(BASE_ONLY, model)
        cases += _expand(TRIALS, model)
        if model == "base":
            cases += _expand(TRIALS_BASE, model)
    return cases
