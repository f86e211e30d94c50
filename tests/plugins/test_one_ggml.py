"""Other packages bring a ggml of their own. Ours must stay the only one that our plugins and our core see."""

from __future__ import annotations

import ctypes.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import whispyx
from tests.plugins.toolkit import ROOT, Compiler, ask, python
from tools.peers import environment

NATIVE = Path(whispyx.__file__).resolve().parent / "_native"
BASE = NATIVE / "libwhispyx-ggml-base.so"

BINDING = re.compile(r"binding file (?P<user>\S+) \[0\] to (?P<owner>\S+) \[0\]: normal symbol `(?P<symbol>\w+)'")

# How each peer loads its own ggml. The module name of pywhispercpp's extension avoids its optional imports.
IMPORTS = {
    "nothing": "",
    "pywhispercpp": "import _pywhispercpp\n",
    "transcribe-cpp": "import transcribe_cpp._library\ntranscribe_cpp._library.load_library()\n",
}


def site_packages(peer: str) -> str | None:
    wanted = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = environment(peer) / "lib" / wanted / "site-packages"
    return str(folder) if folder.is_dir() else None


def peer_code(peer: str) -> str:
    """Code that imports the peer from its own environment; skips where that environment is absent."""
    if peer == "nothing":
        return ""
    folder = site_packages(peer)
    if folder is None:
        pytest.skip(f"no environment for {peer} and this Python; `python tools/peers.py {peer}` makes it")
    # The peer's engine prints while it loads; that is its business, and the tests look at our output only.
    return (
        f"sys.path.append({folder!r})\nsaved = os.dup(2)\nos.dup2(os.open(os.devnull, os.O_WRONLY), 2)\n"
        f"{IMPORTS[peer]}os.dup2(saved, 2)\n"
    )


MAPPED = """
def mapped():
    with open("/proc/self/maps") as file:
        paths = {line.split(None, 5)[5].strip() for line in file if line.count("/")}
    return sorted(path for path in paths if "ggml" in os.path.basename(path))
"""

needs_proc = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system has no /proc/self/maps")
needs_glibc = pytest.mark.skipif(
    not (sys.platform.startswith("linux") and ctypes.util.find_library("c") == "libc.so.6"),
    reason="only glibc's linker lists the bindings it makes",
)


@needs_proc
@pytest.mark.parametrize("peer", IMPORTS)
def test_the_process_holds_one_ggml_base_of_ours(peer: str) -> None:
    paths = ask(MAPPED + peer_code(peer) + "attempt()\nanswer(mapped())")
    ours = [path for path in paths if Path(path).is_relative_to(NATIVE.parent)]
    bases = [path for path in ours if "base" in Path(path).name]
    assert bases == [str(BASE)]
    assert all(path == str(BASE) or Path(path).parent == NATIVE / "plugins" for path in ours)
    foreign = [path for path in paths if path not in ours]
    if peer == "nothing":
        assert foreign == []
    else:
        assert any("ggml-base" in Path(path).name for path in foreign), "the peer did not load its ggml"


@pytest.mark.parametrize("peer", IMPORTS)
def test_our_cpu_plugin_computes_right_beside_a_peer(peer: str) -> None:
    a = [float(i) for i in range(12)]
    b = [float(2 * i - 9) for i in range(12)]
    expected = [sum(a[4 * j + k] * b[4 * i + k] for k in range(4)) for i in range(3) for j in range(3)]
    result = ask(
        peer_code(peer) + f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.plugins.ggml_by_hand import compute\nattempt()\ncpu = table.cpu_device()\n"
        f"answer(compute(table.base_library(), cpu.plugin_path, 'mul_mat', {a}, {b}, (4, 3)))"
    )
    assert result == expected


def bindings(code: str, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Run `code` and yield (user, owner, symbol) for every ggml symbol the linker bound for a library of ours."""
    env = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(folder / "linker")}
    ask(code, env=env)
    (log,) = folder.glob("linker.*")
    for match in BINDING.finditer(log.read_text(errors="replace")):
        user = Path(match["user"]).resolve()
        if user.is_relative_to(NATIVE.parent) and match["symbol"].startswith(("ggml_", "gguf_", "quantize_row")):
            yield str(user), str(Path(match["owner"]).resolve()), match["symbol"]


def assert_bound_to_ours(code: str, folder: Path) -> None:
    found = list(bindings(code, folder))
    plugins = [entry for entry in found if Path(entry[0]).parent == NATIVE / "plugins"]
    assert any(symbol == "ggml_backend_buffer_init" for _, _, symbol in plugins), "the linker's list was not understood"
    assert any(user == str(BASE) for user, _, _ in found)
    strangers = {entry for entry in found if not Path(entry[1]).is_relative_to(NATIVE)}
    assert strangers == set()


@needs_glibc
@pytest.mark.parametrize("peer", IMPORTS)
def test_every_ggml_function_is_bound_to_ours(peer: str, tmp_path: Path) -> None:
    assert_bound_to_ours(peer_code(peer) + "attempt()\nanswer(1)", tmp_path)


@pytest.fixture
def intruder(compiler: Compiler, tmp_path: Path) -> Path:
    """A library that defines ggml functions which end the process, as another ggml of another layout might."""
    listed = subprocess.run(["nm", "-D", "--defined-only", str(BASE)], capture_output=True, text=True, check=False)
    names = re.findall(r" T ((?:ggml|gguf|quantize_row)_\w+)$", listed.stdout, re.MULTILINE)
    assert "ggml_backend_buffer_init" in names
    source = tmp_path / "intruder.c"
    source.write_text("void abort(void);\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in names))
    path = tmp_path / "libintruder.so"
    subprocess.run(
        [compiler.command, "-w", "-fno-builtin", "-shared", "-fPIC", str(source), "-o", str(path)], check=True
    )
    return path


@needs_glibc
def test_plugins_are_bound_to_ours_though_another_ggml_became_global(intruder: Path, tmp_path: Path) -> None:
    code = f"import ctypes\nctypes.CDLL({str(intruder)!r}, mode=ctypes.RTLD_GLOBAL)\n"
    assert_bound_to_ours(code + "assert attempt()['loaded'] == ['cpu']\nanswer(1)", tmp_path)


def test_a_core_that_is_bound_to_another_ggml_loads_nothing(intruder: Path) -> None:
    """The intruder is global before whispyx is imported, so the linker has given its functions to the core."""
    done = python(
        f"import ctypes; ctypes.CDLL({str(intruder)!r}, mode=ctypes.RTLD_GLOBAL)\n"
        "from whispyx.errors import BackendAbiError\n"
        "try:\n    import whispyx.plugins\nexcept BackendAbiError as error:\n    print(error)\n"
    )
    assert done.returncode == 0, done.stderr
    assert str(intruder) in done.stdout
    assert "RTLD_GLOBAL" in done.stdout


def test_a_core_that_is_bound_to_another_installation_loads_nothing(tmp_path: Path) -> None:
    """The linker looks into LD_LIBRARY_PATH before it follows our own relative path."""
    shutil.copy(BASE, tmp_path)
    done = python(
        "from whispyx.errors import BackendAbiError\n"
        "try:\n    import whispyx.plugins\nexcept BackendAbiError as error:\n    print(error)\n",
        env={"LD_LIBRARY_PATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / BASE.name) in done.stdout
    assert "LD_LIBRARY_PATH" in done.stdout
