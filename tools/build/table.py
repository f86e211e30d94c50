"""`python -m tools.build.table`: the table of backends in docs/backends.md, made from the manifests."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from tools.build import ROOT
from tools.build.shared import manifest

__all__ = ["DOCUMENT", "table", "with_table"]

DOCUMENT: Final = ROOT / "docs" / "backends.md"
BEGIN: Final = "<!-- table of backends: made by python -m tools.build.table --write -->\n"
END: Final = "<!-- end of the table of backends -->\n"


def table(root: Path = ROOT) -> str:
    """Return the table, one line a backend: those that were run first, recipes last."""
    backends = [manifest.read(manifest.path_of(name, root)) for name in manifest.names(root)]
    order = list(manifest.STATES)
    lines = ["| backend | kind | what | state | how it was proven |", "|---|---|---|---|---|"]
    for backend in sorted(backends, key=lambda backend: order.index(backend.state)):
        page = f"backends/{backend.name}.md"
        name = f"[{backend.name}]({page})" if (root / "docs" / page).is_file() else backend.name
        state = manifest.STATES[backend.state]
        lines.append(f"| {name} | {backend.kind} | {backend.description} | {state} | {backend.proven} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """Return the document `text` with the table between its markers.

    Raises
    ------
    ValueError
        The markers are not there once each, in order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the lines {BEGIN.strip()!r} and {END.strip()!r} must be there, once and in this order")
    return text[: text.index(BEGIN) + len(BEGIN)] + table() + text[text.index(END) :]


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.build.table", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/backends.md")
    if not parser.parse_args().write:
        print(table(), end="")
        return 0
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
