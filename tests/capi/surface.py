"""Reads whispyx/capi/functions.txt, and makes the tables of docs/capi.md from it: python -m tests.capi.surface"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from whispyx import capi

LIST = Path(capi.__file__).with_name("functions.txt")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


@dataclass
class Function:
    """One line of [functions]."""

    section: str
    since: str
    deprecated: bool
    prototype: str

    @property
    def name(self) -> str:
        return IDENTIFIER.findall(self.prototype.split("(", 1)[0])[-1]

    @property
    def parameters(self) -> list[str]:
        return parameters_of(self.prototype)


@dataclass
class Surface:
    """The whole list."""

    constants: dict[str, int] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    callbacks: dict[str, str] = field(default_factory=dict)
    structs: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)


def parameters_of(prototype: str) -> list[str]:
    """Names of the parameters of a prototype."""
    inner = prototype.split("(", 1)[1].rsplit(")", 1)[0]
    if inner == "void":
        return []
    return [IDENTIFIER.findall(part)[-1] for part in inner.split(",")]


def read() -> Surface:
    """Parse the list; every line must have a place."""
    out = Surface()
    section = topic = owner = ""
    for line in LIST.read_text("utf-8").splitlines():
        if section != "functions" and line.startswith("#"):
            continue
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            section = heading[1]
        elif not line:
            continue
        elif section == "functions" and line.startswith("# "):
            topic = line[2:]
        elif section == "functions":
            since, mark, prototype = line.split(" ", 2)
            assert mark in "-D"
            out.functions.append(Function(topic, since, mark == "D", prototype))
        elif section == "constants":
            name, value = line.split(" = ")
            out.constants[name] = int(value)
        elif section == "types":
            kind, name = line.split()
            out.types[name] = kind
        elif section == "opaque":
            out.opaque.append(line)
        elif section == "callbacks":
            out.callbacks[IDENTIFIER.findall(line.split("(", 1)[0])[-1]] = line
        elif line.startswith(("enum ", "struct ")):
            owner = line.split()[1]
            out.enums.update({owner: {}} if section == "enums" else {})
            out.structs.update({owner: []} if section == "structs" else {})
        elif section == "enums":
            name, value = line.strip().split(" = ")
            out.enums[owner][name] = int(value)
        else:
            assert section == "structs", line
            kind, name = line.strip().rsplit(" ", 1)
            out.structs[owner].append((kind, name))
    return out


def one_line(text: str) -> str:
    return " ".join(text.split()).replace("( ", "(")


def meaning(name: str) -> str:
    """First sentence of what a docstring says after the prototype."""
    text = one_line((getattr(capi, name).__doc__ or "").split("\n\n", 1)[1])
    return re.split(r"(?<=[.:])\s(?=[A-Z`])", text, maxsplit=1)[0]


def tables() -> str:
    """The part of docs/capi.md that lists everything."""
    surface = read()
    lines: list[str] = []
    topic = ""
    for function in surface.functions:
        if function.section != topic:
            topic = function.section
            lines += ["", f"### {topic}", "", "| Function | Since | What it does |", "|---|---|---|"]
        since = function.since + (", deprecated" if function.deprecated else "")
        call = f"{function.name}({', '.join(function.parameters)})"
        lines.append(f"| `{call}` | {since} | {meaning(function.name).replace('|', '&#124;')} |")
    lines += ["", "### Structs", "", "| Struct | Fields |", "|---|---|"]
    for name, fields in surface.structs.items():
        lines.append(f"| `{name}` | {', '.join(f'`{field}`' for _, field in fields)} |")
    lines += ["", "### Enums, constants, types", "", "| Name | Values |", "|---|---|"]
    for name, members in surface.enums.items():
        lines.append(f"| `{name}` | {', '.join(f'`{member}` {value}' for member, value in members.items())} |")
    lines += [f"| `{name}` | {value} |" for name, value in surface.constants.items()]
    lines += [f"| `{name}` | int, as `{kind}` |" for name, kind in surface.types.items()]
    lines += ["", "### Callbacks", "", "| Callback | Called with |", "|---|---|"]
    for name, prototype in surface.callbacks.items():
        lines.append(f"| `{name}` | `({', '.join(parameters_of(prototype))})` |")
    return "\n".join(lines).strip() + "\n"


if __name__ == "__main__":
    print(tables())
