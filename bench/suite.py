"""The measurements of one round. Each engine and each command is a process of its own."""

from __future__ import annotations

import compileall
import fcntl
import os
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.busy_neighbour import busy
from bench.engines import AUTO, OURS, REFERENCE, REFERENCE_AVX2, Engine, Session
from tools import peers
from tools.workers.client import FOLDER, Worker

BEAMS = 5
LOADS = 5
POLITE_S = 0.3  # between two measurements that hold the lock, for others that wait for it
LANGUAGE = "en"
IMPORT = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
ROOT = Path(__file__).resolve().parents[1]

Values = dict[str, float]
Sounds = Mapping[str, tuple[str, float]]


@dataclass
class Setting:
    """What all rounds share."""

    python: str
    threads: int
    sounds: Sounds
    clip: Path
    compute: str | None = None
    lock: Path | None = None
    long: bool = True
    made_of: dict[str, str] = field(default_factory=dict)
    texts: dict[tuple[str, str, str], str] = field(default_factory=dict)


@contextmanager
def alone(setting: Setting) -> Iterator[None]:
    """Hold the lock that keeps other benchmarks of this machine away, if there is one."""
    if setting.lock is None:
        yield
        return
    time.sleep(POLITE_S)
    with setting.lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def engine_round(engine: Engine, model: str, setting: Setting) -> Values:
    """Times of one engine on one model: every job once to warm up where it is short, then timed."""
    sounds = {name: path for name, (path, _) in setting.sounds.items()}
    found: Values = {}
    with alone(setting), Session(engine, model, setting.threads, setting.compute) as session:
        session.load()  # fills the page cache
        found["load_ms"] = 1e3 * statistics.median(session.load() for _ in range(LOADS))
        setting.made_of.setdefault(engine.name, session.compute or "")
        jobs = [("jfk_s", "jfk", 1)]
        if not engine.short:
            jobs += [("lecture_s", "lecture", 1)] + ([("long_s", "long", 1)] if setting.long else [])
        for key, sound, beams in jobs:
            if sound == "jfk":
                session.transcribe(sounds[sound], LANGUAGE, beams)
            run = session.transcribe(sounds[sound], LANGUAGE, beams)
            found[key] = run.seconds
            setting.texts[engine.name, model, sound] = run.text
            if sound == "jfk":
                _note(found, encode_ms=run.encode_ms, token_ms=run.per_token_ms())
        if "long_s" in found and engine.carries is not None:
            # Some engines never give a window the text before it, which is less work: this is the same for all.
            found["long_alone_s"] = found["long_s"]
            if engine.carries:
                found["long_alone_s"] = session.transcribe(sounds["long"], LANGUAGE, carry=False).seconds
        if engine.beams and not engine.short:
            session.transcribe(sounds["jfk"], LANGUAGE, BEAMS)
            _note(found, beam_ms=session.transcribe(sounds["jfk"], LANGUAGE, BEAMS).per_token_ms())
    return found


def _note(found: Values, **values: float | None) -> None:
    found.update({name: value for name, value in values.items() if value is not None})


def peak_round(engine: Engine, model: str, setting: Setting) -> Values:
    """Most resident memory of a process that loads a model and transcribes one long recording.

    And what the first of these takes beside the process itself, as a multiple of the file.
    """
    sound = "long" if setting.long and not engine.short else "lecture"
    with alone(setting), Session(engine, model, setting.threads, setting.compute) as session:
        before = session.peak_mib()
        session.load()
        loaded = session.peak_mib() - before
        session.transcribe(setting.sounds[sound][0], LANGUAGE)
        found = {"peak_mib": session.peak_mib()}
        if Path(session.model).is_file():
            found["load_peak_ratio"] = loaded / (Path(session.model).stat().st_size / 2**20)
        return found


def _seconds(command: list[str], environment: Mapping[str, str]) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, cwd=ROOT)
    spent = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-500:]}")
    return spent, done.stdout.strip()


Command = tuple[list[str], dict[str, str]]


def commands(setting: Setting, path: str) -> dict[str, Command]:
    """From the start of a process to the text of a short clip, by engine. Greedy, no fallback, the same threads."""
    # Bytecode, as an installer leaves it: a checkout may have none, and an environment may forbid to write it.
    compileall.compile_dir(ROOT / "whispyx", quiet=2)
    threads, clip = str(setting.threads), str(setting.clip)
    compute = {"WHISPYX_COMPUTE": setting.compute} if setting.compute else {}
    greedy = ["--temperature-inc", "0"]
    ours = [setting.python, "-m", "whispyx", "transcribe", "-m", path, "-l", LANGUAGE, "-t", threads, *greedy, clip]
    found: dict[str, Command] = {OURS: (ours, compute)}
    for name, native in ((REFERENCE, True), (REFERENCE_AVX2, False)):
        command = peers.program("whisper-cli", native)
        if command is not None:
            plain = ["-bs", "1", "-bo", "1", "-nf", "-np", "-nt"]
            found[name] = [str(command), "-m", path, "-l", LANGUAGE, "-t", threads, *plain, "-f", clip], {}
    return found


def start_round(setting: Setting, name: str, model: str, command: Command) -> Values:
    """From the start of a process to the text of a short clip."""
    with alone(setting):
        spent, text = _seconds(*command)
    setting.texts[name, model, "clip"] = " ".join(text.split())
    return {"start_s": spent}


def import_round(setting: Setting) -> Values:
    """Seconds of an import in a fresh interpreter, and with the class that every program needs."""
    with alone(setting):
        bare = _seconds([setting.python, "-c", IMPORT.format("import whispyx")], {})[1]
        model = _seconds([setting.python, "-c", IMPORT.format("from whispyx import Model")], {})[1]
    return {"import_s": float(bare), "import_model_s": float(model)}


def mel_round(setting: Setting, path: str, samples: str) -> Values:
    """The spectrogram of 30 s on one thread."""
    with alone(setting), Worker(FOLDER / "whispyx_core.py", setting.python) as worker:
        worker("load", model=path, flash_attn=True, compute=setting.compute or AUTO)
        return {"mel_ms": float(worker("mel", samples=samples, rounds=20)["ms"])}


def busy_round(engine: Engine, model: str, setting: Setting) -> Values:
    """How much longer a job takes beside a process that keeps one core busy."""
    sound = setting.sounds["jfk"][0]
    with alone(setting), Session(engine, model, setting.threads, setting.compute) as session:
        session.load()
        session.transcribe(sound, LANGUAGE)
        quiet = session.transcribe(sound, LANGUAGE).seconds
        with busy(1):
            beside = session.transcribe(sound, LANGUAGE).seconds
    return {"busy_ratio": beside / quiet}


def batch_round(setting: Setting, path: str, together: tuple[int, ...]) -> dict[int, Values]:
    """Decoding several windows together, by how many: ms per token of one window."""
    params = {"n_threads": setting.threads, "temperature_inc": 0.0, "language": LANGUAGE}
    samples = setting.sounds["jfk"][0]
    with alone(setting), Worker(FOLDER / "whispyx_core.py", setting.python) as worker:
        worker("load", model=path, flash_attn=True, compute=setting.compute or AUTO)
        most = max(together)
        worker("windows", samples=samples, n_regions=most, together=most, params=params)
        return {n: worker("windows", samples=samples, n_regions=most, together=n, params=params) for n in together}
