"""Two models on one recording: what `verify` and `--verify` tell, against the oracle and against what must hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import soundfile

import whispyx
from tests import data
from tests.oracle import mel as oracle_mel
from tests.oracle.network import SelfCache, Whisper
from tests.oracle.reader import read_model
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx.cli import main
from whispyx.cli.status import Status
from whispyx.conversion import Verification, quantize, verify
from whispyx.conversion.verify import MAX_WINDOWS, _word_changes
from whispyx.errors import AudioError, LanguageError, ParamsError

SAMPLES = speechlike(2, 5)
PROMPT = [50257, 50362]  # English only: start, no timestamps
TOLERANCE = 0.16  # of a log-probability: caches are f16, which moves logits of spread 2.5 by 0.08


@pytest.fixture(scope="module")
def random_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Rows of 256: the k types pack as many.
    recipe = TinyModel(n_state=256, n_head=4, seed=5)
    return recipe.write(tmp_path_factory.mktemp("random") / "random.bin")


@pytest.fixture(scope="module")
def coarse_file(random_file: Path) -> Path:
    return Path(quantize(random_file, random_file.with_name("q2_k.bin"), "q2_k").path)


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "sound.wav", SAMPLES, 16000, subtype="FLOAT")
    return tmp_path / "sound.wav"


def numbers(found: Verification) -> tuple[float, float, float]:
    assert found.mean_difference is not None
    assert found.rms_difference is not None
    assert found.largest_difference is not None
    return found.mean_difference, found.rms_difference, found.largest_difference


def oracle_scores(path: Path, tokens: list[int], samples: np.ndarray = SAMPLES, frame: int = 0) -> np.ndarray:
    """Logarithms of the tokens' probabilities in the window that starts at a frame, by the plain network."""
    model = read_model(path)
    net = Whisper(model)
    mel = oracle_mel.log_mel(samples, model.filters, net.dtype)
    encoded = net.encode(oracle_mel.window_of(mel, frame, net.s["n_audio_ctx"]))
    logits = np.asarray(net.decode([*PROMPT, *tokens], encoded, SelfCache()), dtype=np.float64)
    logits = logits[len(PROMPT) - 1 : -1]
    sums = np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)) + logits.max(axis=1)
    return np.asarray(logits[np.arange(len(tokens)), tokens] - sums)


def test_a_model_does_not_differ_from_itself(random_file: Path) -> None:
    found = verify(random_file, random_file, SAMPLES)
    assert found.equal
    assert found.text_before == found.text_after != ""
    assert (found.n_words_different, found.changes) == (0, ())
    assert found.n_windows == 1
    assert found.n_tokens > 10
    assert numbers(found) == (0.0, 0.0, 0.0)
    assert found.perplexity_before == found.perplexity_after


def test_an_open_model_is_used_and_stays_open(random_file: Path) -> None:
    with whispyx.Model(random_file) as model:
        assert numbers(verify(model, random_file, SAMPLES, compute="exact")) == (0.0, 0.0, 0.0)
        assert numbers(verify(model, model, SAMPLES)) == (0.0, 0.0, 0.0)
        assert not model.closed


def test_differences_are_those_of_the_oracle(random_file: Path, coarse_file: Path) -> None:
    found = verify(random_file, coarse_file, SAMPLES)
    with whispyx.Model(random_file, compute="exact") as model:
        options: dict[str, Any] = {"timestamps": False, "temperature_inc": 0.0}
        tokens = [token.id for segment in model.transcribe(SAMPLES, **options) for token in segment.tokens]
    assert found.n_tokens == len(tokens)
    before, after = oracle_scores(random_file, tokens), oracle_scores(coarse_file, tokens)
    gaps = after - before
    expected = (gaps.mean(), np.sqrt(np.square(gaps).mean()), np.abs(gaps).max())
    print(numbers(found), expected)
    assert expected[1] > 5 * TOLERANCE
    assert np.allclose(numbers(found), expected, rtol=0, atol=2 * TOLERANCE)
    assert found.perplexity_before is not None
    assert found.perplexity_after is not None
    assert abs(np.log(found.perplexity_before) + before.mean()) < TOLERANCE
    assert abs(np.log(found.perplexity_after) + after.mean()) < TOLERANCE


def test_each_window_is_asked_about_where_it_was_heard(random_file: Path) -> None:
    sound = np.zeros(32 * 16000, np.float32)
    sound[: len(SAMPLES)] = SAMPLES
    sound[30 * 16000 :] = speechlike(2, 6)
    found = verify(random_file, random_file, sound)
    with whispyx.Model(random_file, compute="exact") as model:
        transcript = model.transcribe(
            sound, timestamps=False, temperature_inc=0.0, condition_on_previous_text=False
        )  # fmt: skip
    texts = [[token.id for token in segment.tokens] for segment in transcript]
    assert len(texts) == found.n_windows == 2
    scores = [oracle_scores(random_file, tokens, sound, at) for tokens, at in zip(texts, (0, 3000), strict=True)]
    moved = oracle_scores(random_file, texts[1], sound, 0)
    assert np.abs(moved - scores[1]).mean() > 2 * TOLERANCE  # another place would show
    assert found.perplexity_before is not None
    assert abs(np.log(found.perplexity_before) + np.concatenate(scores).mean()) < TOLERANCE / 2


def test_fewer_bits_differ_more(random_file: Path, coarse_file: Path) -> None:
    fine = Path(quantize(random_file, random_file.with_name("q8_0.bin"), "q8_0").path)
    small, large = (verify(random_file, path, SAMPLES).rms_difference for path in (fine, coarse_file))
    assert small is not None
    assert large is not None
    assert 0 < 5 * small < large


def test_q8_0_of_a_real_model_hears_the_same(tmp_path: Path, lacking: Callable[[str], NoReturn]) -> None:
    try:
        model, sound = data.model_file("tiny.en"), data.jfk_wav()
    except data.Unavailable as error:
        lacking(str(error))
    quantize(model, tmp_path / "q8_0.bin", "q8_0")
    found = verify(model, tmp_path / "q8_0.bin", sound)
    assert found.equal
    assert "ask not what your country can do for you" in found.text_before
    assert (found.n_words, found.n_words_different) == (22, 0)
    mean, rms, largest = numbers(found)
    # 8 bits leave some 0.4 % of a weight; words that are all but certain (perplexity near 1) hardly notice.
    assert abs(mean) <= rms <= largest < 0.5
    assert 0 < rms < 0.1
    assert found.perplexity_before is not None
    assert 1 < found.perplexity_before < 1.5


def test_words_that_differ_are_told(random_file: Path, coarse_file: Path) -> None:
    found = verify(random_file, coarse_file, SAMPLES)
    assert not found.equal
    assert found.n_words_different > 0
    assert 0 < len(found.changes) <= 10
    for change in found.changes:
        assert change.before in " ".join(found.text_before.split())
        assert change.after in " ".join(found.text_after.split())
        assert change.before != change.after


def test_words_are_counted_where_they_changed() -> None:
    before = "ask not what your country can do for you".split()
    after = "ask what your big country could well do for".split()
    # Left out: "not"; put in: "big"; "can" became two words; left out: "you".
    n_different, changes = _word_changes(before, after)
    assert n_different == 1 + 1 + 2 + 1
    assert [(change.before, change.after) for change in changes] == [
        ("not", ""),
        ("", "big"),
        ("can", "could well"),
        ("you", ""),
    ]


def test_no_more_than_the_first_windows_are_taken(random_file: Path) -> None:
    long = np.tile(SAMPLES, 15 * (MAX_WINDOWS + 1))
    seen: list[int] = []
    found = verify(random_file, random_file, long, progress=seen.append)
    assert found.duration == len(long) / 16000
    assert found.compared == 30.0 * MAX_WINDOWS
    assert found.n_windows == MAX_WINDOWS
    assert seen == sorted(seen)
    assert seen[-1] == 100


def test_what_cannot_be_compared_is_refused(random_file: Path, tmp_path: Path) -> None:
    other = TinyModel(n_vocab=51865, n_state=256, n_head=4).write(tmp_path / "other.bin")
    with pytest.raises(ParamsError, match="51864 tokens, the other 51865"):
        verify(random_file, other, SAMPLES, "en")
    with pytest.raises(AudioError, match="no audio"):
        verify(random_file, random_file, np.empty(0, np.float32))
    with pytest.raises(LanguageError):
        verify(random_file, random_file, SAMPLES, "de")


def test_ctrl_c_stops_it(random_file: Path) -> None:
    def stop(percent: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(random_file, random_file, SAMPLES, progress=stop)


# ---- the command


def test_the_command_shows_it_after_the_report(
    random_file: Path, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.bin"
    assert main(["quantize", str(random_file), str(out), "--type", "q2_k", "--verify", str(sound)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(out)
    place = next(at for at, line in enumerate(lines) if line.startswith("verified: the texts differ in"))
    assert " -> " in lines[place + 1]
    assert lines[-2].startswith("log-probability of ")
    assert lines[-1].startswith("perplexity: ")


def test_a_recording_without_words_verifies_nothing(
    random_file: Path, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whispyx.Model, "transcribe", lambda *_, **__: whispyx.Transcript(language="en"))
    assert main(["convert", str(random_file), str(tmp_path / "out.bin"), "--verify", str(sound)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("not verified: neither model recognises")
    found = verify(random_file, random_file, SAMPLES)
    assert (found.n_tokens, found.mean_difference, found.perplexity_after) == (0, None, None)


def test_the_command_tells_it_as_json(
    random_file: Path, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.gguf"
    assert main(["convert", str(random_file), str(out), "--verify", str(sound), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["path"] == str(out)
    assert found["verification"]["equal"] is True
    assert found["verification"]["rms_difference"] == 0.0
    assert found["verification"] == verify(random_file, out, SAMPLES).to_dict() | {"changes": []}


def test_the_file_is_written_first_and_stays(
    random_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, bad = tmp_path / "out.bin", tmp_path / "bad.wav"
    bad.write_bytes(b"no sound at all")
    for audio, more in ((bad, []), (tmp_path / "missing.wav", ["--json"])):
        assert main(["quantize", str(random_file), str(out), "--type", "q8_0", "--verify", str(audio), *more]) == 1
        caught = capsys.readouterr()
        assert audio.name in caught.err
        assert str(out) in caught.out
        if more:
            assert json.loads(caught.out)["verification"] is None
        assert read_model(out)
        out.unlink()


def test_ctrl_c_keeps_the_file_and_its_report(
    random_file: Path, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(whispyx.Model, "transcribe", interrupted)
    out = tmp_path / "out.bin"
    command = ["quantize", str(random_file), str(out), "--type", "q8_0", "--verify", str(sound), "--json"]
    assert main(command) == Status.INTERRUPTED
    assert json.loads(capsys.readouterr().out)["verification"] is None
    assert read_model(out)


def test_a_model_that_was_written_over_cannot_be_compared(
    random_file: Path, sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.bin"
    model.write_bytes(random_file.read_bytes())
    assert main(["quantize", str(model), str(model), "--type", "q8_0", "--verify", str(sound)]) == 2
    assert "one file" in capsys.readouterr().err
    assert model.read_bytes() == random_file.read_bytes()
