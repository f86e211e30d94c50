"""`whispyx models`: which there are, which are in the cache, and fetching, verifying and removing them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ModelError, ModelNotFoundError, ParamsError
from ..models import resolve, store
from ..models.names import MODELS, find
from ..models.sources import sources_of
from ..models.store import STATES, Entry
from .console import Console, columns
from .status import Status, status_of

__all__ = ["add_arguments", "run_models"]

_SHORT = {"installed": "", "index": "packages", "hub": "hub"}


def add_arguments(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """Give the command its verbs."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, help: str) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=help, description=help, parents=[common], allow_abbrev=False)
        made.add_argument("--json", action="store_true", help="as JSON")
        return made

    listing = verb("list", "list the models that have a name, what is in the cache, and where they come from")
    listing.add_argument("--cached", action="store_true", help="only what is in the cache")

    get = verb("get", "fetch models, if they are not here yet or damaged, and print their paths")
    get.add_argument("names", nargs="+", metavar="NAME", help="model, as 'list' shows it")

    check = verb("verify", "compare files in the cache, byte for byte, with the checksums of what was fetched")
    check.add_argument("names", nargs="*", metavar="NAME", help="model (all that are in the cache)")

    remove = verb("remove", "remove models from the cache")
    remove.add_argument("names", nargs="*", metavar="NAME", help="model")
    remove.add_argument("--all", action="store_true", help="all models that have a name, and what downloads have left")

    path = verb("path", "print where models are, without fetching; without a name, the folder")
    path.add_argument("names", nargs="*", metavar="NAME", help="model")


def run_models(args: argparse.Namespace, console: Console) -> int:
    """Do what the verb says."""
    return {"list": _list, "get": _get, "verify": _verify, "remove": _remove, "path": _path}[args.verb](args, console)


def _row(entry: Entry) -> dict[str, Any]:
    model, record = entry.model, entry.record
    return {
        "name": model.name,
        "aliases": list(model.aliases),
        "megabytes": model.megabytes,
        "licence": model.licence,
        "sources": [{"kind": source.kind, "label": source.label} for source in sources_of(model)],
        "path": str(entry.path),
        "state": entry.state,
        "problem": entry.problem,
        "bytes": entry.size,
        "sha256": record.sha256 if record is not None else None,
        "source": record.source if record is not None else None,
    }


def _list(args: argparse.Namespace, console: Console) -> int:
    found = [entry for entry in store.entries() if entry.state != "absent" or not args.cached]
    others = store.others()
    if args.json:
        files = [{"path": str(path), "bytes": path.stat().st_size} for path in others]
        report = {"folder": str(store.folder()), "models": [_row(entry) for entry in found], "others": files}
        console.line(json.dumps(report, indent=2))
        return Status.OK
    table = [("model", "size", "in the cache", "licence", "from")]
    for entry in found:
        kinds = filter(None, (_SHORT[source.kind] for source in sources_of(entry.model)))
        name = ", ".join((entry.model.name, *entry.model.aliases))
        here = entry.state not in ("absent", "unfinished")
        size = f"{entry.size / 1e6 if here else entry.model.megabytes:.0f} MB"
        table.append((name, size, _told(entry), entry.model.licence, ", ".join(kinds)))
    for line in columns(table):
        console.line(line)
    for path in others:
        console.line(f"{path}: a file of no model that has a name")
    total = sum(entry.size for entry in found)
    console.line(f"\n{total / 1e6:.0f} MB in {store.folder()}; 'whispyx models get NAME' fetches a model")
    return Status.OK


def _told(entry: Entry) -> str:
    if entry.state == "unfinished":
        return f"{STATES[entry.state]}, {entry.size / 1e6:.0f} MB"
    return f"{STATES[entry.state]}: {entry.problem}" if entry.problem else STATES[entry.state]


def _each(
    args: argparse.Namespace, console: Console, names: Iterable[str], work: Callable[[str], tuple[list[str], Any]]
) -> int:
    """Do something with each model and report it; one that fails does not stop the others."""
    status, reports = Status.OK, []
    for name in dict.fromkeys(names):
        try:
            lines, report = work(name)
        except ModelError as error:
            console.error(error)
            status = status_of(error)
            reports.append({"name": name, "error": str(error)})
            continue
        reports.append(report)
        if report.get("state") == "damaged":
            status = Status.MODEL
        if not args.json:
            for line in lines:
                console.line(line)
    if args.json:
        console.line(json.dumps({"models": reports}, indent=2))
    return status


def _get(args: argparse.Namespace, console: Console) -> int:
    def get(name: str) -> tuple[list[str], Any]:
        model = find(name)  # a path is no name
        with console.byte_bar(name) as progress:
            path = resolve(model.name, progress=progress)
        return [str(path)], _row(store.entry(name))

    return _each(args, console, args.names, get)


def _verify(args: argparse.Namespace, console: Console) -> int:
    def verify(name: str) -> tuple[list[str], Any]:
        with console.byte_bar(name) as progress:
            entry = store.verify(name, progress)
        advice = f"; 'whispyx models get {entry.model.name}' fetches it again" if entry.state == "damaged" else ""
        return [f"{entry.model.name}: {_told(entry)}{advice}"], _row(entry)

    names = args.names or [entry.model.name for entry in store.entries() if _here(entry)]
    if not names:
        console.note(f"no model is in {store.folder()}")
    return _each(args, console, names, verify)


def _here(entry: Entry) -> bool:
    return entry.state not in ("absent", "unfinished")


def _remove(args: argparse.Namespace, console: Console) -> int:
    if bool(args.names) == args.all:
        raise ParamsError("name the models to remove, or say --all for all of them")

    def remove(name: str) -> tuple[list[str], Any]:
        removed = [str(path) for path in store.remove(name)]
        return removed, {"name": find(name).name, "removed": removed}

    names = [name for name in MODELS if store.entry(name).state != "absent"] if args.all else args.names
    return _each(args, console, names, remove)


def _path(args: argparse.Namespace, console: Console) -> int:
    if not args.names:
        console.line(json.dumps({"folder": str(store.folder())}, indent=2) if args.json else str(store.folder()))
        return Status.OK

    def path(name: str) -> tuple[list[str], Any]:
        entry = store.entry(name)
        if not _here(entry):
            advice = f"'whispyx models get {entry.model.name}' fetches it"
            raise ModelNotFoundError(f"{entry.model.name} is not in the cache, there is no {entry.path}; {advice}")
        return [str(entry.path)], _row(entry)

    return _each(args, console, args.names, path)
