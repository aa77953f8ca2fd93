"""The plan file: what `bsprof recommend -o plan.json` wrote, read back to be run. No torch."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsprof.errors import PlanFormatError, UsageError
from bsprof.records import PLAN_SCHEMA_VERSION, Plan, RankPieces, Recommendation
from bsprof.records.plan_digest import plan_digest

NEXT_STEP = "write it anew with `bsprof recommend -o FILE`"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A plan that can be run: what every rank runs, and what it was made for.

    Attributes:
        pieces: What the ranks run, those with the same pieces together, first ranks first.
        target_batch: Samples per update that were asked for, over all ranks.
        target_tokens: The same in tokens, where it was asked in tokens.
        profile: Name of the profile that the plan was read from; empty when unknown.
        digest: Names what is run, see `bsprof.records.plan_digest`.
    """

    pieces: tuple[RankPieces, ...]
    target_batch: int
    target_tokens: int | None = None
    profile: str = ""

    @property
    def digest(self) -> str:
        """Names what is run: the same digest is the same pieces on every rank."""
        return plan_digest(self.pieces)

    @property
    def world_size(self) -> int:
        """Data-parallel ranks."""
        return sum(kind.ranks for kind in self.pieces)

    @property
    def effective_batch_size(self) -> int:
        """Samples per update over all ranks."""
        return sum(kind.samples * kind.ranks for kind in self.pieces)

    @property
    def micro_batch_size(self) -> int:
        """Samples of the largest piece."""
        return max(size for kind in self.pieces for size in kind.sizes)

    @property
    def accumulation_steps(self) -> int:
        """Micro-steps per update, of the rank that has most."""
        return max(kind.steps for kind in self.pieces)

    @property
    def pieces_by_rank(self) -> tuple[tuple[int, ...], ...]:
        """For each rank the sizes it runs, in order."""
        return tuple(kind.expanded() for kind in self.pieces for _ in range(kind.ranks))

    def of_rank(self, rank: int) -> tuple[int, ...]:
        """Sizes of the pieces of one rank, in order.

        Raises:
            UsageError: the plan has no such rank.
        """
        for kind, first in zip(self.pieces, self._first_ranks(), strict=True):
            if first <= rank < first + kind.ranks:
                return kind.expanded()
        raise UsageError(
            f"the plan has no rank {rank}", found=f"{self.world_size} ranks, numbered from 0"
        )

    def offset_of(self, rank: int) -> int:
        """Samples that the ranks before this one take of an update's batch."""
        return sum(
            kind.samples * min(kind.ranks, max(0, rank - first))
            for kind, first in zip(self.pieces, self._first_ranks(), strict=True)
        )

    def check_world_size(self, world_size: int) -> None:
        """Refuse to be run by another number of ranks than the plan is for.

        Raises:
            UsageError: listing what would change.
        """
        if world_size == self.world_size:
            return
        raise UsageError(
            f"the plan is for {_ranks(self.world_size)}, and this run has {world_size}",
            found="\n".join(self._changes(world_size)),
            next_step=f"make a plan for this run: bsprof recommend --target-batch "
            f"{self.target_batch} --world-size {world_size} -o plan.json"
            + (f" --profile {self.profile}" if self.profile else ""),
        )

    def _first_ranks(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate((k.ranks for k in self.pieces[:-1]), initial=0))

    def _changes(self, world_size: int) -> list[str]:
        """What another world size would change, with the same largest piece."""
        batch, size = self.effective_batch_size, self.micro_batch_size
        if batch < world_size:
            return [f"{batch} samples per update cannot give each of {world_size} ranks one"]
        before = sorted({kind.samples for kind in self.pieces})
        after = sorted({batch // world_size, -(-batch // world_size)})
        steps = -(-after[-1] // size)
        lines = [
            f"samples of a rank per update: {_span(before)} -> {_span(after)} ({batch} in all)",
            f"micro-steps of a rank per update: {self.accumulation_steps} -> {steps}",
        ]
        kept = self.accumulation_steps * size * world_size
        if kept != batch:
            lines.append(
                f"with the pieces as they are: {batch} -> {_kept(self, world_size)} samples per "
                "update, and a learning rate, a schedule and a warm-up for another batch"
            )
        return lines

    def differences(self, earlier: Mapping[str, Any]) -> list[str]:
        """What changed since a state that `PlanFile.state` describes, in sentences."""
        now = self.state()
        words = {
            "world_size": "ranks",
            "effective_batch_size": "samples per update",
            "micro_batch_size": "largest piece",
            "accumulation_steps": "micro-steps per update",
        }
        lines = [
            f"{word}: {earlier.get(key)} -> {now[key]}"
            for key, word in words.items()
            if earlier.get(key) != now[key]
        ]
        if not lines and earlier.get("digest") != now["digest"]:
            lines.append("the sizes or the order of the pieces")
        return lines

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the plan, as plain values."""
        return {
            "digest": self.digest,
            "world_size": self.world_size,
            "effective_batch_size": self.effective_batch_size,
            "micro_batch_size": self.micro_batch_size,
            "accumulation_steps": self.accumulation_steps,
        }


def load_plan(path: str | Path) -> PlanFile:
    """Read the file that `bsprof recommend -o FILE` wrote.

    Raises:
        PlanFormatError: no such file, no plan, one of a later bsprof, or one whose pieces do not
            add up or are no longer those that were written.
    """
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanFormatError(
            f"cannot read the plan {path}", found=error.strerror or type(error).__name__
        ) from error
    except ValueError as error:
        raise PlanFormatError(
            f"cannot read the plan {path}", found=f"no JSON: {error}", next_step=NEXT_STEP
        ) from error
    return read_plan(document, name=str(path))


def read_plan(document: Any, *, name: str = "the plan") -> PlanFile:
    """A plan from the document of `recommend --json`.

    Fields that say why the plan was chosen, or what it costs, are not read: only what is run.

    Args:
        name: What messages call it.

    Raises:
        PlanFormatError: as `load_plan`.
    """
    if not isinstance(document, dict) or "pieces_by_rank" not in document:
        raise PlanFormatError(
            f"{name} is no plan", found="no pieces_by_rank in it", next_step=NEXT_STEP
        )
    schema = document.get("schema")
    if type(schema) is not int or schema > PLAN_SCHEMA_VERSION:
        raise PlanFormatError(
            f"{name} is a plan of another format",
            found=f"schema {schema!r}; this bsprof reads up to {PLAN_SCHEMA_VERSION}",
            next_step="update bsprof, or write the plan anew with this one",
        )
    by_rank = document["pieces_by_rank"]
    sizes_fit = isinstance(by_rank, list) and all(
        isinstance(rank, list) and rank and all(type(n) is int and n > 0 for n in rank)
        for rank in by_rank
    )
    if not sizes_fit or not by_rank:
        raise PlanFormatError(
            f"{name} has no pieces to run",
            found="pieces_by_rank must list, for every rank, whole numbers of at least 1",
            next_step=NEXT_STEP,
        )
    plan = PlanFile(
        pieces=tuple(
            RankPieces.of(sizes, ranks=sum(1 for _ in same))
            for sizes, same in itertools.groupby(by_rank)
        ),
        target_batch=_whole(document, "target_batch", name) or 1,
        target_tokens=_whole(document, "target_tokens", name),
        profile=str(document.get("profile") or ""),
    )
    _check_sums(plan, document, name)
    return plan


def as_plan_file(plan: PlanFile | Plan | Recommendation | str | Path) -> PlanFile:
    """A plan that can be run, from whatever holds one; a path is loaded.

    Raises:
        PlanFormatError: the file is no plan.
        UsageError: something that holds no plan.
    """
    if isinstance(plan, PlanFile):
        return plan
    if isinstance(plan, Plan):
        return PlanFile(pieces=plan.pieces, target_batch=plan.effective_batch_size)
    if isinstance(plan, Recommendation):
        return PlanFile(
            pieces=plan.plan.pieces,
            target_batch=plan.target.target_batch,
            target_tokens=plan.target.target_tokens,
            profile=plan.profile,
        )
    if isinstance(plan, str | Path):
        return load_plan(plan)
    raise UsageError(
        f"cannot run a {type(plan).__name__} as a plan",
        next_step="give what recommend_plan or load_plan returns, or the path of a plan file",
    )


def plan_of_pieces(pieces_by_rank: list[list[int]]) -> PlanFile:
    """A plan of one's own: for each rank the sizes it runs, in order."""
    batch = sum(map(sum, pieces_by_rank))
    document = {
        "schema": PLAN_SCHEMA_VERSION,
        "pieces_by_rank": pieces_by_rank,
        "target_batch": batch,
    }
    return read_plan(document)


def _check_sums(plan: PlanFile, document: Mapping[str, Any], name: str) -> None:
    """Refuse a file that contradicts itself: somebody changed a part of it."""
    for key in ("world_size", "effective_batch_size", "digest"):
        stated, found = document.get(key), getattr(plan, key)
        if stated is not None and stated != found:
            raise PlanFormatError(
                f"{name} contradicts itself: it was changed after it was written",
                found=f"{key} {stated}, and its pieces make {found}",
                next_step=NEXT_STEP,
            )


def _whole(document: Mapping[str, Any], key: str, name: str) -> int | None:
    value = document.get(key)
    if value is None or (type(value) is int and value > 0):
        return value
    raise PlanFormatError(f"{name} cannot be read", found=f"{key}: {value!r}", next_step=NEXT_STEP)


def _kept(plan: PlanFile, world_size: int) -> int:
    """Samples per update if every rank ran the pieces of the first."""
    return plan.pieces[0].samples * world_size


def _span(values: list[int]) -> str:
    return str(values[0]) if values[0] == values[-1] else f"{values[0]} to {values[-1]}"


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"
