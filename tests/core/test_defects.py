"""Known faults of the reference that we must not have: those of the core that no other file tests.

docs/defects.md lists all of them with the names of their tests.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests import data
from tests.core.tiny import pair, recipe_of
from tests.oracle import mel as oracle
from tests.oracle.compare import assert_close, nmse_tolerance
from tests.oracle.damage import Layout, Record
from tests.oracle.network import Whisper
from tests.oracle.reader import read_model
from tests.oracle.tiny_model import TinyModel, speechlike
from whispyx._core import steps
from whispyx._core.context import Context
from whispyx._core.mel import log_mel
from whispyx._core.parallel import full_parallel
from whispyx._core.params import FullParams
from whispyx._core.run import full
from whispyx._core.state import State
from whispyx.errors import BackendError, ModelFormatError

ROOT = Path(__file__).resolve().parents[2]
RATE = 16000
SAMPLES = speechlike(12, 3)
MODEL = recipe_of("f16", n_vocab=51865, seed=3, end_after=12)


def params(**fields: Any) -> FullParams:
    return FullParams(**{"n_threads": 1, "temperature_inc": 0.0, **fields})


@pytest.fixture(scope="module")
def ctx() -> Iterator[Context]:
    with pair(MODEL).context(True) as context:
        yield context


# ---- memory


def test_M6_weights_and_computation_are_on_the_devices_that_were_chosen(ctx: Context) -> None:
    with Context.load(str(pair(MODEL).path), use_gpu=False, backends=["CPU"]) as chosen, chosen.new_state() as state:
        assert chosen.devices == ("CPU",)
        found = full(chosen, state, params(), SAMPLES).segments
    with ctx.new_state() as state:
        assert found == full(ctx, state, params(), SAMPLES).segments
    # A device that is not there is an error; nothing falls back to another one behind the caller's back.
    with pytest.raises(BackendError):
        Context.load(str(pair(MODEL).path), backends=["no-such-device"])


def test_M7_an_encoder_output_from_outside_and_our_own_may_take_turns(ctx: Context) -> None:
    tokens = [ctx.vocab.sot, ctx.vocab.sot + 1, ctx.vocab.transcribe]

    def logits(state: State) -> Any:
        steps.seq_rm(state, 0)
        return steps.prefill(state, tokens).copy()

    with ctx.new_state() as state, ctx.new_state() as plain:
        for s in (state, plain):
            s.pcm_to_mel(SAMPLES)
        plain.encode(0, n_threads=1)
        expected = logits(plain)
        ours = steps.encoder_output(plain)
        for _ in range(3):
            steps.set_encoder_output(state, np.zeros_like(ours))
            outside = logits(state)
            state.encode(0, n_threads=1)
            assert np.array_equal(logits(state), expected)
            assert not np.array_equal(outside, expected)
            steps.set_encoder_output(state, ours)
            assert np.allclose(logits(state), expected, atol=1e-4)


PEAK_SCRIPT = """
import resource, sys
import numpy as np
from whispyx._core.mel import Filters, MelSpectrogram
n_threads = int(sys.argv[1])
samples = np.zeros(16000 * 600, np.float32)
samples[::7] = 0.1
samples.flags.writeable = False
MelSpectrogram.of_samples(samples, Filters(np.ones((80, 201), np.float32)), n_threads)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_M8_threads_of_the_spectrogram_share_the_sound() -> None:
    def peak_kb(n_threads: int) -> int:
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
        done = subprocess.run(
            [sys.executable, "-c", PEAK_SCRIPT, str(n_threads)],
            capture_output=True, text=True, timeout=300, cwd=ROOT, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    one_copy_kb = RATE * 600 * 4 // 1024
    assert peak_kb(16) - peak_kb(1) < one_copy_kb


# ---- decoding


def test_B9_candidates_of_one_attempt_draw_different_numbers(ctx: Context) -> None:
    texts: dict[int, set[tuple[int, ...]]] = {}

    def look(tokens: list[Any], logits: Any) -> None:
        texts.setdefault(len(tokens), set()).add(tuple(token.id for token in tokens))

    with ctx.new_state() as state:
        full(ctx, state, params(temperature=1.0, best_of=4, logits_filter_callback=look), SAMPLES)
    assert max(len(found) for found in texts.values()) >= 3


def test_B9_a_used_state_gives_the_text_of_a_fresh_one(ctx: Context) -> None:
    sampled = params(temperature=1.0, best_of=3)
    with ctx.new_state() as used, ctx.new_state() as fresh:
        first = full(ctx, used, sampled, SAMPLES).segments
        full(ctx, used, params(temperature=0.7, best_of=2), SAMPLES)
        assert full(ctx, used, sampled, SAMPLES).segments == first == full(ctx, fresh, sampled, SAMPLES).segments
        other = full(ctx, fresh, params(temperature=1.0, best_of=3, seed=9), SAMPLES).segments
    assert other != first


def test_B10_beams_go_on_with_the_most_probable_tokens_and_no_text_twice(ctx: Context) -> None:
    """After the first step, five beams hold the five most probable first tokens, each once."""
    rows: list[Any] = []
    texts: list[list[int]] = []

    def look(tokens: list[Any], logits: Any) -> None:
        if not tokens:
            rows.append(logits.copy())
        texts.append([token.id for token in tokens])

    with ctx.new_state() as state:
        beam = params(strategy="beam_search", beam_size=5, no_timestamps=True, logits_filter_callback=look)
        full(ctx, state, beam, SAMPLES)
    seconds = [text[0] for text in texts if len(text) == 1][:5]
    vocab = ctx.vocab
    allowed = np.array(rows[0], np.float64)
    allowed[vocab.eot :] = -np.inf  # a text may not begin with its end, nor with a control token
    allowed[vocab.token_id(b" ")] = -np.inf
    best = np.argsort(-allowed, kind="stable")[:5]
    assert seconds == [int(token) for token in best]


@pytest.mark.parametrize("n", [1, 2, 3, 100, 199, 200, 201, 202])
def test_B16_fewer_samples_than_the_mirror_needs_are_mirrored_as_far_as_they_go(n: int) -> None:
    filters = oracle.slaney_filters(80)
    # Behind the samples lies memory that is not theirs.
    buffer = np.full(1000, 1e6, np.float32)
    buffer[:n] = speechlike(1, 5)[2000 : 2000 + n]
    assert np.abs(log_mel(buffer[:n], filters) - oracle.log_mel(buffer[:n], filters)).max() < 1e-3


def test_B26_results_do_not_depend_on_what_the_state_did_before(ctx: Context) -> None:
    tokens = [ctx.vocab.sot, ctx.vocab.sot + 1, ctx.vocab.transcribe, 300, 301]

    def logits(state: Any, **encode: Any) -> Any:
        state.encode(0, n_threads=1, **encode)
        steps.seq_rm(state, 0)
        return steps.prefill(state, tokens).copy()

    with ctx.new_state() as used, ctx.new_state() as fresh:
        for state in (used, fresh):
            state.pcm_to_mel(SAMPLES)
        logits(used)  # leaves rows behind the short context
        assert np.array_equal(logits(used, audio_ctx=40), logits(fresh, audio_ctx=40))


@pytest.mark.parametrize("audio_ctx", [None, 40])
def test_B26_fused_attention_attends_no_padding(audio_ctx: int | None) -> None:
    """Neither 100 nor 40 positions fill blocks of 256; the plain path knows no blocks."""
    found = []
    for flash_attn in (True, False):
        with pair(MODEL).context(flash_attn) as context, context.new_state() as state:
            state.pcm_to_mel(SAMPLES)
            state.encode(0, n_threads=1, audio_ctx=audio_ctx)
            tokens = [context.vocab.sot, context.vocab.sot + 1, context.vocab.transcribe]
            found.append(steps.prefill(state, tokens).copy())
    # Rounding of keys and values to 16 bits in the fused kernel; the padding of the reference changes logits by 0.1 up.
    assert np.abs(found[0] - found[1]).max() < 0.05


@pytest.mark.parametrize("n", [10, 222, 223, 224, 500])
def test_B30_at_most_223_tokens_of_earlier_text_are_shown(ctx: Context, n: int) -> None:
    shown = []
    with ctx.new_state() as state:
        result = full(ctx, state, params(prompt_tokens=[300] * n), SAMPLES)
        shown.append(result.timings.n_prompt + result.timings.n_batchd)
        bare = full(ctx, state, params(), SAMPLES)
        shown.append(bare.timings.n_prompt + bare.timings.n_batchd)
    n_init = 3  # start of transcript, language, task
    assert shown == [1 + min(n, 223) + n_init, n_init]


# ---- times by attention


def test_T7_times_by_attention_are_moved_with_their_part(ctx: Context) -> None:
    sound = speechlike(40, 3)
    half = len(sound) // 2
    ctx.set_aheads([(1, 0), (2, 1)])
    fields = {"dtw": True}
    with ctx.new_state() as state, ctx.new_state() as other:
        whole = full_parallel(ctx, state, params(**fields), sound, 2)
        parts = [full(ctx, other, params(**fields), part).segments for part in (sound[:half], sound[half:])]

    def times(segments: Any, shift: int = 0) -> list[int]:
        return [t.t_dtw + shift for s in segments for t in s.tokens if t.t_dtw >= 0]

    second = times(parts[1], 100 * half // RATE)
    assert second and times(whole.segments) == times(parts[0]) + second


def test_T7_times_by_attention_are_those_of_the_recording_with_voice_activity() -> None:
    samples, _ = soundfile.read(data.or_skip(data.jfk_wav), dtype="float32")
    shifted = np.concatenate([np.zeros(5 * RATE, np.float32), samples])
    silero = str(data.or_skip(data.silero_ggml))
    with Context.load(str(data.or_skip(data.model_file, "tiny.en"))) as real, real.new_state() as state:
        real.set_aheads([(1, 0), (2, 0), (2, 5), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4)])
        made = FullParams(n_threads=2, temperature_inc=0.0, dtw=True, vad=True, vad_model_path=silero)
        found = full(real, state, made, shifted)
    marks = [t.t_dtw for s in found.segments for t in s.tokens if t.id < real.vocab.eot]
    first, last = found.vad_segments[0][0], found.vad_segments[-1][1]
    assert len(marks) > 20 and marks == sorted(marks)
    assert first >= 450 and all(first - 2 <= mark <= last + 2 for mark in marks)


# ---- files that nobody should trust


@pytest.fixture(scope="module")
def file() -> bytes:
    return TinyModel(n_audio_layer=1, n_text_layer=1, n_state=32, seed=4).to_bytes()


@pytest.fixture(scope="module")
def layout(file: bytes) -> Layout:
    return Layout(file)


def put(file: bytes, offset: int, value: int) -> bytes:
    return file[:offset] + struct.pack("<i", value) + file[offset + 4 :]


def outcomes(files: list[bytes]) -> list[str]:
    """What becomes of each file, in a process of its own: the first line of the error, or 'loaded'."""
    script = """
        import json, sys
        import whispyx.plugins
        from whispyx._core.context import Context
        from whispyx.errors import ModelFormatError
        whispyx.plugins.load()
        found = []
        for path in sys.argv[1:]:
            try:
                Context.load(path).close()
                found.append("loaded")
            except ModelFormatError as error:
                found.append(str(error))
        print(json.dumps(found))
        """
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, content in enumerate(files):
            paths.append(Path(folder) / f"{i}.bin")
            paths[-1].write_bytes(content)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), *map(str, paths)],
            capture_output=True, text=True, timeout=300, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def named(layout: Layout, name: str) -> Record:
    return next(record for record in layout.records if record.name == name)


def all_refused(files: list[bytes]) -> None:
    assert files
    found = outcomes(files)
    assert [line for line in found if line == "loaded" or not line] == [], found


def test_L1_the_number_of_axes_of_a_tensor_is_checked(file: bytes, layout: Layout) -> None:
    all_refused([put(file, layout.records[0].start, n) for n in (-1, 0, 5, 20, 1000, 2**31 - 1)])


def test_L2_the_vocabulary_must_hold_the_special_tokens(file: bytes) -> None:
    all_refused([put(file, 4, n) for n in (-1, 0, 1, 1000, 50256, 51000)])


def test_L3_lengths_in_the_vocabulary_and_of_names_are_bounded(file: bytes, layout: Layout) -> None:
    huge = (-1, len(file), 2**30, 2**31 - 1)
    spots = (layout.vocab, layout.token_lengths[0], layout.token_lengths[-1], layout.records[0].start + 4)
    all_refused([put(file, spot, n) for spot in spots for n in huge])


def test_L4_the_filters_have_the_shape_of_the_model(file: bytes) -> None:
    shapes = [(80, 200), (80, 202), (79, 201), (2**16, 2**16), (-1, -1), (0, 0), (2**31 - 1, 201)]
    all_refused([put(put(file, 48, n_mel), 52, n_fft) for n_mel, n_fft in shapes])


def test_L5_a_file_that_ends_early_is_refused(file: bytes, layout: Layout) -> None:
    last = layout.records[-1]
    ends = (3, 30, 50, 1000, layout.vocab + 2, layout.tensors - 1, last.start + 2, last.data, last.end - 1)
    all_refused([file[:end] for end in ends])


def test_L6_unknown_weight_types_are_refused(file: bytes, layout: Layout) -> None:
    all_refused([put(file, 44, ftype) for ftype in (-1, 5, 99, 12345, 2**31 - 1)])
    query = named(layout, "encoder.blocks.0.attn.query.weight")
    all_refused([put(file, query.start + 8, kind) for kind in (-1, 4, 5, 36, 41, 100, 2**31 - 1)])


def test_L6_weights_are_read_as_the_type_that_their_record_names(tmp_path: Path) -> None:
    """f16 (1) and bf16 (30) take the same bytes; a tensor may have another type than the rest of its model."""
    recipe = TinyModel(n_audio_layer=1, n_text_layer=1, seed=4)
    whole = recipe.to_bytes()
    query = named(Layout(whole), "encoder.blocks.0.attn.query.weight")
    half = np.frombuffer(whole[query.data : query.end], np.float16).astype(np.float32)
    as_bf16 = (half.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    path = tmp_path / "mixed.bin"
    path.write_bytes(put(whole, query.start + 8, 30)[: query.data] + as_bf16 + whole[query.end :])
    found = read_model(path)
    mel = oracle.log_mel(SAMPLES, found.filters)
    expected = Whisper(found).encode(oracle.window_of(mel, 0, recipe.n_audio_ctx)).output
    with Context.load(str(path)) as context, context.new_state() as state:
        state.pcm_to_mel(SAMPLES)
        state.encode(0, n_threads=1)
        assert_close("encoder", steps.encoder_output(state), expected, nmse_tolerance("bf16"))


def test_L7_a_tensor_that_comes_twice_hides_no_missing_one(file: bytes, layout: Layout) -> None:
    first, last = layout.records[0], layout.records[-1]
    twice = file[first.start : first.end]
    all_refused([file + twice, file[: last.start] + twice])


def test_L8_audio_and_text_widths_agree_and_divide_by_the_heads(file: bytes) -> None:
    n_audio_state, n_audio_head, n_text_state, n_text_head = 12, 16, 28, 32
    wrong = [(n_text_state, 64), (n_text_state, 16), (n_audio_state, 33), (n_audio_head, 3), (n_text_head, 5)]
    wrong += [(n_audio_head, 0), (n_text_head, -1)]
    all_refused([put(file, offset, value) for offset, value in wrong])


def test_L_an_undamaged_file_is_loaded(file: bytes) -> None:
    assert outcomes([file]) == ["loaded"]
    with pytest.raises(ModelFormatError):
        Context.load(b"")
