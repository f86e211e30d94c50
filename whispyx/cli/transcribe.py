"""`whispyx transcribe`."""

from __future__ import annotations

import argparse
import errno
import itertools
import logging
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from .. import _engine, writers
from ..errors import BackendError, LanguageError, ModelError, ParamsError
from ..model import Model
from ..options import TranscribeOptions
from ..results import Segment, Transcript
from ..writers.cues import clean_lines, clock
from .console import Console
from .parser import options_from
from .status import Status

__all__ = ["Output", "plan_output", "run_transcribe", "segment_line"]

logger = logging.getLogger("whispyx.cli")

STDIN: Final = "-"
# The same for every file: going on would only repeat the message.
_FOR_ALL_FILES: Final = (ModelError, BackendError, ParamsError, LanguageError)


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go.

    Attributes
    ----------
    formats : tuple of str
        Formats to write when a file is done; empty: text to standard output as it is found.
    paths : dict of str to Path
        For each input the path of its outputs without their endings; empty: standard output.
    """

    formats: tuple[str, ...]
    paths: dict[str, Path]

    def path(self, file: str, format: str) -> Path:
        """Return where the result of `file` in `format` goes."""
        base = self.paths[file]
        return base.with_name(f"{base.name}.{format}")


def plan_output(files: list[str], folder: str | None, formats: str | None) -> Output:
    """Decide where the result of each file goes, before any work is done.

    Raises
    ------
    ParamsError
        A format is unknown, the folder is none, or two results would get one name.
    """
    if folder is None and formats is None:
        return Output((), {})
    wanted = "txt" if formats is None else formats
    names = tuple(dict.fromkeys(name.strip().lower() for name in wanted.split(",") if name.strip()))
    for name in names:
        writers.writer_for(name)
    if not names:
        raise ParamsError(f"-f needs at least one format of {', '.join(writers.formats())}")
    if folder == "-":
        if len(names) > 1 or len(files) > 1:
            raise ParamsError("-o - writes one file in one format; give a folder for more")
        return Output(names, {})
    if folder == "":
        raise ParamsError("-o must name a folder; the name is empty")
    target = Path(folder or ".")
    _check_folder(target)
    bases = {file: "stdin" if file == STDIN else Path(file).name for file in files}
    stems = {file: Path(base).stem for file, base in bases.items()}
    taken = Counter(stems.values())
    paths = {file: stem if taken[stem] == 1 else bases[file] for file, stem in stems.items()}
    twice = [name for name, count in Counter(paths.values()).items() if count > 1]
    if twice:
        raise ParamsError(f"two files would be written to {twice[0]}.{names[0]}: run them with different -o folders")
    output = Output(names, {file: target / name for file, name in paths.items()})
    for file, name in itertools.product(files, names):
        path = output.path(file, name)
        if any(other != STDIN and _same(path, other) for other in files):
            raise ParamsError(f"{path} is the sound file itself and would be overwritten: name another folder with -o")
    return output


def _check_folder(target: Path) -> None:
    """Refuse a folder for results that is none and cannot be made, before anything is computed."""
    try:
        place = next(place for place in (target, *target.absolute().parents) if os.path.lexists(place))
    except (OSError, ValueError) as error:
        raise ParamsError(f"-o must name a folder; {target}: {error}") from error
    if not place.is_dir():
        raise ParamsError(f"-o must name a folder; {place} is something else")
    if not os.access(place, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "no results can be written to this folder", str(place))


def _same(path: Path, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except (OSError, ValueError):  # one of them is not there
        return False


def segment_line(segment: Segment, *, times: bool) -> str:
    """Return a segment as a line for the terminal; empty when it has no text or is no speech."""
    if segment.no_speech:
        return ""
    text = " ".join(clean_lines(segment.text))
    if not text or not times:
        return text
    return f"[{clock(round(segment.start * 1000), '.')} --> {clock(round(segment.end * 1000), '.')}]  {text}"


def run_transcribe(args: argparse.Namespace, console: Console) -> int:
    """Recognise each file; one that fails does not stop the others."""
    options = options_from(args)
    files = list(dict.fromkeys(args.files))
    output = plan_output(files, args.output, args.format)
    missing = []
    for file in files:
        problem = _unreachable(file)
        if problem is not None:
            missing.append(file)
            console.error(problem, file or "''")
    files = [file for file in files if file not in missing]
    if not files:
        return Status.FAILED
    _engine.AHEAD.extend(("whispyx.audio", "soundfile"))
    with console.byte_bar("model") as progress:
        model = Model(
            args.model,
            args.backend,
            flash_attn=not args.no_flash_attn,
            encoder=args.encoder,
            compute=args.compute,
            progress=progress,
        )
    status = Status.FAILED if missing else Status.OK
    with model:
        for number, file in enumerate(files):
            if len(files) > 1 and not output.formats:
                console.line(f"{chr(10) if number else ''}==> {file} <==")
            try:
                _one_file(model, file, options, output, console, times=args.times)
            except KeyboardInterrupt as stop:
                _keep_partial(getattr(stop, "partial", None), file, output, console)
                return Status.INTERRUPTED
            except (BrokenPipeError, *_FOR_ALL_FILES):
                raise
            except (OSError, ValueError, RuntimeError, MemoryError) as error:
                console.error(error, file)
                status = Status.FAILED
    return status


def _unreachable(file: str) -> Exception | None:
    """Return why there is no file of this name, None when there is one."""
    if file == STDIN:
        return None
    try:
        os.stat(file)
    except FileNotFoundError:
        return FileNotFoundError("no such file")
    except OSError as error:
        return OSError(error.errno, error.strerror)
    except ValueError as error:  # a null byte, or a name that this locale cannot write
        return error
    return None


def _one_file(
    model: Model, file: str, options: TranscribeOptions, output: Output, console: Console, *, times: bool
) -> None:
    def show(segment: Segment) -> None:
        line = segment_line(segment, times=times)
        if line:
            console.line(line)

    audio = _standard_input() if file == STDIN else file
    with console.percent_bar(Path(file).name) as progress:
        transcript = model.transcribe(
            audio, options=options, on_segment=None if output.formats else show, progress=progress
        )
    logger.info(
        "%s: %.1f s of audio, language %s, %.1f times real time",
        file, transcript.duration, transcript.language, transcript.speed or 0.0,
    )  # fmt: skip
    _write(transcript, file, output)


def _standard_input() -> BinaryIO:
    if sys.stdin is None or sys.stdin.isatty():
        raise ParamsError("standard input is not redirected: pipe a sound file into the command, or name one")
    return sys.stdin.buffer


def _write(transcript: Transcript, file: str, output: Output) -> None:
    if output.formats and not output.paths:
        writers.write(transcript, sys.stdout, output.formats[0])
        return
    failure = None
    for name in output.formats:
        path = output.path(file, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            writers.save(transcript, path, name)
        except OSError as error:  # the other formats keep what was recognised
            failure = error
        else:
            logger.info("wrote %s", path)
    if failure is not None:
        raise failure


def _keep_partial(partial: Transcript | None, file: str, output: Output, console: Console) -> None:
    """After Ctrl-C: write what there is (on standard output it stands already) and say how far it goes."""
    if partial is None or not partial.segments:
        console.note(f"whispyx: interrupted; nothing of {file} was recognised yet")
        return
    _write(partial, file, output)
    console.note(f"whispyx: interrupted; {file} was recognised up to {partial.segments[-1].end:.1f} s")
