"""Whether training at the plan's micro-batch would wait for the measured data loader, in a note."""

from __future__ import annotations

from collections.abc import Iterator

from bsprof.fit.loader import LoaderRate, Supply, Verdict, by_workers, supply
from bsprof.fit.samples import TIE_SHARE
from bsprof.recommend.reasons import Ground
from bsprof.recommend.wording import listing, plural, with_interval
from bsprof.records import Note, Quantity
from bsprof.units import format_count, format_seconds, format_share


def on_loader(ground: Ground) -> Iterator[Note]:
    """What the loader means for the plan; nothing where none was measured.

    The plan's time is left as it is: it is what the device needs. Every rank is taken to have a
    loader like the measured one.
    """
    plan, ranks = ground.plan, ground.target.world_size
    size = plan.micro_batch_size
    if plan.samples_per_s is None:
        return
    found = supply(ground.profile.loader, size, plan.samples_per_s.scaled(1 / ranks))
    if found is None:
        return
    verb = "Inference" if ground.infers else "Training"
    each = " on each rank" if ranks > 1 else ""
    takes = (
        f"{verb} takes {with_interval(found.need, format_count)} samples per second at micro-batch "
        f"{size}{each}"
    )
    codes = {
        Verdict.KEEPS_UP: "loader-keeps-up",
        Verdict.UNCLEAR: "loader-unclear",
        Verdict.WAITS: "loader-waits",
    }
    says = {
        Verdict.KEEPS_UP: _keeps_up,
        Verdict.UNCLEAR: _unclear,
        Verdict.WAITS: _waits,
    }
    message, hint = says[found.verdict](ground, found)
    yield Note(
        code=codes[found.verdict],
        message=f"{takes}, and the loader gives {message}{_basis(ground, found)}",
        hint=hint,
    )


def _keeps_up(_ground: Ground, found: Supply) -> tuple[str, str]:
    enough = found.fewest
    assert enough is not None
    message = f"{_rate(enough)}, the fewest measured that keep up: it would not wait for data."
    if enough.num_workers == 0:
        message = (
            f"{_rate(enough)}: loading takes at most {format_share(TIE_SHARE)} of the time, so it "
            "would hardly wait for data."
        )
    if found.perhaps is not None:
        message += f" {_number(found.perhaps)} may do as well: too close to tell."
    return message, f"num_workers={enough.num_workers}{_prefetch(enough)}"


def _unclear(_ground: Ground, found: Supply) -> tuple[str, str]:
    near = found.perhaps
    assert near is not None
    more = max(found.rates, key=lambda r: r.samples_per_s.value)
    return (
        f"{_rate(near)}: too close to tell whether it would wait for data.",
        f"num_workers={more.num_workers} gives the most that was measured",
    )


def _waits(ground: Ground, found: Supply) -> tuple[str, str]:
    plan, best = ground.plan, found.best
    assert plan.step_time_s is not None, "what a plan takes is known only with its time"
    share = plan.effective_batch_size / ground.target.world_size
    rate = best.samples_per_s
    loading = Quantity.ordered(share / rate.value, share / rate.high, share / rate.low)
    usual = with_interval(plan.step_time_s, format_seconds)
    if best.num_workers:
        at_least = with_interval(loading, format_seconds)
        message = (
            f"at most {_rate(best)}: it would wait for data, and the {ground.whole} would take at "
            f"least {at_least} instead of {usual}."
        )
    else:
        message = (
            f"{_rate(best)}, in the same process: it would wait for data, "
            f"{with_interval(loading, format_seconds)} in every {ground.whole} beside its {usual}."
        )
    hint = "more workers than were measured, cheaper preparation of samples, or data that is nearer"
    return message, hint


def _basis(ground: Ground, found: Supply) -> str:
    """What the loader's rates rest on, where that is not the plan's own case."""
    text = ""
    if not found.best.measured:
        sizes = sorted({p.batch_size for p in ground.profile.loader})
        text += f" It was measured in batches of {listing([f'{b:,}' for b in sizes])}."
    if ground.profile.device.kind == "cpu":
        text += " It was measured alone: while the same cores compute, it gives less."
    elif ground.target.world_size > 1:
        text += " Ranks on one machine share its cores."
    return text


def _rate(rate: LoaderRate) -> str:
    given = with_interval(rate.samples_per_s, format_count)
    return f"{given} {by_workers(rate.num_workers)}"


def _number(rate: LoaderRate) -> str:
    return plural(rate.num_workers, "worker")


def _prefetch(rate: LoaderRate) -> str:
    return f", prefetch_factor={rate.prefetch_factor}" if rate.prefetch_factor else ""
