"""Lower layers never import higher ones, and few modules may touch the outside: docs/architecture.md, as a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "whispyx"

# From the bottom up. A module may import its own group and those above it in this list. A name ending in ".*" stands
# for a package and all in it.
LAYERS = (
    (
        "errors",
        "fallback",
        "constants",
        "languages",
        "_version",
        "_stdio",
        "_files",
        "_signatures",
        "_weight_types",
        "_ggml.*",
        "data.*",
    ),
    ("_core", "_core.base", "_core.check", "_core.log", "_core.clock", "_core.source"),
    ("_core.sampling", "_core.vecmath", "_core.cores"),
    ("_core.devices",),
    (
        "_core.handles",
        "_core.abort",
        "_core.hparams",
        "_core.vocab",
        "_core.tokenize",
        "_core.mel",
        "_core.batch",
        "_core.kernels",
    ),
    ("_core.external", "_core.rpc"),
    ("_core.trie", "_core.automaton", "_core.gbnf", "_core.grammar", "_core.regex"),
    ("_core.mapping",),
    ("_core.intake", "_core.pace"),
    ("_core.packed",),
    ("_core.weights", "_core.kvcache", "_core.results"),
    ("_core.description",),
    ("_core.ggmlfile", "_core.reading"),
    ("_core.describe",),
    ("_core.loader", "_core.params", "_core.prompt", "_core.sequence", "_core.suppress"),
    ("_core.weightfile",),
    ("_core.graph.*", "_core.fused"),
    (
        "_core.context",
        "_core.state",
        "_core.encode",
        "_core.decode",
        "_core.inspect",
        "_core.microbench",
        "_core.optest",
        "_core.quantise",
    ),
    ("_core.logits", "_core.beam", "_core.segments", "_core.lang"),
    ("_core.attempt",),
    ("_core.align.*", "_core.vad.*"),
    ("_core.emit", "_core.report", "_core.steps"),
    ("_core.run", "_core.parallel", "_core.batched"),
    ("plugins.*", "models.*"),
    ("encoders.*",),
    ("capi.*",),
    ("compat.*",),
    ("audio", "options", "_pool"),
    ("results",),
    ("writers.*", "_assemble", "_engine"),
    ("_job",),
    ("model",),
    ("_benchmark", "runner"),
    ("conversion.*",),
    ("", "cli.*", "__main__"),
)

# Packages that stand beside the tower: all they may import of ours.
ONLY = {
    "models": ("errors", "constants", "languages", "_version", "_files", "_signatures", "_weight_types", "models.*"),
    "plugins": (
        *("errors", "fallback", "constants", "languages", "_version", "_stdio", "plugins.*"),
        *("_core", "_core.base", "_core.devices", "_core.kernels", "_core.optest", "_core.rpc"),
    ),
}

# Third-party packages that one module alone may import.
SOLE_USERS = {"cffi": {"plugins.declarations"}, "_cffi_backend": {"plugins._declarations"}}

SOURCES = sorted(path for suffix in ("py", "pyi", "pyx", "pxd") for path in PACKAGE.rglob(f"*.{suffix}"))


def module_of(path: Path) -> str:
    """Name of a source file below whispyx: '' is whispyx itself, '_core.mel' is whispyx/_core/mel.pyx."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_of(path) for path in SOURCES}


def matches(module: str, pattern: str) -> bool:
    if pattern.endswith(".*"):
        return module == pattern[:-2] or module.startswith(pattern[:-1])
    return module == pattern


def layer_of(module: str) -> int:
    found = [index for index, group in enumerate(LAYERS) if any(matches(module, pattern) for pattern in group)]
    assert len(found) == 1, f"whispyx.{module} needs one place in LAYERS, it has {len(found)}"
    return found[0]


def absolute(path: Path, name: str, level: int) -> str:
    """Full dotted name of what `path` imports; `level` is the number of leading dots."""
    if level == 0:
        return name
    package = path.relative_to(ROOT).parent.parts
    return ".".join([*package[: len(package) - level + 1], *filter(None, [name])])


def python_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = absolute(path, node.module or "", node.level)
            yield from (f"{origin}.{alias.name}" for alias in node.names)


FROM = re.compile(r"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+(c?import)[ \t]+(\([^)]*\)|[^\n]*)", re.MULTILINE)
PLAIN = re.compile(r"^[ \t]*c?import[ \t]+([\w. ,]+)", re.MULTILINE)


def without_words(path: Path) -> str:
    """Text of a Cython source without its comments and docstrings."""
    text = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text(encoding="utf-8"))
    return re.sub(r"#[^\n]*", "", text)


def cython_names(path: Path) -> Iterator[tuple[str, str]]:
    """Each name of each `from … import …`, with the word 'import' or 'cimport'."""
    for dots, name, word, names in FROM.findall(without_words(path)):
        origin = absolute(path, name, len(dots))
        yield from ((word, f"{origin}.{part.split()[0]}") for part in names.strip("() \n").split(",") if part.split())


def cython_imports(path: Path) -> Iterator[str]:
    yield from (name for _, name in cython_names(path))
    for names in PLAIN.findall(without_words(path)):
        yield from (part.split()[0] for part in names.split(",") if part.split())


def imports(path: Path) -> set[str]:
    return set(python_imports(path) if path.suffix in (".py", ".pyi") else cython_imports(path))


def ours(name: str) -> str | None:
    """The module of whispyx that importing `name` loads, or None for one of others."""
    if name.split(".")[0] != "whispyx":
        return None
    below = name.partition(".")[2]
    while below and below not in MODULES:  # the last part is a name inside a module
        below = below.rpartition(".")[0]
    return below


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_reader_of_imports_understands_every_form(tmp_path: Path) -> None:
    source = tmp_path / "example.pyx"
    source.write_text(
        '"""from whispyx.model import Model: only words here"""\n'
        "import os, sys as system\n"
        "cimport whispyx._core.mel\n"
        "from whispyx._ggml.ggml cimport (\n    ggml_tensor,  # a comment\n    ggml_add,\n)\n"
        "def f():\n    from whispyx.errors import ParamsError as Wrong\n",
        encoding="utf-8",
    )
    assert set(cython_imports(source)) == {
        "os",
        "sys",
        "whispyx._core.mel",
        "whispyx._ggml.ggml.ggml_tensor",
        "whispyx._ggml.ggml.ggml_add",
        "whispyx.errors.ParamsError",
    }
    assert absolute(PACKAGE / "writers" / "text.py", "cues", 1) == "whispyx.writers.cues"
    assert absolute(PACKAGE / "writers" / "text.py", "errors", 2) == "whispyx.errors"
    assert absolute(PACKAGE / "writers" / "__init__.py", "text", 1) == "whispyx.writers.text"


@pytest.mark.parametrize("path", [path for path in SOURCES if module_of(path)], ids=named)
def test_a_module_imports_only_its_own_layer_and_lower_ones(path: Path) -> None:
    # (whispyx/__init__.py is left out: it gathers the names of all layers.)
    module = module_of(path)
    own = layer_of(module)
    wrong = []
    for name in sorted(imports(path)):
        target = ours(name)
        if target is None:
            continue
        allowed = ONLY.get(module.split(".")[0])
        if allowed is not None:
            if not any(matches(target, pattern) for pattern in allowed):
                wrong.append(f"{name}: {module.split('.')[0]} stands alone, it may import {', '.join(allowed)}")
        elif layer_of(target) > own:
            wrong.append(f"{name} is in a higher layer")
    assert not wrong, f"{named(path)} imports " + "; ".join(wrong)


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_cffi_is_used_in_one_place_only(path: Path) -> None:
    module = module_of(path)
    for name in imports(path):
        users = SOLE_USERS.get(name.split(".")[0])
        assert users is None or module in users, f"{named(path)} imports {name}; only {users} may"


@pytest.mark.parametrize("path", [path for path in SOURCES if path.suffix in (".pyx", ".pxd")], ids=named)
def test_cython_sources_use_forms_that_trigger_a_rebuild(path: Path) -> None:
    # Cython's dependency tracking misses a .pxd that is named as a member of its package, and included sources make
    # one module of two files.
    assert not re.search(r"^\s*include\s+['\"]", without_words(path), re.MULTILINE), f"{named(path)} includes a file"
    for word, name in cython_names(path):
        is_module = name.startswith("whispyx.") and name.partition(".")[2] in MODULES
        assert word == "import" or not is_module, f"{named(path)}: write 'cimport {name}', not 'from … cimport …'"


def test_every_module_has_one_place_in_the_layers() -> None:
    # A module in two groups would let an import through in one direction or the other.
    patterns = [pattern for group in LAYERS for pattern in group]
    assert len(patterns) == len(set(patterns))
    for module in sorted(MODULES):
        layer_of(module)
