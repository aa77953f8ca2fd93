"""What the reader must know besides the answer: notes on its limits, advice on running it."""

from __future__ import annotations

from collections.abc import Iterator

from bsprof.fit.samples import TIE_SHARE
from bsprof.recommend.commands import measuring_command, sweep_command
from bsprof.recommend.loading import on_loader
from bsprof.recommend.reasons import Ground
from bsprof.recommend.wording import plural, rules_text
from bsprof.records import Note, Objective, Origin
from bsprof.units import format_bytes, format_share


def notes(ground: Ground) -> tuple[Note, ...]:
    """Where the answer leaves something out, or rests on an assumption."""
    size = ground.plan.micro_batch_size
    carried = (n for n in ground.profile.notes if n.micro_batch_size == size)
    return (
        *_on_question(ground),
        *_on_plan(ground),
        *_on_ranks(ground),
        *on_loader(ground),
        *carried,
    )


def advice(ground: Ground) -> tuple[Note, ...]:
    """What to do when running the plan, so that the update is the whole batch's."""
    if ground.infers:
        return ()
    return tuple(_on_gradient(ground))


def _on_question(ground: Ground) -> Iterator[Note]:
    timed = ground.splitting.curve.is_timed
    if ground.target.objective is Objective.COST and not timed:
        yield Note(
            code="cost-not-known",
            message="What an update costs depends on its time, which is not known.",
        )
    elif ground.target.objective is Objective.COST:
        yield Note(
            code="cost-equals-time",
            message="All plans run on the same device, so the cheapest is the fastest.",
        )
    if ground.infers and ground.plan.accumulation_steps > 1:
        yield Note(
            code="inference-no-accumulation",
            message="In inference nothing is accumulated: accumulation_steps counts the forward "
            "passes of a rank.",
        )
    if not ground.profile.complete:
        yield Note(
            code="incomplete-profile",
            message="The sweep did not end by itself; sizes that were not tried may be better.",
            hint=f"{sweep_command(ground.profile, '--resume')} goes on where it stopped",
        )
    if ground.profile.origin is not Origin.MEASURED:
        rules = rules_text(ground.profile)
        by = f" with the rules of {rules}" if rules else ""
        yield Note(
            code="not-measured",
            message=f"The numbers are {ground.profile.origin}{by}, not measured on this device.",
        )
    if not timed:
        yield Note(
            code="time-not-known",
            message="Between the sizes that fit time decides, and none is known",
            hint=f"predict it anew, with times: {sweep_command(ground.profile)}"
            if ground.is_predicted
            else f"measure on such a device: {measuring_command(ground.profile)}",
        )


def _on_plan(ground: Ground) -> Iterator[Note]:
    plan, undecided, curve = ground.plan, ground.choice.undecided, ground.splitting.curve
    size = plan.micro_batch_size
    if plan.interpolated:
        yield Note(
            code="interpolated-size",
            message=f"{size} was not {ground.found}; its numbers lie between those of its "
            "neighbours.",
            hint=f"{sweep_command(ground.profile, '--micro-batch-sizes', str(size))} "
            f"{ground.finds} it",
            micro_batch_size=size,
        )
    if undecided is not None:
        other = undecided.micro_batch_size
        excess = ground.splitting.excess(undecided, ground.choice.chosen)
        yield Note(
            code="tie-undecided",
            message=f"{other} may be as good: it is expected {format_share(excess.value)} slower, "
            f"but the interval reaches {format_share(excess.high)}, and a tie is shown at "
            f"{format_share(TIE_SHARE)}; the lower expected time was taken.",
            hint=_both(ground, f"--micro-batch-sizes {other},{size}"),
            micro_batch_size=other,
        )
    if ground.choice.chosen.shapes > 1 and ground.splitting.prefer_one_shape:
        yield Note(
            code="second-shape",
            message="The plan has pieces of more than one size, and each size is compiled or "
            "tuned apart, once.",
            hint="a target that is a multiple of the micro-batch needs one, or --tolerance",
        )
    smallest = min(min(kind.sizes) for kind in plan.pieces)
    if smallest < curve.sizes[0]:
        yield Note(
            code="small-piece-not-measured",
            message=f"The plan has a piece of {plural(smallest, 'sample')}, below the smallest "
            f"{ground.found} size, {curve.sizes[0]}; "
            + ("its time is extrapolated, and " if curve.is_timed else "")
            + "it is taken to need no more memory.",
            micro_batch_size=smallest,
        )
    if plan.device_used_bytes is None:
        yield _memory_unknown(ground)


def _both(ground: Ground, sizes: str) -> str:
    """How to measure two sizes that are too close to tell."""
    if ground.is_predicted:
        return f"{measuring_command(ground.profile)} {sizes} measures both on such a device"
    return f"{sweep_command(ground.profile)} {sizes} measures both again"


def _memory_unknown(ground: Ground) -> Note:
    field = ground.splitting.curve.memory_field
    if field is None:
        message = "The profile has no memory peaks: the headroom could not be checked."
    else:
        what = "reserved" if "reserved" in field else "allocated"
        message = (
            f"What the process uses on the device is not known; its {what} bytes were held "
            "against the limit, which leaves out the device context and libraries."
        )
    return Note(code="memory-unknown", message=message)


def _on_ranks(ground: Ground) -> Iterator[Note]:
    ranks, world_size = ground.profile.ranks, ground.target.world_size
    if ground.infers or (world_size == 1 and ranks == 1):
        return
    if ranks == 1 and not ground.splitting.curve.is_timed:
        yield _memory_of_one_rank(ground)
    elif ranks == 1:
        extra = ground.splitting.curve.extra_bytes
        memory = (
            f", and {format_bytes(extra)} for communication buffers (as much as the gradients) "
            "are added to its memory"
            if extra
            else ", and memory for communication buffers is left out"
        )
        yield Note(
            code="synchronisation-not-measured",
            message=f"The profile was {ground.found} {'for' if ground.is_predicted else 'on'} one "
            f"rank: the time to synchronise gradients between {world_size} ranks is left out of "
            f"the update{memory}. Each rank is taken to have such a device to itself.",
            hint=_for_ranks(ground)
            if ground.is_predicted
            else "time the first updates of the real run against this one",
        )
    elif ranks != world_size:
        timed = ground.splitting.curve.is_timed
        what = "Synchronisation" if timed else "Memory"
        what = "Time and memory" if timed and ground.is_predicted else what
        how = "measured between" if not ground.is_predicted else "predicted for"
        yield Note(
            code="other-world-size",
            message=f"{what} {'were' if ' and ' in what else 'was'} {how} "
            f"{plural(ranks, 'rank')}, and the plan is for "
            f"{plural(world_size, 'rank')}.",
        )


def _memory_of_one_rank(ground: Ground) -> Note:
    extra = ground.splitting.curve.extra_bytes
    added = (
        f"{format_bytes(extra)} for communication buffers (as much as the gradients) are added"
        if extra
        else "memory for communication buffers is left out"
    )
    return Note(
        code="synchronisation-not-measured",
        message=f"Memory was {ground.found} for one rank: {added}. Each rank is taken to have such "
        "a device to itself.",
        hint=_for_ranks(ground) if ground.is_predicted else "",
    )


def _for_ranks(ground: Ground) -> str:
    """How to predict the same for the ranks that were asked about."""
    ranks = ground.target.world_size
    words = ("--world-size", str(ranks), "--parallel", "ddp")
    return f"{sweep_command(ground.profile, *words)} predicts it for {ranks} ranks"


def _on_gradient(ground: Ground) -> Iterator[Note]:
    plan, facts = ground.plan, ground.profile.facts
    if ground.choice.chosen.shapes > 1:
        yield Note(
            code="piece-weights",
            message=f"Weight the mean loss of a piece of n samples by n / "
            f"{plan.effective_batch_size}; otherwise the samples of small pieces count more.",
            hint="where ranks average their gradients, multiply by the number of ranks as well",
        )
    elif plan.accumulation_steps > 1 and facts is not None and facts.tokens_per_sample:
        yield Note(
            code="token-weights",
            message="Where the loss is a mean over tokens and samples differ in them (padding, "
            "masks), divide each piece's summed loss by the tokens of the whole update.",
        )
    if facts is not None and facts.batch_norm_modules and plan.accumulation_steps > 1:
        yield Note(
            code="batch-norm",
            message=f"Batch normalisation ({plural(facts.batch_norm_modules, 'module')}) uses the "
            f"statistics of each piece of {plan.micro_batch_size} samples, not of the whole "
            "update: accumulation does not give exactly the gradient of the whole batch.",
        )
