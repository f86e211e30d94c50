"""`Runner`: every stage against the oracle's network, and the decoders of docs/runner.md against whole runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whispyx
from tests import data
from tests.core.tiny import pair, recipe_of
from tests.oracle import mel as oracle_mel
from tests.oracle.network import Encoded, SelfCache
from tests.oracle.tiny_model import speechlike
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx.errors import AudioError, LanguageError, ParamsError, StateError
from whispyx.runner import Runner, StageTimes, log_softmax

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "runner.md"
RECIPE = recipe_of("f32", seed=5)
SAMPLES = speechlike(8, 5)
TOLERANCE = 0.08  # of logits: caches are f16; another token moves logits by some 2.5
ENCODER_TOLERANCE = 0.02  # of encoder outputs of size 1
PROMPT = [50257, 50362, 100, 200]


@pytest.fixture(scope="module")
def model() -> Iterator[whispyx.Model]:
    with whispyx.Model(str(pair(RECIPE).path), n_threads=1) as model:
        yield model


@pytest.fixture
def runner(model: whispyx.Model) -> Iterator[Runner]:
    with Runner(model) as runner:
        runner.set_audio(SAMPLES)
        yield runner


def oracle_window(n_ctx: int | None = None, offset: int = 0) -> Encoded:
    both = pair(RECIPE)
    mel = oracle_mel.log_mel(SAMPLES, both.model.filters, both.net.dtype)
    return both.net.encode(oracle_mel.window_of(mel, offset, n_ctx or both.net.s["n_audio_ctx"]))


def truth(tokens: list[int], encoded: Encoded | None = None) -> np.ndarray:
    """Logits behind each of the tokens."""
    return np.asarray(pair(RECIPE).net.decode(tokens, encoded or oracle_window(), SelfCache()))


def close(ours: np.ndarray, theirs: np.ndarray, tolerance: float = TOLERANCE) -> bool:
    assert ours.shape == theirs.shape
    assert ours.dtype in (np.float32, np.float16)
    return float(np.abs(ours - theirs).max()) < tolerance


def page_functions() -> dict[str, Any]:
    """The functions that docs/runner.md shows."""
    if not PAGE.exists():
        pytest.skip("the tests run outside of the repository: no docs here")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        if "\ndef " in f"\n{block}":
            exec(compile(block, PAGE.name, "exec"), names)
    return names


def test_mel_is_that_of_the_paper_and_no_pad_leaves_the_silence_out(model: whispyx.Model, runner: Runner) -> None:
    expected = oracle_mel.log_mel(SAMPLES, pair(RECIPE).model.filters, np.float64)
    found = runner.mel(SAMPLES)
    assert found.shape == (runner.n_mels, len(SAMPLES) // 160 + 3000)
    n = min(found.shape[1], expected.shape[1])
    assert np.abs(found[:, :n] - expected[:, :n]).max() < 1e-3
    with Runner(model, no_pad=True) as bare:
        assert np.array_equal(bare.mel(SAMPLES), found[:, : len(SAMPLES) // 160])


def test_a_spectrogram_that_is_set_gives_what_its_audio_gives(runner: Runner) -> None:
    runner.encode()
    expected = runner.encoder_output()
    runner.set_mel(runner.mel(SAMPLES))
    runner.encode()
    assert np.array_equal(runner.encoder_output(), expected)
    assert close(expected, oracle_window().output, ENCODER_TOLERANCE)


def test_windows_begin_and_end_where_they_are_told_to(runner: Runner) -> None:
    runner.encode(offset=100, n_frames=120)
    expected = oracle_window(60, 100)
    assert close(runner.encoder_output(), expected.output, ENCODER_TOLERANCE)
    assert close(runner.prefill(PROMPT), truth(PROMPT, expected)[-1])


def test_no_pad_encodes_whole_seconds_and_no_more(model: whispyx.Model) -> None:
    with Runner(model, no_pad=True) as runner:
        assert runner.set_audio(SAMPLES[:16000]) == 99 or runner.n_frames == 100
        runner.encode()
        assert runner.encoder_output().shape[0] == 50
        runner.encode(offset=90)
        assert runner.encoder_output().shape[0] == 50


def test_cross_keys_and_values_are_those_of_the_network(runner: Runner) -> None:
    runner.encode()
    expected = oracle_window()
    for layer in range(RECIPE.n_text_layer):
        keys, values = runner.cross_kv(layer)
        assert close(keys, expected.cross_k[layer], ENCODER_TOLERANCE)
        assert close(values, expected.cross_v[layer], ENCODER_TOLERANCE)


def test_one_encoder_output_serves_other_decoders(model: whispyx.Model, runner: Runner) -> None:
    runner.encode()
    expected = runner.prefill(PROMPT)
    with Runner(model) as other:
        other.set_encoder_output(runner.encoder_output())
        assert np.abs(other.prefill(PROMPT) - expected).max() < 1e-3
        other.set_encoder_output(oracle_window().output.astype(np.float32))  # computed elsewhere
        assert close(other.prefill(PROMPT), truth(PROMPT)[-1])


def test_prompts_and_steps_give_the_logits_behind_them(runner: Runner) -> None:
    runner.encode()
    assert close(runner.prefill(PROMPT, all_logits=True), truth(PROMPT))
    assert runner.length() == 4
    assert close(runner.step(300), truth([*PROMPT, 300])[-1])
    assert close(runner.logits(), truth([*PROMPT, 300])[-1:])
    runner.drop(0, 4)
    assert close(runner.step(301), truth([*PROMPT, 301])[-1])


def test_several_sequences_advance_in_one_batch_and_take_each_others_place(runner: Runner) -> None:
    runner.reserve(3)
    runner.encode()
    runner.prefill(PROMPT)
    runner.copy_sequence(0, 1)
    runner.copy_sequence(0, 2)
    rows = runner.step([300, 301, 302], [0, 1, 2])
    assert close(rows, np.stack([truth([*PROMPT, token])[-1] for token in (300, 301, 302)]))
    runner.copy_sequence(2, 0)
    rows = runner.step([310, 311], [0, 2])
    assert close(rows, np.stack([truth([*PROMPT, 302, token])[-1] for token in (310, 311)]))
    assert [runner.length(i) for i in range(3)] == [6, 5, 6]


def test_encoding_empties_the_sequences(runner: Runner) -> None:
    runner.encode()
    runner.prefill(PROMPT)
    runner.encode(offset=10)
    assert runner.length() == 0


class OracleRunner:
    """The stages a decoder of docs/runner.md calls, on the oracle's network."""

    def __init__(self, like: Runner) -> None:
        self.like, self.encoded, self.held = like, oracle_window(), {}  # type: ignore[var-annotated]
        self.eot, self.n_vocab = like.eot, like.n_vocab
        self.prompt, self.suppress = like.prompt, like.suppress

    def reserve(self, n: int) -> None:
        self.held = {i: [] for i in range(n)}

    def _row(self, sequence: int) -> np.ndarray:
        return truth(self.held[sequence], self.encoded)[-1].astype(np.float32)

    def prefill(self, tokens: list[int]) -> np.ndarray:
        self.held[0] = list(tokens)
        return self._row(0)

    def step(self, tokens: Any, sequences: Any = 0) -> np.ndarray:
        if isinstance(tokens, int):
            return self.step([tokens], [sequences])[0]  # type: ignore[no-any-return]
        for token, sequence in zip(tokens, sequences, strict=True):
            self.held[sequence].append(token)
        return np.stack([self._row(sequence) for sequence in sequences])

    def copy_sequence(self, source: int, dest: int) -> None:
        self.held[dest] = list(self.held[source])


@pytest.mark.parametrize("name", ["greedy", "beam_search"])
def test_the_decoders_of_the_page_choose_the_same_on_the_oracle(runner: Runner, name: str) -> None:
    decode: Callable[..., list[int]] = page_functions()[name]
    runner.encode()
    ours = decode(runner, max_steps=12)
    theirs = decode(OracleRunner(runner), max_steps=12)
    assert ours == theirs
    assert len(ours) > 3


@pytest.mark.parametrize("n_beams", [1, 2, 5])
def test_the_decoders_of_the_page_find_what_whole_runs_find(n_beams: int) -> None:
    wav = data.or_skip(data.jfk_wav)
    names = page_functions()
    with Runner(str(data.or_skip(data.model_file, "tiny.en")), n_threads=2) as runner:
        runner.set_audio(wav)
        runner.encode()
        ours = names["greedy"](runner) if n_beams == 1 else names["beam_search"](runner, n_beams)
        assert "ask not what your country can do for you" in runner.text(ours)
        strategy: dict[str, Any] = {} if n_beams == 1 else {"strategy": "beam_search", "beam_size": n_beams}
        params = FullParams(
            no_timestamps=True, suppress_nst=True, temperature_inc=0.0, n_threads=2, language="en", **strategy
        )
        result = full(runner._context, runner._state, params, whispyx.audio.load(wav))
        assert [token.id for segment in result.segments for token in segment.tokens] == [*ours, runner.eot]


def test_the_page_runs_from_its_first_line_to_its_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page_functions()
    wav, model = data.or_skip(data.jfk_wav), data.or_skip(data.model_file, "tiny.en")
    assert model.is_file()
    (tmp_path / "speech.wav").write_bytes(wav.read_bytes())
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    said: list[str] = []
    names["print"] = lambda *values: said.extend(map(str, values))
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    assert len(said) == 4
    assert "steps," in said[0]
    assert all("ask not what your country can do for you" in text for text in said[1:])
    assert said[1] == said[3]


def test_the_language_is_detected_where_none_is_told() -> None:
    with Runner(str(data.or_skip(data.model_file, "base")), n_threads=2) as runner:
        with pytest.raises(StateError):
            runner.prompt()
        runner.set_audio(data.or_skip(data.jfk_wav))
        runner.encode()
        code, probability = runner.detect_language()
        assert code == "en"
        assert 0.9 < probability <= 1
        assert runner.length() == 0
        assert runner.prompt() == [50258, 50259, 50359, 50363]
        assert runner.prompt([1, 2], language="german") == [50361, 1, 2, 50258, 50261, 50359, 50363]
        runner.prefill(runner.prompt())
        with pytest.raises(StateError, match="sequence 0"):
            runner.detect_language()


def test_prompts_say_what_is_wanted(model: whispyx.Model) -> None:
    with Runner(model) as runner:
        assert runner.prompt() == [50257, 50362]
        long = runner.prompt(range(1000))
        assert long == [50360, *range(1000 - 223, 1000), 50257, 50362]
        assert runner.text(runner.tokenize(" And so")) == " And so"
        assert runner.text([runner.eot, runner.timestamp_begin]) == ""
    with Runner(model, timestamps=True) as runner:
        assert runner.prompt() == [50257]


def test_suppressed_ids_are_those_of_the_model_and_of_the_beginning(model: whispyx.Model) -> None:
    with Runner(model) as runner, Runner(model, timestamps=True) as timed:
        never, first = set(runner.suppressed()), set(runner.suppressed(first=True))
        assert runner.eot not in never
        assert set(range(runner.eot + 1, runner.n_vocab)) <= never
        assert first - never == {runner.eot, *runner.tokenize(" ")}
        assert set(timed.suppressed()) == never - set(range(runner.timestamp_begin, runner.n_vocab))
        logits = np.zeros((2, runner.n_vocab), np.float32)
        assert runner.suppress(logits) is logits
        assert set(np.flatnonzero(np.isinf(logits[1]))) == never


def test_log_softmax_is_normalised_and_refuses_rows_without_a_choice() -> None:
    rows = np.array([[1.0, 2.0, -np.inf], [1e4, 0.0, 0.0]], np.float32)
    found = log_softmax(rows)
    assert np.allclose(np.exp(found).sum(axis=1), 1)
    assert np.allclose(found[0, :2], [1 - np.log(np.exp(1) + np.exp(2)), 2 - np.log(np.exp(1) + np.exp(2))])
    for bad in (-np.inf, np.nan, np.inf):
        with pytest.raises(ParamsError):
            log_softmax(np.full(3, bad, np.float32))


def test_the_benchmark_measures_from_every_starting_point(runner: Runner) -> None:
    whole = runner.benchmark(SAMPLES, n_steps=4)
    assert isinstance(whole, StageTimes)
    stages = ("mel_ms", "encode_ms", "cross_ms", "prefill_ms", "decode_ms")
    assert all(getattr(whole, stage) > 0 for stage in stages)
    assert whole.n_steps == len(whole.tokens) == 4
    assert whole.total_ms == pytest.approx(sum(getattr(whole, stage) for stage in stages))
    assert whole.step_ms == pytest.approx(whole.decode_ms / 4)
    encoder_output = runner.encoder_output()
    decoder = runner.benchmark(n_steps=4, warm_up=False)
    assert (decoder.mel_ms, decoder.encode_ms, decoder.cross_ms) == (0, 0, 0)
    runner.clear()
    logits = runner.prefill(runner.prompt())
    steps = runner.benchmark(prefill_logits=logits, n_steps=4)
    assert steps.prefill_ms == 0 < steps.decode_ms
    assert runner.length() == len(runner.prompt())
    cross = runner.benchmark(encoder_output=encoder_output, n_steps=4)
    assert cross.encode_ms == 0 < cross.cross_ms
    for other in (decoder, steps, cross):
        assert other.tokens == whole.tokens
        assert np.abs(other.logits - whole.logits).max() < 1e-3
    assert re.search(r"decode +\d+\.\d\d ms  4 steps", str(whole))
    assert runner.benchmark(n_steps=0).tokens == ()


def test_the_benchmark_ends_with_the_text_or_with_the_context(runner: Runner) -> None:
    ended = runner.benchmark(SAMPLES, n_steps=400, stop_at_end=True, warm_up=False)
    assert ended.tokens[-1] == runner.eot
    full_up = runner.benchmark(n_steps=1000, warm_up=False)
    assert full_up.n_steps == min(runner.max_decode_steps, runner.n_text_ctx - 2)
    assert runner.eot not in full_up.tokens


def test_wrong_arguments_are_refused_before_anything_is_computed(model: whispyx.Model, runner: Runner) -> None:
    with pytest.raises(StateError):
        runner.prefill(PROMPT)
    runner.encode()
    refused: list[Callable[[], Any]] = [
        lambda: runner.encode(-1),
        lambda: runner.encode(0, 1),
        lambda: runner.encode(0, 3002),
        lambda: runner.prefill([]),
        lambda: runner.prefill([runner.n_vocab]),
        lambda: runner.prefill(PROMPT, 8),
        lambda: runner.step(5, 3),
        lambda: runner.step([5, 6], [0, 0]),
        lambda: runner.step([5, 6], [0]),
        lambda: runner.step([]),
        lambda: runner.reserve(0),
        lambda: runner.reserve(9),
        lambda: runner.drop(0, -1),
        lambda: runner.cross_kv(99),
        lambda: runner.set_encoder_output(np.zeros((3, 5), np.float32)),
        lambda: runner.set_encoder_output(np.full((10, RECIPE.n_state), np.nan, np.float32)),
        lambda: runner.benchmark(SAMPLES, encoder_output=np.zeros((10, RECIPE.n_state), np.float32)),
        lambda: runner.benchmark(prefill_logits=np.zeros(5, np.float32)),
        lambda: runner.benchmark(n_steps=-1),
        lambda: runner.benchmark(prompt=[]),
        lambda: runner.prompt([runner.n_vocab]),
        lambda: runner.text([-1]),
        lambda: runner.text([runner.n_vocab]),
        lambda: runner.suppress(np.zeros(5, np.float32)),
        lambda: runner.set_mel(np.zeros((79, 10), np.float32)),
        lambda: runner.copy_sequence(0, 5),
        lambda: Runner(model, n_threads=0),
        lambda: Runner(model, max_decode_steps=449),
        lambda: Runner(model, translate="yes"),  # type: ignore[arg-type]
        lambda: Runner(model, "cpu"),
    ]
    for number, call in enumerate(refused):
        with pytest.raises(ParamsError):
            call()
            pytest.fail(f"call {number} was not refused")
    with pytest.raises(LanguageError):
        Runner(model, language="de")
    with pytest.raises(LanguageError):
        runner.detect_language()
    with pytest.raises(AudioError):
        runner.set_audio(np.zeros(0, np.float32))
    with pytest.raises(AudioError):
        runner.mel(np.zeros(0, np.float32))


def test_closing_leaves_a_model_that_was_open_before(model: whispyx.Model) -> None:
    with Runner(model) as runner:
        pass
    runner.close()
    assert "closed" in repr(runner)
    assert not model.closed
    with pytest.raises(StateError):
        runner.set_audio(SAMPLES)
    with Runner(str(pair(RECIPE).path)) as own:
        assert own.encoder_device == own.decode_device == own._model.devices[0]
        inner = own._model
    assert inner.closed
