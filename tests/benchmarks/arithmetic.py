"""Targets side by side: what other tools' arithmetic trains with, and what bsprof plans.

    python arithmetic.py PROFILE [LIMIT]

The profile's measured curve says how fast each is; a limit leaves larger sizes out. Without a
profile the reference one, measured on a CPU up to 16, and then up to 48 the straight line through
its times, which is not measured.
`!` marks a batch that is not the target, with how far it is off, `-` a refusal. Behind each, how
much longer it takes per sample than ours by the measured curve.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from peer_arithmetic import PEERS, Split

from bsprof.recommend.curve import Curve
from bsprof.recommend.plan import recommend_plan
from bsprof.records import Plan, Profile, Quantity, RankPieces
from bsprof.store import load

TARGETS = (64, 100, 256, 1000, 1009, 2048)
WORLD_SIZES = (1, 2, 7, 8)
LIMIT = 48
ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / "profiles" / "reference" / "cpu-amd-epyc" / "gpt-tiny.json"
SIZES = (1, 2, 4, 8, 16, 24, 32, 48)


@dataclass(frozen=True)
class Row:
    """One target on so many ranks.

    Attributes:
        ours: The plan.
        theirs: By tool; None where it refuses.
        slower: Time per sample over ours, less 1, by tool, with the paired interval.
    """

    target: int
    world_size: int
    ours: Plan
    theirs: dict[str, Split | None]
    slower: dict[str, Quantity]


def rows(profile: Profile, limit: int = LIMIT) -> Iterator[Row]:
    """All targets and world sizes."""
    curve = Curve.of(profile)
    for target in TARGETS:
        for world in WORLD_SIZES:
            plan = recommend_plan(profile, target_batch=target, world_size=world, headroom=0).plan
            mine = max(
                (curve.update(kind.runs, with_sync=False) for kind in plan.pieces),
                key=lambda cost: curve.seconds(cost).value,
            )
            theirs = {name: split(target, world, limit) for name, split in PEERS.items()}
            slower = {}
            for name, found in theirs.items():
                if found is not None:
                    pieces = RankPieces.of((found.micro_batch_size,) * found.accumulation_steps)
                    cost = curve.update(pieces.runs, with_sync=False)
                    scale = plan.effective_batch_size / found.effective_batch_size
                    slower[name] = curve.excess(cost, mine, scale)
            yield Row(target, world, plan, theirs, slower)


def within(profile: Profile, limit: int) -> Profile:
    """The profile without sizes above the limit."""
    points = tuple(p for p in profile.points if p.micro_batch_size <= limit)
    return replace(profile, points=points)


def line_to_limit(profile: Profile, limit: int = LIMIT) -> Profile:
    """The straight line through the first and last time of a profile, at sizes up to a limit."""
    timed = [p for p in profile.points if p.micro_step_s is not None]
    first, last = timed[0], timed[-1]
    assert first.micro_step_s is not None
    assert last.micro_step_s is not None
    rise = last.micro_step_s.value - first.micro_step_s.value
    slope = rise / (last.micro_batch_size - first.micro_batch_size)
    start = first.micro_step_s.value - slope * first.micro_batch_size
    points = tuple(
        replace(
            last,
            micro_batch_size=size,
            observed_micro_batch_size=size,
            micro_step_s=Quantity.exact(start + slope * size),
            timing=None,
        )
        for size in SIZES
        if size <= limit
    )
    return replace(profile, points=points)


def main() -> None:
    if len(sys.argv) > 1:
        limit = int(sys.argv[2]) if len(sys.argv) > 2 else LIMIT
        show(within(load(Path(sys.argv[1])), limit))
        return
    reference = load(REFERENCE)
    show(reference)
    show(line_to_limit(reference))


def show(profile: Profile) -> None:
    limit = max(Curve.of(profile).sizes)
    print(f"\n{profile.workload.model} on {profile.device.name}, limit {limit}\n")
    print("| target | ranks | bsprof | " + " | ".join(PEERS) + " |")
    print("|---" * (3 + len(PEERS)) + "|")
    for row in rows(profile, limit):
        cells = [str(row.target), str(row.world_size), _ours(row.ours)]
        cells += [_theirs(row, name) for name in PEERS]
        print("| " + " | ".join(cells) + " |")


def _ours(plan: Plan) -> str:
    runs = "; ".join(
        " + ".join(f"{run.count} x {run.size}" for run in kind.runs) for kind in plan.pieces
    )
    return f"{plan.effective_batch_size}: {runs}"


def _theirs(row: Row, name: str) -> str:
    found = row.theirs[name]
    if found is None:
        return "-"
    off = found.effective_batch_size - row.target
    mark = f" ! {off:+d} ({off / row.target:+.1%})" if off else ""
    text = f"{found.effective_batch_size}{mark}: {found.accumulation_steps} x "
    return f"{text}{found.micro_batch_size}, {row.slower[name].value:+.1%}"


if __name__ == "__main__":
    main()
