"""Which rows of published time are looked at: every source or one, all models or a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bsprof.errors import UsageError
from bsprof.validate.cases import Skipped
from bsprof.validate.collect import sample
from bsprof.validate.rows import Row, read_rows
from bsprof.validate.time.cases import TimeCase
from bsprof.validate.time.places import place_of
from bsprof.validate.time.sources import (
    cs336,
    fine_tuning,
    gpt2,
    kai,
    lambda_bert,
    layers,
    left_out,
    litgpt,
    llmfoundry,
    lucid,
    neusight,
    resnet_runs,
    sia,
    timm_inference,
    timm_training,
    torchao,
    torchtune,
    torchvision_bs12,
    zyr17,
)


class Source(Protocol):
    """A module of `sources`.

    `read` gets all rows of the file at once, so that it can compare them: which is the smallest
    size of a sweep, and which contradict each other. `folder` has the other files.
    """

    @property
    def NAME(self) -> str:  # noqa: N802
        """Of the source."""

    @property
    def FILE(self) -> str:  # noqa: N802
        """That has its rows."""

    @property
    def ASSUMPTIONS(self) -> tuple[str, ...]:  # noqa: N802
        """What it does not state, and was taken to be."""

    def read(self, rows: Sequence[Row], folder: Path) -> list[TimeCase | Skipped]:
        """Every row as a case, or with a reason why it is none."""


SOURCES: tuple[Source, ...] = (
    neusight,
    gpt2,
    llmfoundry,
    timm_training,
    timm_inference,
    layers,
    sia,
    torchvision_bs12,
    lambda_bert,
    kai,
    fine_tuning,
    zyr17,
    lucid,
    cs336,
    torchtune,
    torchao,
    litgpt,
    resnet_runs.nvidia,
    resnet_runs.dlperf,
    resnet_runs.gavel,
    resnet_runs.zeus,
    resnet_runs.flagperf,
    left_out.tensorflow,
    left_out.transcribed,
)
"""In the order of the tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeCollected:
    """What there is to predict, and what is left out.

    Attributes:
        cases: To predict.
        skipped: Rows left out, with reasons.
        judged: Names of the rows that hold the throughput of one GPU and are to be scored.
        usable: Source by name of every row that is a case, before the sample was drawn.
        sampled_from: Models before the sample was drawn; None when all are taken.
        assumptions: By source.
    """

    cases: tuple[TimeCase, ...]
    skipped: tuple[Skipped, ...]
    judged: frozenset[str] = frozenset()
    usable: Mapping[str, str] = field(default_factory=dict)
    sampled_from: int | None = None
    assumptions: dict[str, tuple[str, ...]]


def collect(folder: Path, *, source: str | None = None, limit: int | None = None) -> TimeCollected:
    """The rows of every known file in a folder.

    Args:
        folder: Of the files, or of folders of files.
        source: Only this one.
        limit: Models to draw from each source, by family and always the same ones.

    Raises:
        UsageError: no such source, or no known file in the folder.
    """
    names = [module.NAME for module in SOURCES]
    if source is not None and source not in names:
        raise UsageError(f"unknown source {source!r}", next_step=f"use one of {', '.join(names)}")
    found = [(m, place_of(folder, m.FILE)) for m in SOURCES if source in (None, m.NAME)]
    present = [(module, path) for module, path in found if path is not None]
    if not present:
        files = ", ".join(sorted({module.FILE for module, _ in found}))
        raise UsageError(
            f"no measurements in {folder}",
            found=f"none of {files}",
            next_step="name the folder that has them, with --measurements",
        )
    cases: list[TimeCase] = []
    skipped: list[Skipped] = []
    judged: set[str] = set()
    all_usable: dict[str, str] = {}
    total = 0
    for module, path in present:
        rows = list(read_rows(path))
        judged |= {row.name for row in rows if "T1" in row.text("judge")}
        read = module.read(rows, folder)
        skipped += [s for s in read if isinstance(s, Skipped)]
        usable = [c for c in read if isinstance(c, TimeCase)]
        all_usable |= {case.row: case.source for case in usable}
        total += len({case.model for case in usable})
        if limit is not None:
            drawn = sample(usable, limit)
            usable = [case for case in usable if case.model in drawn]
        cases += usable
    return TimeCollected(
        cases=tuple(cases),
        skipped=tuple(skipped),
        judged=frozenset(judged),
        usable=all_usable,
        sampled_from=total if limit is not None else None,
        assumptions={module.NAME: module.ASSUMPTIONS for module, _ in present},
    )
