"""All that came of a validation of times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bsprof.validate.scores import Share
from bsprof.validate.time.collect import TimeCollected
from bsprof.validate.time.outcomes import TimeOutcome, TimeUnpredicted


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeValidation:
    """Outcomes and what has none.

    Attributes:
        outcomes: Predicted cases.
        failed: Cases without a score.
        left_out_gpu: The device whose measurements the coefficients have not seen; None where
            they are the shipped ones.
        stopped: Whether it was ended early; the tables are of what was done.
    """

    collected: TimeCollected
    outcomes: tuple[TimeOutcome, ...]
    failed: tuple[TimeUnpredicted, ...]
    left_out_gpu: str | None = None
    stopped: bool = False

    @property
    def scored(self) -> list[TimeOutcome]:
        """Outcomes that are judged."""
        return [outcome for outcome in self.outcomes if outcome.is_scored]

    def share(self, sources: Iterable[str] | None = None) -> Share:
        """Judged rows that have a score, of those of supported models; a sample counts as all.

        Rows that fit or calibrate are neither among the one nor among the other.

        Args:
            sources: Only these; None is all.
        """
        judged = self.collected.judged
        wanted = None if sources is None else set(sources)
        usable = [
            row
            for row, source in self.collected.usable.items()
            if row in judged and (wanted is None or source in wanted)
        ]
        lost = {f.case.row for f in self.failed}
        excused = {f.case.row for f in self.failed if not f.counts}
        due = [
            s.row
            for s in self.collected.skipped
            if s.counts and s.row in judged and (wanted is None or s.source in wanted)
        ]
        scored = sum(row not in lost for row in usable)
        count = sum(row not in excused for row in usable) + len(due)
        return Share(hits=scored, count=count)
