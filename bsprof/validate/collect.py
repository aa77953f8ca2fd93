"""Which rows are looked at: from files or the cited table, every source or one, all or a sample."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Protocol

from bsprof.errors import UsageError
from bsprof.validate.cases import Case, Skipped
from bsprof.validate.rows import Row, read_rows
from bsprof.validate.sources import (
    fms,
    gpt2,
    gpu_insights,
    gpumemnet,
    litgpt,
    timm_3090,
    torchtune,
)

SOURCES: tuple[ModuleType, ...] = (
    timm_3090,
    gpumemnet,
    fms,
    litgpt,
    gpt2,
    torchtune,
    gpu_insights,
)
"""In the order of the tables. Each has `NAME`, `FILE`, `ASSUMPTIONS` and `read(row)`."""


class Sampled(Protocol):
    """What a sample is drawn from."""

    @property
    def family(self) -> str:
        """Kind of model."""

    @property
    def model(self) -> str:
        """Name of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What there is to predict, and what is left out.

    Attributes:
        cases: To predict.
        skipped: Rows left out, with reasons.
        sampled_from: Models before the sample was drawn; None when all are taken.
        assumptions: By source.
    """

    cases: tuple[Case, ...]
    skipped: tuple[Skipped, ...]
    sampled_from: int | None = None
    assumptions: dict[str, tuple[str, ...]]


def collect(folder: Path, *, source: str | None = None, limit: int | None = None) -> Collected:
    """The rows of every known file in a folder.

    Args:
        folder: Of the files.
        source: Only this one.
        limit: Models to draw from each source, by family and always the same ones.

    Raises:
        UsageError: no such source, or no known file in the folder.
    """
    names = [module.NAME for module in SOURCES]
    if source is not None and source not in names:
        raise UsageError(f"unknown source {source!r}", next_step=f"use one of {', '.join(names)}")
    chosen = [m for m in SOURCES if source in (None, m.NAME)]
    present = [m for m in chosen if (folder / m.FILE).is_file()]
    if not present:
        files = ", ".join(m.FILE for m in chosen)
        raise UsageError(
            f"no measurements in {folder}",
            found=f"none of {files}",
            next_step="name the folder that has them, with --measurements",
        )
    cases: list[Case] = []
    skipped: list[Skipped] = []
    total = 0
    for module in present:
        read: Callable[[Row], Case | Skipped] = module.read
        found = [read(row) for row in read_rows(folder / module.FILE)]
        usable = [c for c in found if isinstance(c, Case)]
        skipped += [s for s in found if isinstance(s, Skipped)]
        usable, left_out = _clean(module, usable)
        skipped += left_out
        models = sorted({case.model for case in usable})
        total += len(models)
        if limit is not None:
            drawn = sample(usable, limit)
            usable = [case for case in usable if case.model in drawn]
        cases += usable
    return Collected(
        cases=tuple(cases),
        skipped=tuple(skipped),
        sampled_from=total if limit is not None else None,
        assumptions={module.NAME: module.ASSUMPTIONS for module in present},
    )


def sample(cases: Sequence[Sampled], limit: int) -> frozenset[str]:
    """Names of that many models: one of each family in turn, by the digest of their names."""
    by_family: dict[str, list[str]] = {}
    for case in cases:
        by_family.setdefault(case.family, []).append(case.model)
    queues = [
        sorted(set(models), key=_digest)
        for _, models in sorted(by_family.items(), key=lambda item: _digest(item[0]))
    ]
    drawn: list[str] = []
    while len(drawn) < limit and any(queues):
        drawn += [queue.pop(0) for queue in queues if queue]
    return frozenset(drawn[:limit])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _clean(module: ModuleType, cases: list[Case]) -> tuple[list[Case], list[Skipped]]:
    """The cases without models whose rows contradict each other, where a source looks for them."""
    unclean: Callable[[list[Case]], dict[str, str]] | None = getattr(module, "unclean", None)
    reasons = unclean(cases) if unclean is not None else {}
    left_out = [
        Skipped(
            row=case.row,
            source=case.source,
            model=case.model,
            reason=reasons[case.model],
            counts=False,
        )
        for case in cases
        if case.model in reasons
    ]
    return [case for case in cases if case.model not in reasons], left_out
