"""`whispyx backends`: which there are, and building or removing one without installing again."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import BackendError, ParamsError
from ..models.cache import cache_root
from ..plugins import discovery, kit, limits, manifest, probes
from . import backends_test
from .console import Console, columns
from .status import Status, status_of

__all__ = ["add_arguments", "run_backends"]


def add_arguments(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Give the command its verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, help: str) -> argparse.ArgumentParser:
        return verbs.add_parser(name, help=help, description=help, parents=[common], allow_abbrev=False)

    listing = verb("list", "list the backends, which are here, and what building the others needs")
    listing.add_argument("--json", action="store_true", help="as JSON")

    build = verb("build", "compile plugins for this installation")
    build.add_argument("names", nargs="+", metavar="NAME", help="backend, as 'list' shows it")
    build.add_argument("--into", metavar="DIR", help="folder to put the plugins into (the user's plugin folder)")
    build.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="OPTION=VALUE",
        help="an option for ggml's CMake; may be given several times",
    )
    build.add_argument("--jobs", type=int, metavar="N", help="how many compilers run side by side (one per core)")

    backends_test.add_arguments(verb("test", "check what a backend computes, operation by operation"))

    remove = verb("remove", "remove plugins that 'build' made")
    remove.add_argument("names", nargs="+", metavar="NAME", help="backend")
    remove.add_argument("--from", dest="folder", metavar="DIR", help="folder to remove from (the user's plugin folder)")


def run_backends(args: argparse.Namespace, console: Console) -> int:
    """Do what the verb says."""
    return {"list": _list, "build": _build, "test": backends_test.run_test, "remove": _remove}[args.verb](args, console)


def _list(args: argparse.Namespace, console: Console) -> int:
    files = _files()
    rows: list[dict[str, Any]] = []
    for name, backend in kit.manifests().items():
        lacking = probes.missing([*backend.build.probes, *backend.run.probes])
        rows.append(
            {
                "name": name,
                "kind": backend.kind,
                "description": backend.description,
                "state": backend.state,
                "proven": backend.proven,
                "buildable": bool(backend.build.targets),
                "files": files.get(name, []),
                "missing": [asdict(missing) for missing in lacking],
            }
        )
    if args.json:
        console.line(json.dumps({"backends": rows}, indent=2))
        return Status.OK
    table = [("backend", "kind", "here", "proven", "description")]
    for row in rows:
        table.append((row["name"], row["kind"], _here(row), manifest.STATES[row["state"]], row["description"]))
    for line in columns(table):
        console.line(line)
    if any(_here(row) == "no" for row in rows):
        console.line("\n'whispyx backends build NAME' builds one, or says what is missing")
    return Status.OK


def _here(row: dict[str, Any]) -> str:
    return "yes" if row["files"] or (not row["buildable"] and not row["missing"]) else "no"


def _files() -> dict[str, list[str]]:
    """Return the plugin files that are found, by name."""
    found: dict[str, list[str]] = {}
    for candidate in discovery.discover().candidates:
        found.setdefault(candidate.name, []).append(candidate.path)
    return found


def _build(args: argparse.Namespace, console: Console) -> int:
    into = _folder(args.into)
    settings = _settings(args.settings)
    if args.jobs is not None and not 1 <= args.jobs <= 1024:
        raise ParamsError(f"--jobs is {args.jobs}; 1 to 1024 are possible")
    status = Status.OK
    for name in dict.fromkeys(args.names):
        try:
            with console.count_bar(name) as (step, progress):
                cache = cache_root() / "backends"
                made = kit.build(name, into, cache, settings=settings, jobs=args.jobs, step=step, progress=progress)
        except BackendError as error:  # one that cannot be built does not stop the others
            console.error(error)
            status = status_of(error)
        else:
            for file in made.files:
                console.line(file)
            _advise(name, made.files, args.into, console)
    return status


def _advise(name: str, files: Sequence[str], into: str | None, console: Console) -> None:
    """Say whether what was built can be used here, and how."""
    reasons = [reason for reason in map(kit.trouble, files) if reason is not None]
    if len(reasons) == len(files):  # of several variants one is enough
        console.note(f"{name}: it is built, but cannot be used here and now: {reasons[0]}")
        return
    settings = []
    if into is not None:
        settings.append(f"{discovery.PATH_VARIABLE}={shlex.quote(str(Path(files[0]).parent))}")
    if kit.known(name).kind == "CPU":  # of its variants the best one is taken
        tag = discovery.file_candidate(files[0], "").tag
        settings += [f"{limits.VARIANT_VARIABLE}={tag}"] if tag else []
    else:
        settings.append(f"{discovery.BACKEND_VARIABLE}={name}")
    console.note(f"{name}: it works; {' '.join(settings)} chooses it")


def _folder(chosen: str | None) -> Path:
    if chosen is None:
        return discovery.user_folder()
    if not chosen.strip():
        raise ParamsError("the folder is empty; leave the option out for your plugin folder, or write '.' for this one")
    return Path(os.path.expanduser(chosen)).absolute()


def _settings(given: list[str]) -> dict[str, str]:
    settings = {}
    for entry in given:
        option, sign, value = entry.partition("=")
        if not sign or not option:
            raise ParamsError(f"--set {entry!r} must be of the form OPTION=VALUE")
        settings[option] = value
    return settings


def _remove(args: argparse.Namespace, console: Console) -> int:
    folder = _folder(args.folder)
    status = Status.OK
    for name in dict.fromkeys(args.names):
        try:
            for path in kit.remove(name, folder):
                console.line(str(path))
        except BackendError as error:
            console.error(error)
            status = status_of(error)
    return status
