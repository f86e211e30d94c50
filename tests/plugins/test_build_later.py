"""`whispyx backends build`: plugins compiled later, against the base library that is installed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import whispyx
from tests.plugins.toolkit import ROOT, ask, python
from tools.build import vendor
from tools.build.native import install_file, kit_files
from whispyx.plugins import elf

PARENT = Path(whispyx.__file__).resolve().parents[1]


def backends(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return python("whispyx", "backends", *arguments, env=env, flags=["-m"], seconds=1200)


def compilers_alone(folder: Path) -> str:
    """Return a PATH with compilers, and without CMake and Ninja."""
    folder.mkdir()
    for name in ("gcc", "g++", "cc", "c++", "as", "ld", "ar", "ranlib", "nm", "strip", "sh", "uname"):
        found = shutil.which(name)
        if found is not None:
            (folder / name).symlink_to(found)
    return str(folder)


def without_packages(folder: Path, *names: str) -> str:
    """Return a folder for PYTHONPATH in which these packages cannot be imported."""
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise ImportError('not here')\n")
    return str(folder)


def test_a_plugin_that_is_built_later_is_bound_to_the_base_that_is_here(built: Callable[[str], Path]) -> None:
    for name in ("blas", "rpc"):
        library = elf.inspect(str(built(name) / f"libggml-{name}.so"))
        assert [needed for needed in library.needed if "ggml" in needed] == ["libwhispyx-ggml-base.so"]


def test_blas_loads_with_the_openblas_beside_it(built: Callable[[str], Path]) -> None:
    folder = built("blas")
    outcome = ask("answer(attempt('blas'))", env={"WHISPYX_BACKEND_PATH": str(folder)})
    assert outcome["selected"] == ["BLAS", "CPU"]
    assert (folder / "libscipy_openblas.so").is_file()


def test_a_build_records_what_it_made_and_remove_removes_that(built: Callable[[str], Path], tmp_path: Path) -> None:
    built("blas")  # compiled already: what follows only copies
    done = backends("build", "blas", "rpc", "--into", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{tmp_path}/libggml-blas.so", f"{tmp_path}/libggml-rpc.so"]
    assert f"WHISPYX_BACKEND_PATH={tmp_path} WHISPYX_BACKEND=blas" in done.stderr
    record = json.loads((tmp_path / "blas.build.json").read_text())
    assert record["files"] == ["libggml-blas.so"]
    assert record["beside"] == ["libscipy_openblas.so"]
    done = backends("remove", "blas", "--from", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["libggml-rpc.so", "rpc.build.json"]
    done = backends("remove", "blas", "rpc", "--from", str(tmp_path))
    assert done.returncode == 4
    assert "no plugin 'blas' was built" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_list_tells_what_is_here_and_what_is_missing(built: Callable[[str], Path]) -> None:
    done = backends("list", "--json", WHISPYX_BACKEND_PATH=str(built("rpc")))
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["backends"]}
    assert rows["rpc"]["files"] == [str(built("rpc") / "libggml-rpc.so")]
    assert rows["metal"]["missing"][0]["what"] == "macOS"
    assert (rows["openvino"]["kind"], rows["openvino"]["buildable"]) == ("ENCODER", False)
    table = backends("list").stdout.splitlines()
    assert table[0].split() == ["backend", "kind", "here", "proven", "description"]
    assert any(line.startswith("cpu ") and " yes " in line for line in table)


@pytest.mark.parametrize(
    ("arguments", "env", "told"),
    [
        (["abacus"], {}, "there is no backend 'abacus' to build; there are blas, "),
        (["rpc"], {"PATH": "/nonexistent"}, "No C compiler was found"),
        (["musa"], {"MUSA_PATH": ""}, "(no program mcc on PATH"),
        (["cann"], {"ASCEND_TOOLKIT_HOME": ""}, "2 things are missing. (1) CANN's environment"),
        (["openvino"], {}, "no plugin to compile"),
        (["rpc", "--into", "/proc/version/plugins"], {}, "cannot be written to"),
        (["rpc"], {"WHISPYX_CACHE": "/proc/version/cache"}, "cannot be written to"),
        (["rpc", "--set", "GGML_BACKEND_DL=OFF"], {}, "GGML_BACKEND_DL cannot be set"),
        (["rpc", "--set", "WHISPYX_BASE=x"], {}, "WHISPYX_BASE cannot be set"),
        (["rpc", "--set", "A B=1"], {}, "not the name of a CMake option"),
        (["rpc"], {"WHISPYX_BUILD_JOBS": "many"}, "WHISPYX_BUILD_JOBS must be"),
    ],
)
def test_what_cannot_be_built_is_told_before_anything_is_fetched(
    tmp_path: Path, arguments: list[str], env: dict[str, str], told: str
) -> None:
    done = backends("build", *arguments, **{"WHISPYX_CACHE": str(tmp_path / "cache"), **env})
    assert done.returncode == 4
    assert told in done.stderr
    assert not list(tmp_path.rglob("ggml-*"))


@pytest.mark.parametrize(
    "arguments", [["rpc", "--set", "x"], ["rpc", "--set", "=x"], ["rpc", "--jobs", "0"], ["rpc", "--into", " "], []]
)
def test_wrong_usage_is_told(arguments: list[str]) -> None:
    assert backends("build", *arguments).returncode == 2
    assert backends("remove", "rpc", "--from", "").returncode == 2


def test_one_that_cannot_be_built_does_not_stop_the_others(built: Callable[[str], Path], tmp_path: Path) -> None:
    built("rpc")
    done = backends("build", "abacus", "rpc", "--into", str(tmp_path))
    assert done.returncode == 4
    assert (tmp_path / "libggml-rpc.so").is_file()


def test_without_network_the_message_says_what_to_do(tmp_path: Path) -> None:
    hidden = without_packages(tmp_path / "hidden", "cmake", "ninja")
    env = {
        "PATH": compilers_alone(tmp_path / "bin"),
        "PYTHONPATH": os.pathsep.join([hidden, str(PARENT)]),
        "WHISPYX_CACHE": str(tmp_path / "cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
    }
    done = backends("build", "rpc", **env)
    assert done.returncode == 4
    assert "cmake>=3.18 is needed to build and could not be fetched with pip" in done.stderr
    assert "whispyx[build]" in done.stderr
    done = backends("build", "rpc", **env, WHISPYX_BUILD_OFFLINE="1")
    assert done.returncode == 4
    assert "WHISPYX_BUILD_OFFLINE=1 forbids to fetch it" in done.stderr


def test_a_failed_compilation_names_its_log(built: Callable[[str], Path], tmp_path: Path) -> None:
    built("rpc")
    tree = tmp_path / "ggml"
    shutil.copytree(vendor.VENDOR / "ggml", tree)
    source = tree / "src" / "ggml-rpc" / "ggml-rpc.cpp"
    source.write_text("#error this cannot be compiled\n" + source.read_text("utf-8"), encoding="utf-8")
    env = {"WHISPYX_GGML_SOURCE": str(tree), "WHISPYX_CACHE": str(tmp_path / "cache")}
    done = backends("build", "rpc", "--into", str(tmp_path / "plugins"), **env)
    assert done.returncode == 4
    (log,) = tmp_path.glob("cache/backends/build/rpc-*.log")
    assert f"all that was printed is in {log}" in done.stderr
    assert "this cannot be compiled" in log.read_text("utf-8")
    assert list((tmp_path / "plugins").iterdir()) == []


def test_a_second_build_waits_for_the_first(built: Callable[[str], Path], tmp_path: Path) -> None:
    built("rpc")
    cache = tmp_path / "a cäche"  # everything is compiled in there: blanks and other letters must do no harm
    lock = cache / "backends" / ".lock"
    lock.parent.mkdir(parents=True)
    command = [sys.executable, "-m", "whispyx", "backends", "build", "rpc", "--into", str(tmp_path / "plugins")]
    env = {**os.environ, "PYTHONPATH": str(PARENT), "WHISPYX_CACHE": str(cache)}
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as waiting:
            assert waiting.stderr is not None
            assert "waiting for another build" in waiting.stderr.readline()
            assert not (tmp_path / "plugins" / "libggml-rpc.so").exists()
            fcntl.flock(held, fcntl.LOCK_UN)
            _, said = waiting.communicate(timeout=1200)
    assert waiting.returncode == 0, said
    assert (tmp_path / "plugins" / "libggml-rpc.so").is_file()


def test_ctrl_c_ends_the_build_and_its_compilers_and_leaves_nothing(
    built: Callable[[str], Path], tmp_path: Path
) -> None:
    built("rpc")
    into = tmp_path / "plugins"
    command = [sys.executable, "-m", "whispyx", "backends", "build", "rpc", "--into", str(into)]
    env = {**os.environ, "PYTHONPATH": str(PARENT), "WHISPYX_CACHE": str(tmp_path / "cache")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    ) as building:
        assert building.stderr is not None
        while "compiling" not in (line := building.stderr.readline()):
            assert line, "the build ended before it compiled"
        os.killpg(building.pid, signal.SIGINT)  # as a terminal does: all of them get it
        printed, said = building.communicate(timeout=60)
    assert (building.returncode, printed) == (130, "")
    assert said.strip().splitlines()[-1] == "whispyx: interrupted"
    assert "Traceback" not in said
    deadline = time.monotonic() + 30
    while _is_alive(building.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _is_alive(building.pid), "a compiler goes on"
    assert list(into.iterdir()) == []


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_installation_without_cmake_and_source_builds_with_its_kit(
    tmp_path: Path, lacking: Callable[[str], NoReturn]
) -> None:
    # As after `pip install whispyx` from a wheel: the package alone, a compiler, and an index to fetch from.
    site = tmp_path / "site"
    shutil.copytree(
        PARENT / "whispyx", site / "whispyx", ignore=shutil.ignore_patterns("*.pyx", "*.pxd", "__pycache__")
    )
    for name, source in kit_files().items():
        install_file(source, site / "whispyx" / "_native" / name)
    hidden = without_packages(tmp_path / "hidden", "cmake", "ninja")
    env = {
        "PATH": compilers_alone(tmp_path / "bin"),
        "PYTHONPATH": os.pathsep.join([hidden, str(site)]),
        "WHISPYX_CACHE": str(tmp_path / "cache"),
        "WHISPYX_PLUGIN_HOME": str(tmp_path / "home"),
    }
    environment = {**{k: v for k, v in os.environ.items() if not k.startswith("WHISPYX_")}, **env}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=1800)

    def held() -> list[Path]:
        return sorted(path for path in site.rglob("*") if "__pycache__" not in path.parts)

    before = held()
    done = run("-B", "-m", "whispyx", "backends", "build", "blas")
    if "could not be fetched" in done.stderr:
        lacking(f"no package index: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert "getting ninja" in done.stderr and "getting ggml's source" in done.stderr
    assert "blas: it works; WHISPYX_BACKEND=blas chooses it" in done.stderr
    (made,) = done.stdout.splitlines()
    assert Path(made).parent.parent == tmp_path / "home"
    assert held() == before, "an installation does not change"
    shown = json.loads(run("-B", "-m", "whispyx.plugins", "--json", "--backend", "blas").stdout)
    assert shown["ggml_base"].startswith(str(site))
    assert [device["plugin_path"] for device in shown["devices"] if device["backend"] == "blas"] == [made]


def test_the_kit_has_every_module_that_it_imports() -> None:
    carried = {name.removeprefix("kit/") for name in kit_files()}
    for name in carried:
        if name.endswith(".py"):
            for line in (ROOT / name).read_text("utf-8").splitlines():
                if line.startswith("from tools.build import"):
                    words = line.partition(" import ")[2].replace(",", " ").split()
                    for word in words:
                        if (ROOT / "tools" / "build" / f"{word}.py").is_file():
                            assert f"tools/build/{word}.py" in carried, f"{name} imports {word}"
                elif line.startswith("from tools.build."):
                    assert f"tools/build/{line.split()[1].rpartition('.')[2]}.py" in carried, f"{name}: {line}"
