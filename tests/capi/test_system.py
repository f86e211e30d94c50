"""Version, system information, the log, timings and the micro-benchmarks."""

from __future__ import annotations

import importlib.util
import logging
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.capi.conftest import ROOT, SOUND, quick
from whispyx import capi
from whispyx._core import devices, microbench
from whispyx.errors import ParamsError


def test_version_is_that_of_the_header() -> None:
    assert capi.whisper_version() == "1.8.5"


def test_system_info_names_device_variant_and_features() -> None:
    line = capi.whisper_print_system_info()
    installed = importlib.util.find_spec("openvino") is not None
    assert line.startswith(f"WHISPER : COREML = 0 | OPENVINO = {installed:d} | ")
    cpu = devices.cpu_device()
    assert "CPU : " in line
    assert f"DEVICE = {cpu.name} ({cpu.description.strip()})" in line
    for name, value in cpu.features().items():
        assert f"{name} = {value}" in line
    assert cpu.features(), "the CPU plugin says nothing about itself"
    assert "\n" not in line


@pytest.fixture
def lines() -> Iterator[list[tuple[int, str, object]]]:
    got: list[tuple[int, str, object]] = []
    capi.whisper_log_set(lambda level, text, data: got.append((level, text, data)), "my data")
    yield got
    capi.whisper_log_set(None, None)


def test_log_lines_go_to_the_callback(lines: list[tuple[int, str, object]], tmp_path: Path) -> None:
    assert capi.whisper_init_from_file(str(tmp_path / "missing.bin")) is None
    errors = [(text, data) for level, text, data in lines if level == capi.GGML_LOG_LEVEL_ERROR]
    assert len(errors) == 1
    assert "missing.bin" in errors[0][0] and errors[0][0].endswith("\n") and errors[0][1] == "my data"


def test_levels_are_those_of_ggml(lines: list[tuple[int, str, object]]) -> None:
    logger = logging.getLogger("whispyx.core")
    logger.debug("a")
    logger.info("b")
    logger.warning("c")
    logger.error("d")
    assert [(level, text) for level, text, _ in lines] == [(1, "a\n"), (2, "b\n"), (3, "c\n"), (4, "d\n")]
    assert all(isinstance(level, capi.ggml_log_level) for level, _, _ in lines)


def test_while_a_callback_is_set_nothing_goes_elsewhere(lines: list[tuple[int, str, object]]) -> None:
    class Rest(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            elsewhere.append(record.getMessage())

    elsewhere: list[str] = []
    rest = Rest()
    logging.getLogger().addHandler(rest)
    try:
        logging.getLogger("whispyx.core").error("secret")
        assert (elsewhere, lines[-1][1]) == ([], "secret\n")
        capi.whisper_log_set(None, None)
        logging.getLogger("whispyx.core").error("public")
        assert (elsewhere, len(lines)) == (["public"], 1)
    finally:
        logging.getLogger().removeHandler(rest)


def test_a_second_callback_replaces_the_first(lines: list[tuple[int, str, object]]) -> None:
    second: list[str] = []
    capi.whisper_log_set(lambda level, text, data: second.append(text), None)
    logging.getLogger("whispyx.core").error("once")
    assert (second, lines) == (["once\n"], [])


def test_none_restores_what_was_there_before() -> None:
    logger = logging.getLogger("whispyx")
    before = (logger.level, logger.propagate, list(logger.handlers))
    for _ in range(2):
        capi.whisper_log_set(lambda *_: None, None)
        capi.whisper_log_set(lambda *_: None, None)
        capi.whisper_log_set(None, None)
        capi.whisper_log_set(None, None)
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_a_log_callback_that_fails_is_reported_and_stops_nothing(capsys: pytest.CaptureFixture[str], ctx: Any) -> None:
    def fail(level: int, text: str, data: object) -> None:
        raise RuntimeError("a bad sink")

    capi.whisper_log_set(fail, None)
    try:
        assert capi.whisper_full(ctx, quick(language="klingon"), SOUND, 16000) == -3
    finally:
        capi.whisper_log_set(None, None)
    assert "a bad sink" in capsys.readouterr().err
    with pytest.raises(TypeError):
        capi.whisper_log_set("no function", None)  # type: ignore[arg-type]


def test_without_a_log_the_reasons_go_to_standard_error(model: Path) -> None:
    code = """
import logging, sys
from whispyx import capi
assert capi.whisper_init_from_file("missing-1.bin") is None
ctx = capi.whisper_init_from_file(sys.argv[1])
capi.whisper_print_timings(ctx)
capi.whisper_log_set(lambda *_: None, None)
assert capi.whisper_init_from_file("missing-2.bin") is None
capi.whisper_print_timings(ctx)
capi.whisper_log_set(None, None)
logging.basicConfig(filename=sys.argv[2])
assert capi.whisper_init_from_file("missing-3.bin") is None
"""
    with tempfile.NamedTemporaryFile("r") as log:
        done = subprocess.run(
            [sys.executable, "-c", code, str(model), log.name], capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr
        assert "missing-1" in done.stderr and "missing-2" not in done.stderr and "missing-3" not in done.stderr
        assert done.stderr.count("load time") == 1
        assert "missing-3" in log.read()


def test_m4_timings_are_the_callers_own_and_count_stages(ctx: Any) -> None:
    first = capi.whisper_get_timings(ctx)
    assert first == capi.whisper_timings()
    assert capi.whisper_full(ctx, quick(), SOUND, 16000) == 0
    second = capi.whisper_get_timings(ctx)
    assert second is not None and second is not capi.whisper_get_timings(ctx)
    assert second.encode_ms > 0 and second.decode_ms > 0 and second.sample_ms > 0
    assert first == capi.whisper_timings()
    capi.whisper_reset_timings(ctx)
    assert capi.whisper_get_timings(ctx) == capi.whisper_timings()


def test_timings_are_means_over_the_runs_of_a_stage(ctx: Any) -> None:
    assert capi.whisper_pcm_to_mel(ctx, SOUND, len(SOUND), 1) == 0
    for n_tokens, name in ((1, "decode_ms"), (5, "batchd_ms"), (20, "prompt_ms")):
        capi.whisper_reset_timings(ctx)
        start = time.perf_counter()
        for _ in range(3):
            assert capi.whisper_encode(ctx, 0, 1) == 0
            assert capi.whisper_decode(ctx, [50258] * n_tokens, n_tokens, 0, 1) == 0
        spent = 1e3 * (time.perf_counter() - start)
        timings = capi.whisper_get_timings(ctx)
        assert timings is not None
        assert getattr(timings, name) > 0
        others = {"decode_ms", "batchd_ms", "prompt_ms", "sample_ms"} - {name}
        assert all(getattr(timings, other) == 0 for other in others)
        # per encoder run, and per token
        assert 3 * timings.encode_ms + 3 * n_tokens * getattr(timings, name) <= spent


def test_timings_add_up_over_runs(ctx: Any, lines: list[tuple[int, str, object]]) -> None:
    def told(stage: str) -> int:
        lines.clear()
        capi.whisper_print_timings(ctx)
        line = next(text for _, text, _ in lines if text.startswith(f"{stage} time"))
        return int(line.split("/")[1].split()[0])

    assert capi.whisper_full(ctx, quick(), SOUND, 16000) == 0
    once = told("encode")
    assert once > 0
    assert capi.whisper_full(ctx, quick(), SOUND, 16000) == 0
    assert told("encode") == 2 * once


def test_print_timings_logs_every_stage(ctx: Any, lines: list[tuple[int, str, object]]) -> None:
    capi.whisper_print_timings(ctx)
    text = "".join(line for _, line, _ in lines)
    for word in ("load", "fallbacks", "mel", "sample", "encode", "decode", "batchd", "prompt", "total"):
        assert f"{word} time" in text or (word == "fallbacks" and "fallbacks" in text)
    assert {level for level, _, _ in lines} == {capi.GGML_LOG_LEVEL_INFO}


def test_b29_samplings_are_counted_with_the_greedy_strategy_too(ctx: Any, lines: list[tuple[int, str, object]]) -> None:
    assert capi.whisper_full(ctx, quick(), SOUND, 16000) == 0
    capi.whisper_print_timings(ctx)
    line = next(text for _, text, _ in lines if text.startswith("sample time"))
    assert int(line.split("/")[1].split()[0]) > 1


# The benchmarks themselves take minutes; these are their parts with small sizes.


def test_copies_are_measured_for_every_number_of_threads() -> None:
    rates = microbench.memcpy_rates(2, n_bytes=10_000_001, n_repeats=2)
    assert [name for name, _ in rates] == ["heat-up", "1 thread", "1 thread", "2 threads"]
    assert all(0.01 < rate < 10_000 for _, rate in rates)


def test_a_rate_is_bytes_by_time() -> None:
    start = time.perf_counter()
    rates = microbench.memcpy_rates(1, n_bytes=50_000_000, n_repeats=4)
    spent = time.perf_counter() - start
    told = sum(n * 50_000_000 / (rate * 1e9) for (_, rate), n in zip(rates, (1, 4, 4), strict=True))
    assert 0.001 * spent < told <= spent  # a wrong unit is 1000 times off; the rest is making and adding up memory


def test_ctrl_c_stops_a_benchmark() -> None:
    # Whoever runs the tests in the background may have Ctrl-C ignored, which a child inherits.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from whispyx import capi; print('start', flush=True); capi.whisper_bench_ggml_mul_mat_str(1)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "start\n"
    time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors and child.returncode != 0


@pytest.mark.parametrize("kind", microbench.MUL_MAT_TYPES)
def test_products_are_measured_for_every_type(kind: str) -> None:
    devices_known = capi.whisper_print_system_info()  # loads the plugins
    assert devices_known
    gflops, runs = microbench.mul_mat_rate(kind, 64, 1, max_runs=5, max_seconds=10.0)
    assert gflops > 0 and runs == 5
    assert microbench.mul_mat_rate(kind, 64, 1, max_runs=100, max_seconds=0.0)[1] == 3


def test_reports_have_a_line_for_each_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microbench, "memcpy_rates", lambda n: [("heat-up", 1.0), (f"{n} threads", 2.5)])
    assert capi.whisper_bench_memcpy_str(4).splitlines() == [
        "memcpy:     1.00 GB/s (heat-up)",
        "memcpy:     2.50 GB/s (4 threads)",
    ]
    asked = []
    monkeypatch.setattr(microbench, "mul_mat_rate", lambda kind, n, t: asked.append((kind, n, t)) or (n / 10, 7))
    report = capi.whisper_bench_ggml_mul_mat_str(2).splitlines()
    kinds = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "f16", "f32")
    assert asked == [(kind, n, 2) for n in (64, 128, 256, 512, 1024, 2048, 4096) for kind in kinds]
    assert report[0].startswith("  64 x   64: q4_0     6.4 GFLOPS (  7 runs) | q4_1")
    assert sum("409.6 GFLOPS" in line for line in report) == 2


def test_reports_can_be_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(microbench, "memcpy_rates", lambda n: [("heat-up", 1.0)])
    monkeypatch.setattr(microbench, "mul_mat_rate", lambda kind, n, t: (1.0, 3))
    assert capi.whisper_bench_memcpy(1) == 0
    assert "GB/s" in capsys.readouterr().err
    assert capi.whisper_bench_ggml_mul_mat(1) == 0
    assert "GFLOPS" in capsys.readouterr().err


@pytest.mark.parametrize("n", [0, -1, 513])
def test_impossible_thread_counts_are_refused(n: int) -> None:
    for bench in (
        capi.whisper_bench_memcpy,
        capi.whisper_bench_memcpy_str,
        capi.whisper_bench_ggml_mul_mat,
        capi.whisper_bench_ggml_mul_mat_str,
    ):
        with pytest.raises(ParamsError, match="n_threads"):
            bench(n)


def test_a_matrix_that_does_not_fit_the_types_is_refused() -> None:
    for n in (0, 33, -32, 1 << 20):
        with pytest.raises(ParamsError):
            microbench.mul_mat_rate("q4_0", n, 1)
    with pytest.raises(ParamsError, match="q9_9"):
        microbench.mul_mat_rate("q9_9", 64, 1)
