"""Compares the whole batch's gradient with the pieces', and looks for causes where they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bsprof.accumulation.splitting import part_of, split_batch
from bsprof.accumulation.weights import Weigh, counted, weights_of
from bsprof.diagnose.equivalence import texts
from bsprof.diagnose.equivalence.causes import Case, causes
from bsprof.diagnose.equivalence.gradients import (
    SEED,
    Bench,
    Gradient,
    combined,
    difference,
    norm,
)
from bsprof.diagnose.equivalence.low_precision import low_precision
from bsprof.diagnose.equivalence.resolution import TOLERANCES, coarsest
from bsprof.diagnose.findings import Cause, Equivalence, Finding, ParameterDifference
from bsprof.errors import UsageError, WorkloadError
from bsprof.records import Note, Precision, WorkloadSpec
from bsprof.workloads.batches import map_tensors
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload

SINGLE = 1e-4
"""Relative difference that counts where everything runs in fp32: rounding adds up over layers."""
FLOOR = 1e-3
"""Share of the whole gradient's norm under which a parameter's own is not taken as a measure."""
LOOKED_AT = 3
"""Pieces that the search for causes takes, where the difference shows in these already."""


def examine(
    spec: WorkloadSpec,
    workload: Workload,
    device: str,
    *,
    sizes: Sequence[int],
    weigh: str,
    precision: Precision | None,
    allowed: Sequence[Cause],
    beat: Callable[[], None],
) -> Equivalence:
    """The comparison, on one random batch of the workload.

    Args:
        spec: With precision fp32, from which double precision is made.
        sizes: Samples of each piece.
        weigh: `auto` (tokens where the workload counts them), or one of `Weigh`.
        precision: Of the training, to be looked at besides; None for none.
        allowed: Causes that do not make the answer negative.
        beat: Called before each pass.

    Raises:
        UsageError: a batch that cannot be cut, or weights by tokens without a count.
        WorkloadError: the user's code raised.
    """
    training = build_training(spec, workload, device)
    weigh = _weigh(weigh, workload, spec)
    notes: list[Note] = []
    batch = training.make_batch(sum(sizes))
    pieces, counts = _cut(training, batch, sizes, workload)
    weights = _weights(weigh, sizes, counts)
    kind, bench, whole_gradient = _in_double(training, batch, beat, notes)
    cast = _caster(kind)
    tolerance = _tolerance(kind, bench, cast(pieces[-1]), notes)
    case = Case(
        whole=cast(batch),
        pieces=[cast(piece) for piece in pieces],
        sizes=sizes,
        counts=counts,
        weigh=weigh,
        weights=weights,
        tolerance=tolerance,
    )
    summed = bench.gradient(case.pieces, weights)
    parameters = compared(summed, whole_gradient)
    findings: list[Finding] = []
    # Where masks are drawn row by row, pieces may happen to draw those of the whole batch.
    other_seed = bench.gradient([case.whole], seed=SEED + 1)
    differs = any(row.relative_difference > tolerance for row in parameters)
    if differs or difference(other_seed, whole_gradient) > tolerance:
        findings += causes(bench, _smaller(bench, case, batch, cast) or case)
    if bench.saw_sparse:
        findings.append(texts.sparse(tuple(sorted(bench.saw_sparse))[:4]))
    if precision is not None and not any(f.cause is Cause.DROPOUT for f in findings):
        findings += _in_training(
            spec, workload, device, precision, sizes, weights, batch, whole_gradient
        )
    total = max(norm(whole_gradient), 1e-300)
    counting = [f for f in findings if f.counts and f.cause not in allowed]
    return Equivalence(
        model=spec.model,
        equivalent=not counting,
        precision="fp64" if kind is torch.float64 else "fp32",
        training_precision="" if precision is None else precision.value,
        pieces=tuple(sizes),
        weigh=weigh,
        weights=tuple(weights),
        relative_difference=norm(combined([summed, whole_gradient], (1.0, -1.0))) / total,
        tolerance=tolerance,
        parameters=parameters,
        findings=tuple(sorted(findings, key=lambda f: not f.counts)),
        allowed=tuple(allowed),
        notes=(*training.notes, *notes),
    )


def compared(found: Gradient, wanted: Gradient) -> tuple[ParameterDifference, ...]:
    """Every parameter's difference, the largest first."""
    floor = FLOOR * norm(wanted)
    rows = []
    for name in sorted(found.keys() | wanted.keys()):
        like = wanted.get(name, found.get(name))
        assert like is not None
        zero = torch.zeros_like(like)
        own = float(wanted.get(name, zero).double().norm())
        off = float((found.get(name, zero).double() - wanted.get(name, zero).double()).norm())
        if off != off:  # not a number on either side: as far off as can be
            off = float("inf")
        rows.append(
            ParameterDifference(
                name=name, norm=own, relative_difference=off / max(own, floor, 1e-300)
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.relative_difference))


def _weigh(weigh: str, workload: Workload, spec: WorkloadSpec) -> str:
    if weigh == "auto":
        return Weigh.SAMPLES.value if workload.count is None else Weigh.TOKENS.value
    if weigh == Weigh.TOKENS and workload.count is None:
        raise UsageError(
            f"{spec.model} does not say how many tokens its loss averages over",
            next_step="give the Workload a `count`, or weigh by samples",
        )
    return weigh


def _cut(
    training: Training, batch: Any, sizes: Sequence[int], workload: Workload
) -> tuple[list[Any], list[int] | None]:
    try:
        pieces = split_batch(batch, sizes, size=training.observed_size(batch), split=None)
    except UsageError as error:
        raise WorkloadError(
            error.doing,
            found=error.found,
            next_step="return batches whose tensors have the samples in their leading dimension",
        ) from error
    counts = None if workload.count is None else counted(pieces, workload.count)
    return pieces, counts


def _weights(weigh: str, sizes: Sequence[int], counts: Sequence[int] | None) -> list[float]:
    by = {
        Weigh.SAMPLES.value: list(sizes),
        Weigh.EQUAL.value: [1] * len(sizes),
        Weigh.TOKENS.value: list(counts or ()),
    }[weigh]
    return [float(weight) for weight in weights_of(by, sum(by), 1.0)]


def _in_double(
    training: Training, batch: Any, beat: Callable[[], None], notes: list[Note]
) -> tuple[torch.dtype, Bench, Gradient]:
    """The bench in double precision and the whole batch's gradient; fp32 where that fails."""
    if training.device.type != "mps":
        try:
            bench = Bench(_double(training), training.workload, beat)
            return torch.float64, bench, bench.gradient([_caster(torch.float64)(batch)])
        except WorkloadError as error:
            reason = error.found.splitlines()[0] if error.found else error.doing
            training.model.float()
        notes.append(
            Note(
                code="no-double",
                message=f"the model does not run in double precision ({reason}); compared in fp32",
                hint="types written into the code (.float(), dtype=torch.float32) are the cause",
            )
        )
    bench = Bench(training.model, training.workload, beat)
    return torch.float32, bench, bench.gradient([batch])


def _tolerance(kind: torch.dtype, bench: Bench, piece: Any, notes: list[Note]) -> float:
    """What counts as a difference, by how finely the model computes."""
    if kind is not torch.float64:
        return SINGLE
    seen = coarsest(lambda: bench.gradient([piece]))
    if seen is not torch.float64:
        name = str(seen).removeprefix("torch.")
        notes.append(
            Note(
                code="not-all-double",
                message=f"parts of the model compute in {name} whatever it is given: differences "
                f"count from {TOLERANCES[seen]:.0e}",
            )
        )
    return TOLERANCES[seen]


def _double(training: Training) -> torch.nn.Module:
    return training.model.double()


def _caster(kind: torch.dtype) -> Callable[[Any], Any]:
    def cast(tensor: Tensor) -> Tensor:
        return tensor.to(kind) if tensor.is_floating_point() else tensor

    return lambda batch: map_tensors(cast, batch)


def _smaller(bench: Bench, case: Case, batch: Any, cast: Callable[[Any], Any]) -> Case | None:
    """The last pieces alone, if the difference shows in them: the search keeps all gradients."""
    if len(case.sizes) <= LOOKED_AT:
        return None
    sizes = case.sizes[-LOOKED_AT:]
    start, stop = sum(case.sizes[:-LOOKED_AT]), sum(case.sizes)
    counts = None if case.counts is None else case.counts[-LOOKED_AT:]
    share = sum(case.weights[-LOOKED_AT:])
    smaller = replace(
        case,
        whole=cast(part_of(batch, start, stop, size=stop, split=None)),
        pieces=case.pieces[-LOOKED_AT:],
        sizes=sizes,
        counts=counts,
        weights=[weight / share for weight in case.weights[-LOOKED_AT:]],
    )
    together = bench.gradient([smaller.whole])
    apart = bench.gradient(smaller.pieces, smaller.weights)
    return smaller if difference(apart, together) > case.tolerance else None


def _in_training(
    spec: WorkloadSpec,
    workload: Workload,
    device: str,
    precision: Precision,
    sizes: Sequence[int],
    weights: Sequence[float],
    batch: Any,
    exact: Gradient,
) -> list[Finding]:
    """Findings in the precision of the training, with the same batch."""
    if workload.micro_step is not None:
        raise UsageError(
            f"--precision has no effect on {spec.model}",
            found="the workload runs forward and backward itself",
            next_step="leave it out",
        )
    training = build_training(replace(spec, precision=precision), workload, device)
    kind = next(
        (p.dtype for p in training.model.parameters() if p.is_floating_point()), torch.float32
    )
    own = _caster(kind)(batch)
    pieces = split_batch(own, sizes, size=sum(sizes), split=None)
    return low_precision(training, own, pieces, weights, exact)
