"""T12: no text and no option of one call reaches the next. (whisper.cpp #2398, PR #3784; transcribe-rs#79)"""

from __future__ import annotations

from typing import Any

from tests.trials import child
from tests.trials.bench import bench, files, hear
from tests.trials.checks import RATE, check_transcript
from whispyx import Model


def segments(model: Model, clip: str, *arguments: Any, **keywords: Any) -> Any:
    transcript = model.transcribe(hear(clip)[: 32 * RATE], *arguments, **keywords)
    check_transcript(transcript)
    return transcript.segments


def one_after_another() -> dict[str, bool]:
    with Model(str(child.model("base"))) as model:
        alone = segments(model, "numbers", "en")
        plain = segments(model, "numbers")
    with Model(str(child.model("base"))) as model:
        segments(model, "passage", "en")
        after = segments(model, "numbers", "en")
        prompted = segments(model, "numbers", "en", initial_prompt="Zwölf Büros. Four thousand five hundred.")
        after_prompt = segments(model, "numbers", "en")
        segments(model, "german", "de", task="translate")
        no_options = segments(model, "numbers")
    return {
        "after another": after == alone,
        "after a prompt": after_prompt == alone,
        "after options": no_options == plain,
        "the prompt had an effect": prompted != alone,
        "there is text": bool(alone) and bool(plain),
    }


def test_a_call_after_others_equals_a_call_alone() -> None:
    files("base")
    for name, holds in child.run(one_after_another).items():
        assert holds, name


def carried() -> list[int]:
    """Prompt tokens decoded for 'numbers': alone, after text of the same state, in a new state, and without context."""
    counts = []
    with bench("base") as b:
        for state, no_context in ((b.state, True), (b.state, False), (b.ctx.new_state(), False), (b.state, True)):
            result = b.run("numbers", state=state, no_context=no_context, temperature_inc=0.0)
            counts.append(result.timings.n_prompt + result.timings.n_batchd)
    return counts


def test_only_a_state_that_is_asked_to_carries_text() -> None:
    files("base")
    alone, after, new, without = child.run(carried)
    assert after > alone
    assert new == without == alone
