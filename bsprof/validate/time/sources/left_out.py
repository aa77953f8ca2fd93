"""Files with judged rows of which none can be rebuilt, so that their rows are told and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.sources.common import is_judged, skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A source without cases.

    Attributes:
        reason: Why.
        counts: Whether its rows are of models that are supported.
    """

    NAME: str
    FILE: str
    reason: str
    counts: bool
    ASSUMPTIONS: tuple[str, ...] = ()

    def read(self, rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:  # noqa: ARG002
        """Every judged row, left out."""
        return [
            skipped(row, self.NAME, self.reason, counts=self.counts)
            for row in rows
            if is_judged(row)
        ]


tensorflow = LeftOut(
    NAME="tf-cnn-benchmarks",
    FILE="tfcnn_rtx4090_3090.csv",
    reason="TensorFlow's kernels",
    counts=True,
)

transcribed = LeftOut(
    NAME="transcribed",
    FILE="misc_transcribed.csv",
    reason="no such model is supported",
    counts=False,
)
