"""The plugin that backends/README.md teaches: built out of tree, found, loaded, and made to compute."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.plugins.toolkit import EXAMPLE, ROOT, Compiler, ask

COMPUTE = f"""
sys.path.insert(0, {str(ROOT)!r})
from tests.plugins.ggml_by_hand import compute, compute_split
"""


def test_an_out_of_tree_plugin_is_found_and_loaded(example_folder: Path) -> None:
    outcome, records = ask("answer([attempt(), found()])", env={"WHISPYX_BACKEND_PATH": str(example_folder)})
    assert outcome == {"selected": None, "loaded": ["example", "cpu"]}
    record = records[0]
    assert record["path"] == str(example_folder / "libggml-example.so")
    assert record["source"] == "WHISPYX_BACKEND_PATH"
    assert record["status"] == "loaded"
    assert record["score"] == 1
    assert record["devices"] == ["Example"]
    assert record["notes"] == []


def test_its_device_says_what_the_c_source_says(example_folder: Path) -> None:
    described = ask(
        "attempt()\nd = table.select()[0]\n"
        "answer([d.name, d.description, d.kind, d.backend, d.index, d.plugin_path, d.memory(), d.features()])",
        env={"WHISPYX_BACKEND_PATH": str(example_folder)},
    )
    path = str(example_folder / "libggml-example.so")
    assert described == ["Example", "adds float32 tensors", "ACCEL", "example", 0, path, [0, 0], {"ADD": "f32"}]


def test_it_computes_what_it_says_it_can(example_folder: Path) -> None:
    a = [0.5 * i for i in range(12)]
    b = [100.0 - i for i in range(12)]
    result = ask(
        COMPUTE + "attempt()\n"
        f"answer(compute(table.base_library(), table.select()[0].plugin_path, 'add', {a}, {b}, (4, 3)))",
        env={"WHISPYX_BACKEND_PATH": str(example_folder), "WHISPYX_BACKEND": "example"},
    )
    assert result == [x + y for x, y in zip(a, b, strict=True)]


def test_it_shares_a_graph_with_the_cpu(example_folder: Path) -> None:
    n = 3
    a = [float(i) for i in range(n * n)]
    b = [float(i % 4 - 1) for i in range(n * n)]
    c = [100.0 * i for i in range(n * n)]
    product = [sum(a[n * j + k] * b[n * i + k] for k in range(n)) for i in range(n) for j in range(n)]
    result = ask(
        COMPUTE + "attempt()\npaths = [d.plugin_path for d in table.select(names=['example', 'cpu'])]\n"
        f"answer(compute_split(table.base_library(), paths, {a}, {b}, {c}, {n}))",
        env={"WHISPYX_BACKEND_PATH": str(example_folder), "WHISPYX_BACKEND": "example"},
    )
    assert result == [[x + y for x, y in zip(product, c, strict=True)], "CPU", "Example"]


RECOGNISE = f"""
sys.path.insert(0, {str(ROOT)!r})
import numpy as np
from tests.core.tiny import pair, recipe_of
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.run import full

context = Context.load(str(pair(recipe_of("f16")).path), backends=plugins.resolve(sys.argv[1]))
samples = (0.1 * np.random.default_rng(3).standard_normal(16000 * 5)).astype(np.float32)
result = full(context, context.new_state(), FullParams(temperature_inc=0.0), samples)
answer([context.devices, [token.tid for segment in result.segments for token in segment.tokens]])
"""


def test_the_recogniser_computes_on_it(compiler: Compiler, example_folder: Path, tmp_path: Path) -> None:
    """The same tokens as on the CPU alone; and others when the plugin computes wrong, so it is really asked."""
    devices, expected = ask(RECOGNISE, "cpu")
    assert devices == ["CPU"]
    assert len(expected) > 5
    plugin = str(example_folder / "libggml-example.so")
    assert ask(RECOGNISE, plugin) == [["Example", "CPU"], expected]
    source = EXAMPLE[0].read_text()
    assert source.count("a[i] + b[i]") == 1
    (tmp_path / "wrong.c").write_text(source.replace("a[i] + b[i]", "a[i] - b[i]"))
    wrong = compiler.library(tmp_path / "libggml-wrong.so", [tmp_path / "wrong.c"])
    devices, tokens = ask(RECOGNISE, str(wrong))
    assert devices == ["Example", "CPU"]
    assert tokens != expected


def test_it_refuses_what_it_cannot_compute(example_folder: Path) -> None:
    result = ask(
        COMPUTE + "attempt()\ntry:\n"
        "    compute(table.base_library(), table.select()[0].plugin_path, 'mul_mat', [1.0] * 4, [1.0] * 4, (2, 2))\n"
        "except RuntimeError as error:\n    answer(str(error))",
        env={"WHISPYX_BACKEND_PATH": str(example_folder), "WHISPYX_BACKEND": "example"},
    )
    assert result == "the device does not support mul_mat"


def test_it_stands_before_the_cpu_for_the_scheduler(example_folder: Path) -> None:
    path = str(example_folder / "libggml-example.so")
    for choice in ("example", "example:0", "cpu,example", "EXAMPLE", path):
        outcome = ask("answer(attempt(sys.argv[1]))", choice, env={"WHISPYX_BACKEND_PATH": str(example_folder)})
        assert outcome["selected"] == ["Example", "CPU"], choice
    default = ask(
        "attempt()\nanswer([d.name for d in table.select()])", env={"WHISPYX_BACKEND_PATH": str(example_folder)}
    )
    assert default == ["Example", "CPU"]


def test_the_commands_of_the_readme_build_it(compiler: Compiler, tmp_path: Path) -> None:
    """Run as written, from the top of the checkout; only the home folder is another one."""
    readme = (ROOT / "backends" / "README.md").read_text()
    (command,) = re.findall(r"^```sh\n(mkdir.*?)^```", readme, re.MULTILINE | re.DOTALL)
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-ec", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    outcome = ask("answer(attempt(sys.argv[1]))", str(tmp_path / "plugins" / "libggml-example.so"))
    assert outcome == {"selected": ["Example", "CPU"], "loaded": ["example", "cpu"]}


def test_built_for_another_ggml_it_is_refused(compiler: Compiler, tmp_path: Path) -> None:
    path = compiler.library(tmp_path / "libggml-example.so", EXAMPLE, ['-DWHISPYX_GGML_VERSION="0.20.1"'])
    outcome = ask("answer(attempt(sys.argv[1]))", str(path))
    assert "BackendAbiError" in outcome["kinds"]
    assert "0.20.1" in outcome["error"]
