"""`check_equivalence`: the parent's side of `bsprof check`. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bsprof.accumulation.plan_file import PlanFile, as_plan_file
from bsprof.diagnose.asking import ask
from bsprof.diagnose.findings import Cause, Equivalence
from bsprof.errors import UsageError
from bsprof.measure.wire import PhaseLimits
from bsprof.records import Mode, Plan, Precision, Recommendation, WorkloadSpec
from bsprof.records.codec import from_json

DEFAULT_PIECES = (4, 4, 3)
"""Small, several, and unequal: what a loss does with its count shows."""
MOST_PIECES = 8
"""Of a plan: its different sizes, and more of the most common up to so many."""
WEIGH = ("auto", "samples", "tokens", "equal")


def check_equivalence(
    workload: WorkloadSpec | str,
    *,
    micro_batch_size: int | None = None,
    accumulation_steps: int | None = None,
    plan: PlanFile | Plan | Recommendation | str | Path | None = None,
    weigh: str = "auto",
    precision: str = "fp64",
    device: str = "auto",
    allow: Iterable[str] = (),
    limits: PhaseLimits | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> Equivalence:
    """Whether accumulated pieces give the whole batch's gradient, and if not, why.

    Runs the workload's model and loss, in a worker of its own, on one batch as a whole and in
    pieces, in double precision. Where the gradients differ, causes are taken out one at a time.

    Args:
        workload: The model's name, or all options of the workload.
        micro_batch_size: Samples of a piece; with `accumulation_steps`.
        accumulation_steps: Pieces of this size.
        plan: Takes the pieces of a plan instead, of many the different sizes.
        weigh: What pieces are weighed by: `samples`, `tokens` (the workload's `count`), `equal`
            (what most trainers do), or `auto`: tokens where the workload counts them.
        precision: `fp64`; or that of the training, in which accumulation is looked at besides.
        device: Of this machine.
        allow: Names of causes that do not matter here.
        limits: Seconds that the worker may stay silent, by phase.
        on_phase: Called with the name of each phase that the worker enters.

    Raises:
        UsageError: options that cannot be, or exclude each other.
        WorkloadError: the user's code failed.
        PlanFormatError: the file is no plan.
        MeasurementError: the worker died.
    """
    spec = WorkloadSpec(model=workload) if isinstance(workload, str) else workload
    if spec.mode is not Mode.TRAIN:
        raise UsageError("there is no gradient to check in inference")
    sizes = _sizes(micro_batch_size, accumulation_steps, plan)
    _one_of("weights", weigh, WEIGH)
    _one_of("precision", precision, ("fp64", *Precision))
    for cause in (allow := tuple(allow)):
        _one_of("cause", cause, Cause)
    answer = ask(
        "check",
        spec,
        device,
        doing="cannot check",
        limits=limits,
        on_phase=on_phase,
        sizes=list(sizes),
        weigh=weigh,
        precision="" if precision in ("fp64", "fp32") else precision,
        allowed=list(allow),
    )
    return from_json(Equivalence, answer["equivalence"])


def pieces_of_plan(plan: PlanFile) -> tuple[int, ...]:
    """Few pieces that stand for a plan's: each different size, the most common ones repeated."""
    counts: Counter[int] = Counter()
    for kind in plan.pieces:
        for run in kind.runs:
            counts[run.size] += run.count * kind.ranks
    chosen = Counter(dict.fromkeys(sorted(counts, reverse=True)[:MOST_PIECES], 1))
    while chosen.total() < min(MOST_PIECES, counts.total()):
        size = max(
            (s for s in chosen if chosen[s] < counts[s]),
            key=lambda s: (counts[s] - chosen[s], s),
            default=None,
        )
        if size is None:
            break
        chosen[size] += 1
    return tuple(sorted(chosen.elements(), reverse=True))


def _sizes(
    micro_batch_size: int | None,
    accumulation_steps: int | None,
    plan: PlanFile | Plan | Recommendation | str | Path | None,
) -> tuple[int, ...]:
    given = micro_batch_size is not None or accumulation_steps is not None
    if plan is not None:
        if given:
            raise UsageError(
                "a plan has its own pieces",
                next_step="give the plan, or micro-batch size and accumulation steps",
            )
        return pieces_of_plan(as_plan_file(plan))
    if not given:
        return DEFAULT_PIECES
    size = DEFAULT_PIECES[0] if micro_batch_size is None else micro_batch_size
    steps = len(DEFAULT_PIECES) if accumulation_steps is None else accumulation_steps
    if size < 1 or steps < 2:
        raise UsageError(
            f"{steps} pieces of {size} samples are nothing to compare",
            next_step="take pieces of at least 1 sample, and at least 2 of them",
        )
    return (size,) * steps


def _one_of(what: str, value: str, known: Sequence[str] | type[Cause]) -> None:
    names = [str(name) for name in known]
    if value not in names:
        raise UsageError(f"unknown {what} {value!r}", next_step=f"use one of {', '.join(names)}")
