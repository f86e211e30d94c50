"""The table of the benchmarks, from figures that were not measured."""

from __future__ import annotations

import json

import pytest

from bench import bars, report, roofline
from bench.engines import OURS, OURS_AVX2, REFERENCE, Run, all_engines
from bench.machine import Machine, regime
from whispyx._core.kernels import TYPES
from whispyx._core.packed import PLANS


@pytest.fixture
def medians() -> dict[tuple[str, str], dict[str, float]]:
    return {
        (OURS, "base"): {"encode_ms": 100.0, "token_ms": 2.0, "jfk_s": 0.15, "peak_mib": 300.0},
        (REFERENCE, "base"): {"encode_ms": 800.0, "token_ms": 4.0, "jfk_s": 1.0, "peak_mib": 200.0},
        ("OpenVINO bf16", "base"): {"jfk_s": 0.30},
        ("OpenVINO int8", "base"): {"jfk_s": 0.25},
        (OURS, ""): {"mel_ms": 1.0},
    }


def bar(begin: str) -> bars.Bar:
    return next(bar for bar in bars.BARS if bar.what.startswith(begin))


def test_a_bar_compares_with_the_best_of_several(medians: dict[tuple[str, str], dict[str, float]]) -> None:
    found = bar("end to end, jfk, base")
    assert found.value(medians) == pytest.approx(0.15 / 0.25)
    assert found.verdict(medians) == "met"


def test_verdicts_follow_bar_and_aim(medians: dict[tuple[str, str], dict[str, float]]) -> None:
    encoder = bar("encoder with cross keys and values, base")
    assert encoder.value(medians) == pytest.approx(0.125)
    assert encoder.verdict(medians) == "met"
    medians[OURS, "base"]["encode_ms"] = 80.0
    assert encoder.verdict(medians) == "aim met"
    medians[OURS, "base"]["encode_ms"] = 200.0
    assert encoder.verdict(medians) == "not met"
    assert bar("peak memory").verdict(medians) == "not met"
    assert bar("mel").verdict(medians) == "met"


def test_what_was_not_measured_is_said(medians: dict[tuple[str, str], dict[str, float]]) -> None:
    assert bar("encoder with cross keys and values, tiny.en").verdict(medians) == "not measured"
    assert bar("AVX2").value(medians) is None


def test_every_form_of_the_table_has_the_figures(medians: dict[tuple[str, str], dict[str, float]]) -> None:
    texts = {(OURS, "base", "jfk"): "And so, my fellow", (REFERENCE, "base", "jfk"): "and so my fellows"}
    found = report.Report("a title", ["base"], medians, ["a note"], ["OpenVINO: not set up"], {"jfk": 11.0}, texts)
    for text in (report.plain(found), report.markdown(found)):
        assert "800 (0.12)" in text  # whisper.cpp's figure, and ours over it
        assert "OpenVINO: not set up" in text
        assert "differ from ours: whisper.cpp 1" in text
    stored = report.as_json(found, {place: {k: [v] for k, v in row.items()} for place, row in medians.items()}, {})
    assert json.loads(json.dumps(stored))["figures"][0]["medians"]["encode_ms"] == 100.0


def test_words_differ_by_the_fewest_changes() -> None:
    assert report.distance("a b c d".split(), "a c x d".split()) == 2
    assert report.distance([], ["a", "b"]) == 2
    assert report.words("Don't, my fellow-Americans!") == ["don't", "my", "fellow", "americans"]


def test_a_token_costs_all_but_the_encoder() -> None:
    assert Run(0.5, "", 20, 100.0).per_token_ms() == pytest.approx(20.0)
    assert Run(0.5, "", 20, 100.0, n_encode=2).per_token_ms() == pytest.approx(15.0)
    assert Run(0.5, "", None, 100.0).per_token_ms() is None
    assert Run(0.5, "", 20, None, token_ms=3.0).per_token_ms() == 3.0


class Base:
    n_audio_ctx, n_audio_state, n_audio_layer, n_mels = 1500, 512, 6, 80
    n_text_state, n_text_layer, n_vocab = 512, 6, 51865


def test_operations_and_bytes_of_base_are_those_of_the_literature() -> None:
    assert roofline.encoder_ops(Base) == pytest.approx(96.8e9, rel=0.005)
    assert roofline.token_bytes(Base, "exact") == pytest.approx(117e6, rel=0.02)
    # 22 million weights of 8.5 bits, 27 million of the logits and 9 million keys and values of 8
    assert roofline.token_bytes(Base, "bf16") == pytest.approx(59e6, rel=0.02)
    for compute in ("mixed", "int8"):  # nine tenths of the vocabulary take 9 bytes for 16 numbers
        assert roofline.token_bytes(Base, compute) == pytest.approx(59e6 - 0.89 * 51865 * 512 * 7 / 16, rel=0.02)
    assert roofline.token_bytes(Base, "f32") == pytest.approx(234e6, rel=0.02)


def test_a_line_of_the_roofline_says_what_share_is_used(
    medians: dict[tuple[str, str], dict[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    number = {name: number for number, name in TYPES.items()}
    types = {**PLANS["bf16"], "scores": number["i8"], "up": number["g8"], "down": number["g8"]}
    monkeypatch.setitem(PLANS, "mixed", types)
    machine = Machine("a CPU", 2, 2, {"bf16": 1.0e12, "int8": 2.0e12}, "avx512-bf16", 50.0)
    (line,) = roofline.lines({"base": Base}, medians, machine, "mixed")
    # The perceptron's 37.7 and attention's 27.6 of 96.8 GFLOP at twice the rate.
    assert "968 GFLOP/s of 1510 (64 %)" in line
    assert "29.6 GB/s of 50 (59 %)" in line
    (line,) = roofline.lines({"base": Base}, medians, Machine("a CPU", 2, 2, {"bf16": 1.0e12}, "", 50.0), "mixed")
    assert "968 GFLOP/s;" in line  # what 8 bits would give is not known
    (line,) = roofline.lines({"base": Base}, medians, machine, "bf16")
    assert "968 GFLOP/s of 1000 (97 %)" in line
    (line,) = roofline.lines({"base": Base}, medians, machine, "int8")
    # All but the convolutions' 3.1, which are bf16.
    assert "968 GFLOP/s of 1938 (50 %)" in line


def test_regimes_have_names() -> None:
    assert regime(50.0) == "same (50 ns)"
    assert regime(190.0) == "split (190 ns)"
    assert regime(None) == "not known"


def test_engines_that_are_not_set_up_say_how(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHISPYX_PEERS", str(tmp_path))
    missing = {engine.name: engine.missing("base") for engine in all_engines("python")}
    assert missing[OURS] is None and missing[OURS_AVX2] is None
    assert missing[REFERENCE] == "python tools/peers.py --native pywhispercpp"
    assert missing["OpenVINO int8"] == "python tools/peers.py openvino-genai"
