"""One transcription of the friendly API: what the engine finds, and the transcript that is made of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from ._assemble import SegmentBuilder
from .constants import SAMPLE_RATE
from .errors import Aborted
from .results import Segment, Timings, Transcript

if TYPE_CHECKING:
    from ._core.context import Context
    from ._core.results import RunResult, SegmentData
    from .audio import Samples
    from .options import TranscribeOptions

__all__ = ["Job"]

logger = logging.getLogger("whispyx.model")


class Job:
    """One transcription: collects what the engine finds and makes the transcript of it."""

    def __init__(
        self,
        model: str,
        context: Context,
        options: TranscribeOptions,
        samples: Samples,
        on_segment: Callable[[Segment], object] | None,
    ) -> None:
        self._model = model
        self._context = context
        self._options = options
        self._samples = samples
        self._duration = len(samples) / SAMPLE_RATE
        self._on_segment = on_segment
        self._found: list[SegmentData] = []
        self._live = self._builder()
        self._began = time.perf_counter()

    def _builder(self) -> SegmentBuilder:
        vocab = self._context.vocab
        return SegmentBuilder(self._duration, vocab.eot, self._samples, self._options.no_speech_thold, vocab.words)

    def found(self, batch: Sequence[SegmentData]) -> None:
        """Take new segments from the engine and pass them on."""
        for data in batch:
            self._found.append(data)
            if self._on_segment is not None:
                self._on_segment(self._live.add(data))

    def run(self, full: Callable[[], RunResult]) -> Transcript:
        """Run the job; whatever stops it early carries what was recognised so far."""
        self._began = time.perf_counter()
        try:
            result = full()
        except Aborted as stop:
            stop.partial = self.transcript(stop.partial, complete=False)
            raise
        except BaseException as error:
            try:
                error.partial = self.transcript(None, complete=False)  # type: ignore[attr-defined]
            except AttributeError:  # a class that takes no attributes
                logger.debug("%s cannot carry the partial transcript", type(error).__name__)
            raise
        return self.transcript(result, complete=True)

    def transcript(self, result: RunResult | None, *, complete: bool) -> Transcript:
        """Make the transcript of a run, or of the segments seen so far when there is no result."""
        builder = self._builder()
        for data in self._found if result is None else result.segments:
            builder.add(data)
        return Transcript(
            segments=tuple(builder.segments),
            language=self._options.language or (None if result is None else result.language),
            language_probability=None if result is None else result.language_probability,
            duration=self._duration,
            model=self._model,
            devices=tuple(self._context.devices),
            compute=self._context.compute,
            timings=Timings() if result is None else self._timings(result),
            options=self._options,
            complete=complete,
        )

    def _timings(self, result: RunResult) -> Timings:
        counted = Timings(**{item.name: getattr(result.timings, item.name) for item in fields(Timings)})
        return replace(counted, load_ms=self._context.load_ms, total_ms=(time.perf_counter() - self._began) * 1000.0)
