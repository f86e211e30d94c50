"""A bad plugin costs its user one clear sentence, never the process, and never a silent change of backend."""

from __future__ import annotations

import os
import random
import shutil
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.plugins.toolkit import SOURCES, Compiler, ask
from whispyx.plugins import elf

Maker = Callable[[Compiler, Path], object]


@dataclass(frozen=True)
class Case:
    make: Maker
    error: str
    reason: str


def odd(*flags: str) -> Maker:
    return lambda compiler, folder: compiler.odd(folder, *flags)


def text_file(compiler: Compiler, folder: Path) -> None:
    (folder / "libggml-odd.so").write_text("not a library\n")


def empty_file(compiler: Compiler, folder: Path) -> None:
    (folder / "libggml-odd.so").touch()


def directory(compiler: Compiler, folder: Path) -> None:
    (folder / "libggml-odd.so").mkdir()


def dangling_link(compiler: Compiler, folder: Path) -> None:
    (folder / "libggml-odd.so").symlink_to(folder / "nowhere.so")


def pipe(compiler: Compiler, folder: Path) -> None:
    os.mkfifo(folder / "libggml-odd.so")


def half_a_library(compiler: Compiler, folder: Path) -> None:
    path = compiler.odd(folder)
    os.truncate(path, path.stat().st_size // 3)


def for_another_processor(compiler: Compiler, folder: Path) -> None:
    path = compiler.odd(folder)
    with path.open("r+b") as file:
        file.seek(18)  # e_machine
        file.write(struct.pack("=H", 0x1234))


def with_missing_dependency(compiler: Compiler, folder: Path) -> None:
    elsewhere = folder / "gone"
    (folder / "dependency.c").write_text("int odd_dependency(void) { return 1; }\n")
    compiler.library(elsewhere / "libodd-dependency.so", [folder / "dependency.c"], ["-fvisibility=default"])
    compiler.odd(folder, "-DODD_NEEDS", f"-L{elsewhere}", "-lodd-dependency")
    shutil.rmtree(elsewhere)


def linked_to_another_ggml(compiler: Compiler, folder: Path) -> None:
    elsewhere = folder / "upstream"
    (folder / "dependency.c").write_text("int odd_dependency(void) { return 1; }\n")
    compiler.library(elsewhere / "libggml-base.so", [folder / "dependency.c"], ["-fvisibility=default"])
    compiler.odd(folder, "-DODD_NEEDS", f"-L{elsewhere}", "-lggml-base", f"-Wl,-rpath,{elsewhere}")


CASES = {
    "a text file": Case(text_file, "BackendLoadError", "not a shared library"),
    "an empty file": Case(empty_file, "BackendLoadError", "not a shared library"),
    "a directory": Case(directory, "BackendLoadError", "is a directory"),
    "a dangling link": Case(dangling_link, "BackendLoadError", "no such file"),
    "a pipe": Case(pipe, "BackendLoadError", "not a regular file"),
    "half a library": Case(half_a_library, "BackendLoadError", "truncated"),
    "another processor": Case(for_another_processor, "BackendLoadError", "another kind of processor"),
    "a missing dependency": Case(with_missing_dependency, "BackendLoadError", "libodd-dependency.so"),
    "an undefined function": Case(odd("-DODD_CALLS_NOWHERE"), "BackendLoadError", "function_that_exists_nowhere"),
    "no init function": Case(odd("-DODD_NO_INIT"), "BackendLoadError", "ggml_backend_init"),
    "an older interface": Case(odd("-DODD_API_VERSION=1"), "BackendAbiError", "version 1"),
    "a newer interface": Case(odd("-DODD_API_VERSION=3"), "BackendAbiError", "version 3"),
    "an older ggml": Case(odd('-DODD_GGML_VERSION="0.9.4"'), "BackendAbiError", "built from ggml 0.9.4"),
    "another ggml's base": Case(linked_to_another_ggml, "BackendAbiError", "libggml-base.so"),
    "a ggml inside": Case(odd("-DODD_OWN_GGML"), "BackendAbiError", "a ggml of its own"),
    "score 0": Case(odd("-DODD_SCORE=0"), "BackendUnsupportedError", "does not support this machine"),
    "init returning NULL": Case(odd("-DODD_INIT_NULL"), "BackendLoadError", "refused to start"),
    "no device": Case(odd("-DODD_DEVICES=0"), "BackendUnsupportedError", "no device"),
    "a NULL device": Case(odd("-DODD_NULL_DEVICE"), "BackendLoadError", "NULL"),
    "a device half made": Case(odd("-DODD_SUPPORTS_OP=NULL"), "BackendLoadError", "leaves a function unset"),
    "a registration half made": Case(odd("-DODD_REG_DEVICE=NULL"), "BackendLoadError", "leaves a registration"),
    "an unknown kind of device": Case(odd("-DODD_KIND=77"), "BackendLoadError", "unknown type"),
    "two devices of one name": Case(odd("-DODD_DEVICES=2"), "BackendLoadError", "already has one of that name"),
}


@pytest.fixture(params=CASES, ids=lambda name: name.replace(" ", "-"))
def case(request: pytest.FixtureRequest, compiler: Compiler, tmp_path: Path) -> Case:
    chosen = CASES[request.param]
    chosen.make(compiler, tmp_path)
    return chosen


def test_a_bad_plugin_that_nobody_asked_for_is_recorded_and_the_cpu_works(case: Case, tmp_path: Path) -> None:
    result = ask(
        "first = attempt()\nagain = attempt()\nanswer([first, again, found()])",
        env={"WHISPYX_BACKEND_PATH": str(tmp_path)},
    )
    first, again, records = result
    assert first == {"selected": None, "loaded": ["cpu"]} == again
    (record,) = [r for r in records if r["file"] == "libggml-odd.so"]
    assert record["status"] == "refused"
    assert case.reason in record["reason"]
    assert "\n" not in record["reason"]
    assert record["devices"] == []


def test_a_bad_plugin_named_in_the_environment_is_an_error_that_names_it(case: Case, tmp_path: Path) -> None:
    result = ask(
        "first = attempt()\nagain = attempt()\nanswer([first, again])",
        env={"WHISPYX_BACKEND_PATH": str(tmp_path), "WHISPYX_BACKEND": "odd"},
    )
    for outcome in result:
        assert case.error in outcome["kinds"]
        assert "BackendError" in outcome["kinds"]
        assert "'odd'" in outcome["error"]
        assert str(tmp_path / "libggml-odd.so") in outcome["error"]
        assert case.reason in outcome["error"]


def test_a_bad_plugin_named_by_path_is_an_error_that_names_it(case: Case, tmp_path: Path) -> None:
    path = str(tmp_path / "libggml-odd.so")
    by_variable = ask("answer(attempt())", env={"WHISPYX_BACKEND": path})
    by_argument = ask("answer(attempt(sys.argv[1]))", path)
    for outcome in (by_variable, by_argument):
        assert case.error in outcome["kinds"]
        assert path in outcome["error"]
        assert case.reason in outcome["error"]


def test_the_sound_variant_of_the_odd_plugin_loads(compiler: Compiler, tmp_path: Path) -> None:
    """The other tests prove nothing unless the same source without the fault is accepted."""
    compiler.odd(tmp_path)
    outcome, records = ask(
        "answer([attempt(), found()])", env={"WHISPYX_BACKEND_PATH": str(tmp_path), "WHISPYX_BACKEND": "odd"}
    )
    assert outcome == {"selected": ["Odd", "CPU"], "loaded": ["odd", "cpu"]}
    assert records[0]["notes"] == ["ggml version not stated", "score not stated"]


def test_a_file_that_may_not_be_read_is_refused(compiler: Compiler) -> None:
    """The child gives up its rights first, since root may read everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        compiler.odd(folder).chmod(0)
        # A file that is refused by its bytes imports all that a refusal needs: the environment that runs the tests may
        # be out of reach for the child without its rights.
        (folder / "libggml-noise.so").write_bytes(b"\x7fELF and no more")
        outcome = ask(
            "attempt(sys.argv[1])\nif os.geteuid() == 0: os.seteuid(65534)\nanswer(attempt(sys.argv[2]))",
            str(folder / "libggml-noise.so"),
            str(folder / "libggml-odd.so"),
        )
    assert "BackendLoadError" in outcome["kinds"]
    assert "Permission denied" in outcome["error"]


def test_random_bytes_are_refused_and_do_not_crash(tmp_path: Path) -> None:
    source = random.Random(20261129)
    for i in range(40):
        start = b"" if i % 2 else b"\x7fELF\x02\x01\x01\x00"
        (tmp_path / f"libggml-noise{i}.so").write_bytes(start + source.randbytes(source.randrange(1, 5000)))
    outcome, records = ask("answer([attempt(), found()])", env={"WHISPYX_BACKEND_PATH": str(tmp_path)})
    assert outcome == {"selected": None, "loaded": ["cpu"]}
    noise = [r for r in records if r["name"].startswith("noise")]
    assert len(noise) == 40
    assert {r["status"] for r in noise} == {"refused"}


def test_a_library_cut_off_anywhere_is_refused_and_does_not_crash(compiler: Compiler, tmp_path: Path) -> None:
    whole = compiler.odd(tmp_path / "whole").read_bytes()
    # What lies behind the last segment (section headers, symbols for debuggers) is not needed for running.
    needed = last_byte_of_segments(whole)
    lengths = [*range(0, 70, 7), *range(100, needed, max(1, needed // 40)), needed - 1]
    cut = tmp_path / "cut"
    cut.mkdir()
    for length in lengths:
        (cut / f"libggml-cut{length}.so").write_bytes(whole[:length])
    outcome, records = ask("answer([attempt(), found()])", env={"WHISPYX_BACKEND_PATH": str(cut)})
    assert outcome == {"selected": None, "loaded": ["cpu"]}
    assert len([r for r in records if r["name"].startswith("cut")]) == len(set(lengths))
    assert {r["status"] for r in records if r["name"].startswith("cut")} == {"refused"}


def last_byte_of_segments(library: bytes) -> int:
    """From the ELF header by the offsets of the specification, not by our own reader."""
    table, size, count = struct.unpack_from("=Q14xHH", library, 32)
    ends = [0]
    for i in range(count):
        kind, offset, length = struct.unpack_from("=I4xQ16xQ", library, table + i * size)
        if kind == 1:
            ends.append(offset + length)
    return max(ends)


def test_the_same_plugin_listed_twice_is_loaded_once(compiler: Compiler, tmp_path: Path) -> None:
    path = compiler.odd(tmp_path)
    result = ask("answer([attempt(), attempt(), len(table.devices())])", env={"WHISPYX_BACKEND": f"{path},{path}"})
    expected = {"selected": ["Odd", "CPU"], "loaded": ["odd", "cpu"]}
    assert result == [expected, expected, 2]


def test_a_copy_in_a_second_folder_is_not_loaded_too(compiler: Compiler, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    shutil.copy(compiler.odd(first), second)
    outcome, records = ask(
        "answer([attempt(), found()])", env={"WHISPYX_BACKEND_PATH": os.pathsep.join([str(first), str(second)])}
    )
    assert outcome["loaded"] == ["odd", "cpu"]
    by_path = {r["path"]: r["status"] for r in records}
    assert by_path[str(first / "libggml-odd.so")] == "loaded"
    assert by_path[str(second / "libggml-odd.so")] == "outscored"


def test_a_second_file_of_a_loaded_name_is_an_error(compiler: Compiler, tmp_path: Path) -> None:
    first = compiler.odd(tmp_path / "first")
    second = compiler.odd(tmp_path / "second", '-DODD_DEVICE_NAME="Other"')
    loaded, refused = ask("answer([attempt(sys.argv[1]), attempt(sys.argv[2])])", str(first), str(second))
    assert loaded["selected"] == ["Odd", "CPU"]
    assert "BackendError" in refused["kinds"]
    assert str(first) in refused["error"]
    assert "already loaded" in refused["error"]


def test_one_file_under_two_names_is_one_plugin(compiler: Compiler, tmp_path: Path) -> None:
    path = compiler.odd(tmp_path)
    (tmp_path / "libggml-twin.so").symlink_to(path)
    _, records = ask("answer([attempt(), found()])", env={"WHISPYX_BACKEND_PATH": str(tmp_path)})
    by_name = {r["name"]: r for r in records}
    assert by_name["odd"]["status"] == "loaded"
    assert by_name["twin"]["status"] == "refused"
    assert "the same library as plugin 'odd'" in by_name["twin"]["reason"]


def test_a_device_name_that_is_taken_is_refused(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path, name="aaa")
    compiler.odd(tmp_path, name="bbb")
    _, records = ask("answer([attempt(), found()])", env={"WHISPYX_BACKEND_PATH": str(tmp_path)})
    by_name = {r["name"]: r for r in records}
    assert by_name["aaa"]["devices"] == ["Odd"]
    assert by_name["bbb"]["status"] == "refused"
    assert "'Odd'" in by_name["bbb"]["reason"]


def test_a_plugin_that_poses_as_the_cpu_does_not_replace_it(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path, "-DODD_KIND=GGML_BACKEND_DEVICE_TYPE_CPU", name="aaa")
    result = ask(
        "attempt()\nanswer([table.cpu_device().backend, [d.name for d in table.select()]])",
        env={"WHISPYX_BACKEND_PATH": str(tmp_path)},
    )
    assert result == ["cpu", ["CPU"]]


def test_a_plugin_that_takes_the_name_of_the_cpu_device_is_refused(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path, '-DODD_DEVICE_NAME="CPU"', name="aaa")
    outcome, records = ask("answer([attempt(), found()])", env={"WHISPYX_BACKEND_PATH": str(tmp_path)})
    assert outcome["loaded"] == ["cpu"]
    assert records[0]["status"] == "refused"
    assert "'CPU'" in records[0]["reason"]


def test_when_the_best_variant_fails_to_start_the_next_one_is_used(compiler: Compiler, tmp_path: Path) -> None:
    compiler.odd(tmp_path, "-DODD_SCORE=9", "-DODD_INIT_NULL", tag="best")
    compiler.odd(tmp_path, "-DODD_SCORE=5", tag="good")
    compiler.odd(tmp_path, "-DODD_SCORE=0", tag="other")
    environment = {"WHISPYX_BACKEND_PATH": str(tmp_path)}
    outcome, records = ask("answer([attempt(), found()])", env=environment)
    assert outcome["loaded"] == ["odd", "cpu"]
    assert {r["file"]: r["status"] for r in records if r["name"] == "odd"} == {
        "libggml-odd-best.so": "refused",
        "libggml-odd-good.so": "loaded",
        "libggml-odd-other.so": "refused",
    }
    # Asked for by name it is an error: the user shall know that the plugin does not do what it could.
    outcome = ask("attempt()\nanswer(attempt())", env={**environment, "WHISPYX_BACKEND": "odd"})
    assert "BackendLoadError" in outcome["kinds"]
    assert "libggml-odd-best.so" in outcome["error"]


def test_init_runs_for_the_chosen_variant_only(compiler: Compiler, tmp_path: Path) -> None:
    """Each variant counts its starts in a file; starting a backend can claim a device, so the losers must not."""
    source = tmp_path / "counting.c"
    source.write_text(
        '#include <stdio.h>\n#define ggml_backend_init inner_init\n#include "odd.c"\n#undef ggml_backend_init\n'
        "EXPORT ggml_backend_reg_t ggml_backend_init(void) {\n"
        '    FILE * log = fopen(LOG, "a"); fputs(TAG "\\n", log); fclose(log);\n    return inner_init();\n}\n'
    )
    for tag, score in (("low", 1), ("high", 7), ("middle", 3)):
        flags = [f"-I{SOURCES}", f"-DODD_SCORE={score}", f'-DLOG="{tmp_path}/starts"', f'-DTAG="{tag}"']
        compiler.library(tmp_path / f"libggml-odd-{tag}.so", [source], flags)
    environment = {"WHISPYX_BACKEND_PATH": str(tmp_path)}
    ask("answer([attempt(), attempt('odd'), attempt()])", env=environment)
    assert (tmp_path / "starts").read_text() == "high\n"


def test_what_the_engine_said_last_is_part_of_the_error(compiler: Compiler, tmp_path: Path) -> None:
    path = compiler.odd(tmp_path, "-DODD_INIT_NULL", '-DODD_SAYS="no card in slot 3"')
    quiet = "import logging\nlogging.getLogger('whispyx').addHandler(logging.NullHandler())\n"
    outcome, records = ask(quiet + "answer([attempt(sys.argv[1]), found()])", str(path))
    assert outcome["error"].endswith("(engine: no card in slot 3)")
    assert outcome["error"].count("no card in slot 3") == 1
    assert records[0]["reason"].endswith("(engine: no card in slot 3)")


def test_what_a_plugin_logs_while_it_starts_goes_to_logging(compiler: Compiler, tmp_path: Path) -> None:
    path = compiler.odd(tmp_path, '-DODD_SAYS="one card found"')
    code = """
import logging
lines = []
class Keep(logging.Handler):
    def emit(self, record):
        lines.append((record.name, record.levelname, record.getMessage()))
logging.getLogger("whispyx.engine").addHandler(Keep())
attempt(sys.argv[1])
answer(lines)
"""
    assert ask(code, str(path)) == [["whispyx.engine", "WARNING", "one card found"]]


def test_elf_reader_agrees_with_the_linker_about_a_real_library(compiler: Compiler, tmp_path: Path) -> None:
    path = compiler.example(tmp_path)
    read = elf.inspect(str(path))
    assert "libwhispyx-ggml-base.so" in read.needed
    assert any(name.startswith("libc.") for name in read.needed)
    named = compiler.library(tmp_path / "named.so", [SOURCES / "odd.c"], ["-Wl,-soname,libsomething.so.3"])
    assert elf.inspect(str(named)).soname == "libsomething.so.3"
