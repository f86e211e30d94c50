"""Timings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whispyx.capi._log import say
from whispyx.capi.objects import context_of, default_state
from whispyx.capi.structs import whisper_timings

if TYPE_CHECKING:
    from whispyx.capi.objects import whisper_context

__all__ = ["whisper_get_timings", "whisper_print_timings", "whisper_reset_timings"]


def whisper_get_timings(ctx: whisper_context) -> whisper_timings | None:
    """whisper_timings * whisper_get_timings(whisper_context * ctx)

    Mean times of the context's own state since it was made or its timings were reset, in milliseconds: per sampling,
    encoder run, single token, token in a small batch, token of a prompt. The caller's own struct. None when the context
    has no state.
    """
    context_of(ctx, "whisper_get_timings")
    if ctx.state is None:
        return None
    clock = ctx.state.clock
    return whisper_timings(
        sample_ms=clock.sample_ms / max(1, clock.n_sample),
        encode_ms=clock.encode_ms / max(1, clock.n_encode),
        decode_ms=clock.decode_ms / max(1, clock.n_decode),
        batchd_ms=clock.batchd_ms / max(1, clock.n_batchd),
        prompt_ms=clock.prompt_ms / max(1, clock.n_prompt),
    )


def whisper_print_timings(ctx: whisper_context) -> None:
    """void whisper_print_timings(whisper_context * ctx)

    Tells where the time went: loading, attempts that were repeated (p: unlikely or failed, h: repetitions), and each
    stage with its number of runs. The lines go to the log, or to standard error where the log takes no such lines.
    """
    core = context_of(ctx, "whisper_print_timings")
    say(f"load time = {core.load_ms:8.2f} ms")
    if ctx.state is None:
        return
    clock = ctx.state.clock
    say(f"fallbacks = {clock.n_fail_p:3d} p / {clock.n_fail_h:3d} h")
    say(f"mel time = {clock.mel_ms:8.2f} ms")
    for name, total, runs in (
        ("sample", clock.sample_ms, clock.n_sample),
        ("encode", clock.encode_ms, clock.n_encode),
        ("decode", clock.decode_ms, clock.n_decode),
        ("batchd", clock.batchd_ms, clock.n_batchd),
        ("prompt", clock.prompt_ms, clock.n_prompt),
    ):
        say(f"{name} time = {total:8.2f} ms / {runs:5d} runs ({total / max(1, runs):8.2f} ms per run)")
    say(f"total time = {clock.total_ms:8.2f} ms")


def whisper_reset_timings(ctx: whisper_context) -> None:
    """void whisper_reset_timings(whisper_context * ctx)

    Sets the times and counts of the context's own state to zero, but for the repeated attempts.
    """
    default_state(ctx, "whisper_reset_timings").clock.reset()
