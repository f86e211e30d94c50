"""Calls that no sound program makes, none of which may end the process, hang it or read memory that is gone.

Those that once did run in a process of their own.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.core.tiny import pair
from tests.oracle.tiny_model import TinyModel
from whispyx._core.context import Context
from whispyx._core.params import FullParams
from whispyx._core.run import FullRun, full
from whispyx._core.state import State
from whispyx._core.tokenize import tokenize
from whispyx.errors import ModelError, ParamsError, StateError

ROOT = Path(__file__).resolve().parents[2]
SOUND = np.random.default_rng(5).normal(0, 0.1, 16000 * 4).astype(np.float32)
MODEL = TinyModel(n_vocab=51865)


@pytest.fixture(scope="module")
def ctx() -> Iterator[Context]:
    context = pair(MODEL).context(True)
    yield context
    context.close()


@pytest.fixture
def state(ctx: Context) -> Iterator[State]:
    with State(ctx) as state:
        yield state


def params(**changes: object) -> FullParams:
    return FullParams(**{"n_threads": 1, "temperature_inc": 0.0, **changes})


def in_a_process(body: str) -> str:
    """Run statements with `ctx`, `state` and `sound` in a process of their own and return what they print."""
    start = f"""
        import numpy as np
        import whispyx.plugins
        from whispyx._core.context import Context
        from whispyx._core.lang import detect_language
        from whispyx._core.run import FullRun, full
        from whispyx._core.params import FullParams
        from whispyx._core.state import State
        whispyx.plugins.load()
        ctx = Context.load({str(pair(MODEL).path)!r})
        state = State(ctx)
        sound = np.ones(16000, np.float32)
        def attempt(call, *args):
            try:
                call(*args)
                print("done")
            except Exception as error:
                print(type(error).__name__)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(start) + textwrap.dedent(body)],
        capture_output=True, text=True, timeout=120, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_objects_that_were_never_made_refuse_to_work() -> None:
    said = in_a_process("""
        from whispyx._core.logits import LogitRules, non_speech_tokens
        from whispyx._core.mel import Filters, MelSpectrogram
        from whispyx._core.tokenize import tokenize
        new = State.__new__(State)
        for call in (new.encode, new.logits, new.request_abort, FullRun.__new__(FullRun).step,
                     FullRun.__new__(FullRun).result, Filters.__new__(Filters).array,
                     MelSpectrogram.__new__(MelSpectrogram).array):
            attempt(call)
        Context = type(ctx)
        attempt(Context.__new__(Context).new_state)
        attempt(Context.__new__(Context).set_aheads, [(0, 0)])
        attempt(State, Context.__new__(Context))
        assert FullRun.__new__(FullRun).segments == []
        for call, args in ((detect_language, (None, state, sound)), (detect_language, (ctx, None, sound)),
                           (tokenize, (None, "a")), (non_speech_tokens, (None,)),
                           (LogitRules, (None, 1, FullParams(), False)), (MelSpectrogram.of_samples, (sound, None))):
            attempt(call, *args)
    """)
    assert said.split() == ["StateError"] * 10 + ["TypeError"] * 6


def test_objects_are_made_only_once() -> None:
    said = in_a_process("""
        again = [lambda: state.__init__(ctx), lambda: ctx.vocab.__init__(ctx.hparams, []),
                 lambda: ctx.hparams.__init__(*([1] * 11))]
        run = FullRun(ctx, state, FullParams(), sound)
        again.append(lambda: run.__init__(ctx, state, FullParams(), sound))
        for call in again:
            attempt(call)
        full(ctx, state, FullParams(n_threads=1), sound)
    """)
    assert said.split() == ["StateError", "TypeError", "TypeError", "StateError"]


def test_language_detection_refuses_a_state_of_another_model(tmp_path: Path) -> None:
    # A model of 128 mel bands would write past the input of one of 80.
    other = tmp_path / "other.bin"
    TinyModel(n_vocab=51866, n_mels=128).write(other)
    said = in_a_process(f"attempt(detect_language, Context.load({str(other)!r}), state, sound)")
    assert said.split() == ["StateError"]


def test_a_window_at_the_last_possible_frame_is_silence() -> None:
    said = in_a_process("""
        state.pcm_to_mel(sound)
        state.encode(2**31 - 1, 1)
        far = state.tensor("encoder")
        state.set_mel(np.zeros((80, 0), np.float32))
        state.encode(0, 1)
        print(np.array_equal(far, state.tensor("encoder")))
    """)
    assert said.split() == ["True"]


def test_a_position_that_overflows_is_refused() -> None:
    assert in_a_process("""
        state.pcm_to_mel(sound)
        state.encode(0, 1)
        attempt(state.decode, [1, 2], 2**31 - 1, 1)
    """).split() == ["ParamsError"]


@pytest.mark.parametrize("tokens", ["55", [1.0], [None]])
def test_tokens_are_whole_numbers(ctx: Context, state: State, tokens: object) -> None:
    state.pcm_to_mel(SOUND)
    state.encode(0, 1)
    with pytest.raises(TypeError):
        state.decode(tokens, 0, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", ["ATTEMPT", "PROMPT", "STEP"])
def test_a_run_notices_other_work_in_the_middle_of_its_window(ctx: Context, state: State, phase: str) -> None:
    run = FullRun(ctx, state, params(), SOUND)
    while run.step() != phase:
        pass
    state.decode([1] * 400, 0, 1, all_logits=True)  # moves the logits that the run was looking at
    with pytest.raises(StateError, match="other work"):
        run.step()
    assert full(ctx, state, params(), SOUND).timings.n_encode >= 1


def test_a_run_encodes_again_what_other_work_replaced_between_windows(ctx: Context, state: State) -> None:
    alone = full(ctx, state, params(language=None), SOUND).segments
    run = FullRun(ctx, state, params(language=None), SOUND)
    while run.step() != "ENCODE":
        pass
    state.encode(2000, 1)
    assert run.run().segments == alone


def test_the_last_seed_has_room_for_more_decoders(ctx: Context, state: State) -> None:
    last = params(temperature=1.0, best_of=3, seed=2**32 - 1)
    assert full(ctx, state, last, SOUND).segments == full(ctx, state, last, SOUND).segments


def test_a_temperature_that_is_nearly_zero_is_greedy(ctx: Context, state: State) -> None:
    def ids(temperature: float) -> list[int]:
        found = full(ctx, state, params(temperature=temperature), SOUND).segments
        return [token.id for segment in found for token in segment.tokens]

    assert ids(2e-38) == ids(0.0)


@pytest.mark.parametrize("step", [1e-30, 1e-9, 0.009])
def test_steps_of_the_temperature_too_small_to_end_are_refused(step: float) -> None:
    with pytest.raises(ParamsError, match="smallest step"):
        FullParams(temperature_inc=step)


@pytest.mark.parametrize(("name", "value"), [("temperature", 10**400), ("prompt_tokens", 5)])
def test_values_of_absurd_size_or_kind_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ParamsError, match=name):
        FullParams(**{name: value})


@pytest.mark.parametrize("name", ["enc.x", "enc.99999999999999999", "cross_k.-1", "conv.7", "encoder.1", ""])
def test_names_of_no_tensor_are_refused(state: State, name: str) -> None:
    state.pcm_to_mel(SOUND)
    state.encode(0, 1)
    with pytest.raises(ParamsError, match="no tensor"):
        state.tensor(name)


def test_a_mel_that_is_no_array_of_numbers_is_refused(state: State) -> None:
    with pytest.raises(ParamsError, match="mel"):
        state.set_mel("x")


def test_the_length_that_counts_is_that_of_the_array(ctx: Context, state: State) -> None:
    class Liar(np.ndarray):
        def __len__(self) -> int:
            return 2**40

    assert full(ctx, state, params(), SOUND.view(Liar)).n_samples == len(SOUND)


def test_a_pool_shrinks_to_the_threads_of_the_next_job(ctx: Context) -> None:
    # Surplus workers are woken for every graph and slow it down many times over.
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        pytest.skip("threads are counted in /proc, which is not here")
    before = len(list(tasks.iterdir()))
    with State(ctx) as state:
        state.pcm_to_mel(SOUND)
        state.encode(0, 40)
        assert len(list(tasks.iterdir())) >= before + 39
        state.encode(0, 2)
        assert len(list(tasks.iterdir())) <= before + 1


def test_long_words_do_not_take_quadratic_time(ctx: Context) -> None:
    # The vocabulary of the tiny model knows few merges; what counts is that the end comes.
    assert tokenize(ctx.vocab, "ab" * 200_000)


def test_a_forked_child_is_told_so_and_can_let_go_of_the_state() -> None:
    said = in_a_process("""
        import gc, os, signal, time
        full(ctx, state, FullParams(n_threads=2), sound)
        time.sleep(0.2)     # the workers sleep by now, and in the child nobody would wake them
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            attempt(full, ctx, state, FullParams(n_threads=2), sound)
            state.close()
            del state
            gc.collect()
            with State(ctx) as fresh:
                attempt(full, ctx, fresh, FullParams(n_threads=2), sound)
            print(end="", flush=True)
            os._exit(0)
        print(os.waitpid(child, 0)[1])
    """)
    assert said.split() == ["StateError", "done", "0"]


def test_model_bytes_that_do_not_lie_together_are_refused() -> None:
    with pytest.raises(ModelError, match="contiguous"):
        Context.load(memoryview(b"lmgg" * 100)[::2])


def test_a_model_path_with_a_null_byte_names_no_file() -> None:
    with pytest.raises(ModelError, match="null"):
        Context.load("a\0b")


def test_a_state_can_forget_the_recording(state: State) -> None:
    state.pcm_to_mel(SOUND)
    state.drop_mel()
    assert (state.n_len, state.mel_frames) == (0, None)
    with pytest.raises(StateError, match="mel"):
        state.encode(0, 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems count tasks in other ways")
def test_a_system_that_starts_no_more_threads_is_an_error_not_the_end() -> None:
    said = in_a_process("""
        import os, resource
        if os.getuid() == 0:
            os.setuid(54321)    # the limit does not hold for root
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        attempt(full, ctx, state, FullParams(n_threads=8), sound)
        attempt(full, ctx, state, FullParams(n_threads=1), sound)
    """)
    assert said.split() == ["DeviceError", "done"]


def test_a_child_that_goes_on_with_its_parents_run_is_stopped() -> None:
    said = in_a_process("""
        import os, signal
        here, codes = os.getpid(), []
        def fork_later(percent):
            if 0 < percent < 100 and not codes:
                child = os.fork()
                if child == 0:
                    signal.alarm(60)
                    return
                codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        try:
            full(ctx, state, FullParams(n_threads=2, temperature_inc=0.0, progress_callback=fork_later),
                 np.tile(sound, 70))
            print(codes)
        except Exception as error:
            os._exit(0 if os.getpid() != here and type(error).__name__ == "StateError" else 1)
    """)
    assert said.split() == ["[0]"]
