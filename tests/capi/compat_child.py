"""Does the same things with pywhispercpp's extension and with whispyx in its place, and prints what came of them.

    compat_child.py real|ours SCENARIO ARGUMENTS(JSON)

Runs with the Python of one environment or the other; in ours, the folder that COMPAT_SITE names holds pywhispercpp.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import pickle
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

WHO = sys.argv[1]
if WHO == "ours":
    from whispyx.compat.pywhispercpp import install

    install()
    sys.path.append(os.environ["COMPAT_SITE"])

import _pywhispercpp as pw  # type: ignore[import-not-found]  # noqa: E402

PLAIN_TYPES = (bool, int, float, str, type(None))


def shown(value: Any) -> Any:
    """A value for JSON, with its type where that is not clear."""
    if isinstance(value, PLAIN_TYPES):
        return [type(value).__name__, value]
    if isinstance(value, bytes):
        return ["bytes", value.decode("latin-1")]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [shown(item) for item in value]]
    if isinstance(value, dict):
        return ["dict", {str(key): shown(item) for key, item in value.items()}]
    if isinstance(value, np.ndarray):
        return ["ndarray", str(value.dtype), list(value.shape)]
    if isinstance(value, (np.generic,)):
        return [type(value).__name__, value.item()]
    if hasattr(type(value), "__members__"):
        return [type(value).__name__, int(value), value.name]
    return [type(value).__name__]


def outcome(do: Callable[[], Any]) -> Any:
    """What a call returned, or the classes of what it raised."""
    try:
        return shown(do())
    except Exception as error:
        return {"raised": [kind.__name__ for kind in type(error).__mro__]}


SPECIAL = ("__entries", "__members__", "__index__", "__int__")


def parameters(function: Any) -> int:
    """How many parameters a function has; those of the extension are written in the first line of its docstring."""
    if WHO == "ours":
        return len(inspect.signature(function).parameters)
    return len(re.findall(r"\w+: ", function.__doc__.split(" ->")[0]))


def surface() -> Any:
    """Every name of the module, and every attribute of its classes."""
    names = {}
    for name in dir(pw):
        value = getattr(pw, name)
        if isinstance(value, type):
            names[name] = ["class", sorted(n for n in dir(value) if not n.startswith("_") or n in SPECIAL)]
        elif callable(value):
            names[name] = ["function", parameters(value)]
        else:
            names[name] = shown(value)
    return names


def fields() -> Any:
    """Every readable field of every struct, fresh and with defaults, as far as the extension survives it."""
    strategy = pw.whisper_sampling_strategy
    objects = {
        "greedy": pw.whisper_full_default_params(strategy.WHISPER_SAMPLING_GREEDY),
        "beam": pw.whisper_full_default_params(strategy.WHISPER_SAMPLING_BEAM_SEARCH),
        "fresh": pw.whisper_full_params(),
        "context": pw.whisper_context_default_params(),
        "fresh context": pw.whisper_context_params(),
        "vad": pw.whisper_vad_default_params(),
        "vad context": pw.whisper_vad_default_context_params(),
        "token": pw.whisper_token_data(),
    }
    found = {}
    for label, thing in objects.items():
        for name in dir(thing):
            if name.startswith("_") or (label, name) == ("fresh", "language"):  # the extension crashes there
                continue
            found[f"{label}.{name}"] = outcome(lambda thing=thing, name=name: getattr(thing, name))
    return found


SET: list[tuple[str, Any]] = [
    ("language", "german"), ("language", "de"), ("language", b"de"), ("language", "xx"), ("language", "auto"),
    ("language", ""), ("language", None), ("language", "German"), ("language", 5),
    ("suppress_regex", "a("), ("suppress_regex", None), ("suppress_regex", ""), ("initial_prompt", "h\u00e9"),
    ("initial_prompt", "a\0b"), ("initial_prompt", b"x"), ("initial_prompt", None), ("vad_model_path", "model.bin"),
    ("vad_model_path", None), ("n_threads", 2.0), ("n_threads", "2"), ("n_threads", -1), ("n_threads", 2**40),
    ("n_threads", True), ("n_threads", np.int64(3)), ("n_threads", np.float32(3)), ("n_threads", None),
    ("temperature", 1), ("temperature", "x"), ("temperature", np.float32(0.5)), ("temperature", None),
    ("temperature", 1e300), ("translate", 1), ("translate", None), ("translate", np.bool_(True)), ("translate", "x"),
    ("translate", []), ("greedy", {"best_of": 3}), ("greedy", {}), ("greedy", {"best_of": "x"}), ("greedy", 5),
    ("greedy", {"best_of": 3, "more": 1}), ("greedy", {"best_of": 2.5}), ("greedy", None),
    ("beam_search", {"beam_size": 3}), ("beam_search", {"beam_size": 3, "patience": 2}), ("beam_search", {}),
    ("prompt_tokens", [1, 2, 3]), ("prompt_tokens", (4,)), ("prompt_tokens", None), ("prompt_tokens", []),
    ("prompt_tokens", np.array([1, 2])), ("prompt_tokens", ["a"]), ("prompt_tokens", 5), ("prompt_tokens", "ab"),
    ("prompt_tokens", [2**40]), ("strategy", 1), ("strategy", pw.whisper_sampling_strategy(1)), ("no_such_name", 1),
    ("vad_params", None), ("vad_params", pw.whisper_vad_default_params()), ("progress_callback", None),
    ("new_segment_callback_user_data", [1]), ("abort_callback", print), ("max_len", -5), ("audio_ctx", 99999),
]  # fmt: skip


def setting() -> Any:
    """What each field makes of good and bad values."""
    found = []
    for name, value in SET:

        def do(name: str = name, value: Any = value) -> Any:
            params = pw.whisper_full_default_params(pw.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY)
            setattr(params, name, value)
            return getattr(params, name)

        found.append([f"{name} = {value!r:.60}" if not name.startswith("vad_params") else name, outcome(do)])
    presets = pw.whisper_alignment_heads_preset
    for name, value in (
        ("dtw_aheads_preset", presets.WHISPER_AHEADS_TINY_EN), ("dtw_aheads_preset", 3), ("dtw_mem_size", -1),
        ("dtw_n_top", 2), ("use_gpu", 0), ("gpu_device", "x"), ("no_such_name", 1), ("dtw_aheads", 1),
    ):  # fmt: skip

        def set_context(name: str = name, value: Any = value) -> Any:
            params = pw.whisper_context_default_params()
            setattr(params, name, value)
            return getattr(params, name)

        found.append([f"context.{name} = {value!r}", outcome(set_context)])
    return found


def behaviour() -> Any:
    """Enums, prompt tokens, callbacks: what does not need a model."""
    kind = pw.whisper_sampling_strategy
    greedy, beam = kind.WHISPER_SAMPLING_GREEDY, kind.WHISPER_SAMPLING_BEAM_SEARCH
    preset = pw.whisper_alignment_heads_preset

    def new() -> Any:
        return pw.whisper_full_default_params(greedy)

    def prompt(*steps: Callable[[Any], Any]) -> Callable[[], Any]:
        def do() -> Any:
            params = new()
            for step in steps:
                step(params)
            return params.prompt_tokens, params.prompt_n_tokens

        return do

    def by_reference() -> Any:
        params = new()
        params.vad_params.threshold = 0.25
        other = pw.whisper_vad_default_params()
        first = params.vad_params.threshold
        params.vad_params = other
        other.threshold = 0.75
        return first, params.vad_params.threshold

    def progress(assign: bool) -> Callable[[], Any]:
        def do() -> Any:
            params = new()
            if assign:
                pw.assign_progress_callback(params, print)
                kept = params.progress_callback is print
                pw.clear_progress_callback(params)
            else:
                params.progress_callback = print
                kept = params.progress_callback is print
                params.set_progress_callback(None)
            return kept, outcome(lambda: params.progress_callback)

        return do

    tries: dict[str, Callable[[], Any]] = {
        "int": lambda: (int(beam), beam.value, beam.name, hash(beam), [10, 20][beam]),
        "text": lambda: (str(beam), repr(beam), str(preset(6)), repr(preset(6))),
        "equal": lambda: (greedy == 0, greedy == kind(0), greedy != beam, beam == 1, greedy == "x"),
        "none": lambda: greedy == None,  # noqa: E711
        "same": lambda: (greedy is pw.WHISPER_SAMPLING_GREEDY, kind(1) == beam, {greedy: 5}[kind(0)]),
        "order": lambda: greedy < beam,
        "or": lambda: greedy | beam,
        "unknown": lambda: (kind(7).name, int(kind(7)), repr(kind(7)), str(kind(7))),
        "negative": lambda: kind(-1),
        "float": lambda: kind(1.0),
        "text value": lambda: kind("x"),
        "by name": lambda: kind(value=1),
        "from member": lambda: kind(beam),
        "members": lambda: {name: int(member) for name, member in kind.__members__.items()},
        "presets": lambda: {name: int(member) for name, member in preset.__members__.items()},
        "constants": lambda: [int(getattr(pw, name)) for name in dir(pw) if name.startswith("WHISPER_")],
        "pickled": lambda: pickle.loads(pickle.dumps(preset(6))) == preset(6),
        "set name": lambda: setattr(greedy, "name", "x"),
        "set other": lambda: setattr(greedy, "other", "x"),
        "strategy number": lambda: pw.whisper_full_default_params(0),
        "no strategy": lambda: pw.whisper_full_default_params(),
        "prompt set": prompt(lambda p: p.set_prompt_tokens([1, 2, 3])),
        "prompt set array": prompt(lambda p: p.set_prompt_tokens(np.array([1, 2]))),
        "prompt set range": prompt(lambda p: p.set_prompt_tokens(range(3))),
        "prompt set text": prompt(lambda p: p.set_prompt_tokens("ab")),
        "prompt set None": prompt(lambda p: p.set_prompt_tokens(None)),
        "prompt set iterator": prompt(lambda p: p.set_prompt_tokens(iter([1]))),
        "prompt fewer": prompt(lambda p: p.set_prompt_tokens([1, 2, 3]), lambda p: setattr(p, "prompt_n_tokens", 2)),
        "prompt cleared": prompt(lambda p: p.set_prompt_tokens([1]), lambda p: p.clear_prompt_tokens()),
        "vad by reference": by_reference,
        "vad object": lambda: (lambda p: p.vad_params is p.vad_params)(new()),
        "progress assigned": progress(True),
        "progress set": progress(False),
        "callback 5": lambda: pw.assign_abort_callback(new(), 5),
        "callback method 5": lambda: new().set_abort_callback(5),
        "callback none": lambda: pw.assign_abort_callback(new()),
        "callback by name": lambda: pw.assign_abort_callback(params=new(), callback=None),
        "callback wrong params": lambda: pw.assign_abort_callback(5, print),
        "pickle params": lambda: pickle.dumps(new()),
        "make context": lambda: pw.whisper_context(),
        "make segments": lambda: pw.whisper_vad_segments(),
        "base": lambda: issubclass(pw.whisper_full_params, getattr(pw, "__whisper_full_params__internal")),
        "lang": lambda: [pw.whisper_lang_id(name) for name in ("de", "german", "xx")],
        "lang str": lambda: [pw.whisper_lang_str(i) for i in (0, 2, 99, 100, -1)],
        "lang all": lambda: [pw.whisper_lang_str(i) for i in range(pw.whisper_lang_max_id() + 1)],
        "log wrong": lambda: pw.whisper_log_set(5),
        "wrong context": lambda: pw.whisper_n_vocab(5),
        "info": lambda: bool(re.match(r"WHISPER : COREML = 0 \| OPENVINO = [01] \| ", pw.whisper_print_system_info())),
    }
    return {label: outcome(do) for label, do in tries.items()}


def context(model: str) -> Any:
    params = pw.whisper_context_default_params()
    params.flash_attn = False
    params.use_gpu = False
    return pw.whisper_init_from_file_with_params(model, params)


def low(model: str, samples: str) -> Any:
    """The functions of the extension one by one."""
    pcm = np.load(samples)
    ctx = context(model)
    found: dict[str, Any] = {}
    for name in dir(pw):
        if name.startswith(
            ("whisper_model_n_", "whisper_n_", "whisper_model_ft", "whisper_model_type_", "whisper_is_")
        ):
            found[name] = outcome(lambda name=name: getattr(pw, name)(ctx))
    for name in ("beg", "eot", "not", "prev", "solm", "sot", "transcribe", "translate"):
        found[f"token {name}"] = outcome(lambda name=name: getattr(pw, f"whisper_token_{name}")(ctx))
    for token in (0, 94, 220, 50256, 50257, 50300, 50363, 50364, 51863, 60000, -1):
        found[f"bytes {token}"] = outcome(lambda token=token: pw.whisper_token_to_bytes(ctx, token))
        found[f"str {token}"] = outcome(lambda token=token: pw.whisper_token_to_str(ctx, token))
    found["token lang"] = outcome(lambda: pw.whisper_token_lang(ctx, 2))
    found["too small"] = outcome(lambda: pw.whisper_tokenize(ctx, " hello", 0, 0))
    found["no segments"] = outcome(lambda: pw.whisper_full_n_segments(ctx))
    found["no mel"] = outcome(lambda: pw.whisper_lang_auto_detect(ctx, 0, 1, np.zeros(100, np.float32)))
    found["mel"] = outcome(lambda: pw.whisper_pcm_to_mel(ctx, pcm, pcm.size, 2))
    found["n_len"] = outcome(lambda: pw.whisper_n_len(ctx))
    probs = np.zeros(100, np.float32)
    found["detect"] = outcome(lambda: pw.whisper_lang_auto_detect(ctx, 0, 2, probs))
    found["probs"] = [round(float(p), 3) for p in probs]
    found["detect before"] = outcome(lambda: pw.whisper_lang_auto_detect(ctx, -10, 2, probs))
    found["detect after"] = outcome(lambda: pw.whisper_lang_auto_detect(ctx, 99999, 2, probs))
    found["encode"] = outcome(lambda: pw.whisper_encode(ctx, 0, 2))
    found["decode"] = outcome(lambda: pw.whisper_decode(ctx, pw.whisper_token_sot(ctx), 1, 0, 2))
    found["logit"] = round(pw.whisper_get_logits(ctx), 1)
    found["set mel"] = outcome(lambda: pw.whisper_set_mel(ctx, np.zeros((80, 300), np.float32), 300, 80))
    found["set mel float64"] = outcome(lambda: pw.whisper_set_mel(ctx, np.zeros((80, 300)), 300, 80))
    found["set mel wrong"] = outcome(lambda: pw.whisper_set_mel(ctx, np.zeros((128, 300), np.float32), 300, 128))
    found["openvino"] = outcome(lambda: pw.whisper_ctx_init_openvino_encoder(ctx, "none.xml", "CPU", "cache"))
    found["openvino none"] = outcome(lambda: pw.whisper_ctx_init_openvino_encoder(ctx, None, "CPU", None))
    for label, values, n in (
        ("text", "abc", 1), ("empty", np.zeros(0, np.float32), 0), ("none", None, 0), ("short", pcm, 100),
        ("bytes", bytes(100), 100), ("float n", pcm, 1.0), ("negative n", pcm, -1),
    ):  # fmt: skip
        found[f"full {label}"] = outcome(lambda values=values, n=n: pw.whisper_full(ctx, new_params(), values, n))
    found["full wrong params"] = outcome(lambda: pw.whisper_full(ctx, None, pcm, pcm.size))
    found["full few arguments"] = outcome(lambda: pw.whisper_full(ctx, new_params(), pcm))
    for name, value in (
        ("audio_ctx", 9999), ("greedy", {"best_of": 20}), ("n_threads", 0), ("suppress_regex", "a("),
        ("vad", True),
    ):  # fmt: skip
        params = new_params()
        setattr(params, name, value)
        found[f"full {name}"] = outcome(lambda params=params: pw.whisper_full(ctx, params, pcm, pcm.size))
    found["reset"] = outcome(lambda: pw.whisper_reset_timings(ctx))
    found["free"] = outcome(lambda: pw.whisper_free(ctx))
    return found


def new_params(strategy: int = 0, **values: Any) -> Any:
    params = pw.whisper_full_default_params(pw.whisper_sampling_strategy(strategy))
    params.print_progress = False
    for name, value in values.items():
        setattr(params, name, value)
    return params


def result(ctx: Any) -> Any:
    """All that can be read of the last run."""
    segments = []
    for i in range(pw.whisper_full_n_segments(ctx)):
        tokens = []
        for j in range(pw.whisper_full_n_tokens(ctx, i)):
            data = pw.whisper_full_get_token_data(ctx, i, j)
            same = (
                data.id == pw.whisper_full_get_token_id(ctx, i, j),
                data.p == pw.whisper_full_get_token_p(ctx, i, j),
            )
            text = pw.whisper_full_get_token_text(ctx, i, j)
            tokens.append([data.id, text, round(data.p, 2), data.t0, data.t1, data.t_dtw, same])
        t0, t1 = pw.whisper_full_get_segment_t0(ctx, i), pw.whisper_full_get_segment_t1(ctx, i)
        text = pw.whisper_full_get_segment_text(ctx, i).decode()
        segments.append([t0, t1, text, pw.whisper_full_get_segment_speaker_turn_next(ctx, i), tokens])
    return {"segments": segments, "language": pw.whisper_full_lang_id(ctx)}


def runs(model: str, samples: str) -> Any:
    """whisper_full with different settings and kinds of samples."""
    pcm = np.load(samples)
    ctx = context(model)
    found: dict[str, Any] = {}

    def run(label: str, values: Any = pcm, n_processors: int = 0, **settings: Any) -> None:
        params = new_params(**settings)
        more = (n_processors,) if n_processors else ()
        call = pw.whisper_full_parallel if n_processors else pw.whisper_full
        code = call(ctx, params, values, np.size(values), *more)
        found[label] = {"code": code, **result(ctx)}

    run("plain")
    run("float64 in two rows", pcm.astype(np.float64).reshape(2, -1))
    run("token times", token_timestamps=True)
    run("max_len", token_timestamps=True, max_len=20, split_on_word=True)
    run("two processors", n_processors=2)
    run("special", print_special=True, no_timestamps=True)
    run("prompt", prompt_tokens=(4, 5))
    params = new_params(print_realtime=True)
    found["code"] = pw.whisper_full(ctx, params, pcm, pcm.size)
    return found


def callbacks(model: str, samples: str) -> Any:
    """What callbacks get, and what becomes of what they return or raise; on 4 s and a short encoder, to be quick."""
    pcm = np.load(samples)[:64000]
    ctx = context(model)
    found: dict[str, Any] = {}

    def run(label: str, set_up: Callable[[Any, list[Any]], Any], **settings: Any) -> None:
        seen: list[Any] = []
        params = new_params(audio_ctx=256, **settings)
        set_up(params, seen)
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            code = outcome(lambda: pw.whisper_full(ctx, params, pcm, pcm.size))
        found[label] = {"code": code, "seen": seen, "n": pw.whisper_full_n_segments(ctx)}

    def note(seen: list[Any], answer: Any = None) -> Callable[..., Any]:
        def callback(*arguments: Any) -> Any:
            seen.append([shown(a) for a in arguments])
            return answer

        return callback

    def first(seen: list[Any], answer: Any = None) -> Callable[..., Any]:
        def callback(*arguments: Any) -> Any:
            if not seen:
                seen.append([type(a).__name__ for a in arguments])
            return answer

        return callback

    def count(seen: list[Any]) -> Callable[..., Any]:
        return lambda ctx, n_new, *data: seen.append(
            [n_new, pw.whisper_full_n_segments(ctx), [shown(d) for d in data],
             pw.whisper_full_get_segment_text(ctx, pw.whisper_full_n_segments(ctx) - 1).decode()]
        )  # fmt: skip

    def boom(*_: Any) -> Any:
        raise KeyError("boom")

    run("new segment", lambda p, seen: pw.assign_new_segment_callback(p, count(seen)))
    run("new segment data", lambda p, seen: (pw.assign_new_segment_callback(p, count(seen)),
                                             setattr(p, "new_segment_callback_user_data", {"a": 1})))  # fmt: skip
    run("progress", lambda p, seen: pw.assign_progress_callback(p, note(seen)), print_progress=True)
    run("progress data", lambda p, seen: (p.set_progress_callback(note(seen)),
                                          setattr(p, "progress_callback_user_data", 7)),
        print_progress=True)  # fmt: skip
    run("progress off", lambda p, seen: pw.assign_progress_callback(p, note(seen)))
    run("begin", lambda p, seen: pw.assign_encoder_begin_callback(p, note(seen, True)))
    run("begin false", lambda p, seen: pw.assign_encoder_begin_callback(p, note(seen, False)))
    run("begin None", lambda p, seen: pw.assign_encoder_begin_callback(p, note(seen, None)))
    run("begin text", lambda p, seen: pw.assign_encoder_begin_callback(p, note(seen, "x")))
    run("abort", lambda p, seen: pw.assign_abort_callback(p, first(seen, False)))
    run("abort data", lambda p, seen: (pw.assign_abort_callback(p, first(seen, None)),
                                       setattr(p, "abort_callback_user_data", 5)))  # fmt: skip
    run("abort true", lambda p, seen: pw.assign_abort_callback(p, first(seen, 1)))
    run("abort text", lambda p, seen: pw.assign_abort_callback(p, first(seen, "x")))
    run("logits", lambda p, seen: pw.assign_logits_filter_callback(p, first(seen)))
    run("logits data", lambda p, seen: (p.set_logits_filter_callback(first(seen)),
                                        setattr(p, "logits_filter_callback_user_data", "u")))  # fmt: skip
    for name in ("new_segment", "progress", "encoder_begin", "abort", "logits_filter"):
        assign = getattr(pw, f"assign_{name}_callback")
        run(f"{name} raises", lambda p, _, assign=assign: assign(p, boom), print_progress=True)
        run(f"{name} counts", lambda p, _, assign=assign: assign(p, lambda a, b, c, d, e: 1), print_progress=True)
    run("cleared", lambda p, seen: (pw.assign_abort_callback(p, first(seen, True)), pw.clear_abort_callback(p)))
    return found


def high(model: str, wav: str, samples: str) -> Any:
    """pywhispercpp's own Model class."""
    from pywhispercpp import utils  # type: ignore[import-not-found]
    from pywhispercpp.model import Model  # type: ignore[import-not-found]

    settings = {"print_progress": False, "n_threads": 2, "context_params": {"flash_attn": False, "use_gpu": False}}
    found: dict[str, Any] = {}

    def segments(of: list[Any]) -> list[Any]:
        return [[s.t0, s.t1, s.text, None if s.probability != s.probability else round(s.probability, 2)] for s in of]

    one = Model(model, **settings)
    new: list[Any] = []
    found["greedy"] = segments(one.transcribe(wav, new_segment_callback=new.append, extract_probability=True))
    found["new"] = segments(new)
    params = one.get_params()
    found["params"] = {name: shown(value) for name, value in params.items() if not callable(value)}
    found["names"] = sorted(name for name in params if not name.startswith("_"))
    found["two"] = segments(one.transcribe(np.load(samples), n_processors=2))
    found["words"] = segments(one.transcribe(wav, token_timestamps=True, max_len=1, split_on_word=True))
    found["kept"] = [one.get_params()["max_len"], one.get_params()["split_on_word"]]
    found["aborted"] = segments(one.transcribe(wav, abort_callback=lambda: True, max_len=0))
    found["regex"] = segments(one.transcribe(wav, suppress_regex="", suppress_non_speech_tokens=True, max_len=0))
    (language, probability), every = one.auto_detect_language(wav)
    found["detect"] = [language, round(float(probability), 2), len(every), type(every[language]).__name__]
    found["schema"] = sorted(Model.get_params_schema())
    found["languages"] = Model.available_languages()
    found["max"] = Model.lang_max_id()
    found["info"] = [type(one.system_info()).__name__, one.print_timings()]
    found["srt"] = utils.to_timestamp(found["greedy"][0][1])
    beam = Model(model, params_sampling_strategy=1, beam_search={"beam_size": 2, "patience": -1.0}, language="german",
                 redirect_whispercpp_logs_to=None, **settings)  # fmt: skip
    found["language"] = beam.get_params()["language"]
    found["wrong"] = [
        outcome(lambda: Model(model, no_such_name=1)),
        outcome(lambda: Model(model, context_params={"no_such_name": 1})),
        outcome(lambda: one.transcribe("no such file.wav")),
        outcome(lambda: one.transcribe(wav, prompt_tokens="ab")),
        outcome(lambda: one.transcribe(wav, temperature="hot")),
    ]
    return found


def main() -> None:
    """Run a scenario; its answer is the last line."""
    arguments = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
    answer: Any = globals()[sys.argv[2]](**arguments)
    if WHO == "ours" and os.path.exists("/proc/self/maps"):
        with open("/proc/self/maps") as maps:
            assert not any("libwhisper" in line or "_pywhispercpp" in line for line in maps), "the extension is loaded"
    print("\n" + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
