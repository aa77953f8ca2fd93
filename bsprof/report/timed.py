"""What a predicted profile says of time, in a few facts; pure Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bsprof.fit.knee import KNEE_SHARE, knee_from_points
from bsprof.fit.samples import TIE_SHARE
from bsprof.fit.worlds import micro_step_worlds, probability
from bsprof.records import Origin, Point, Profile, Regime, per_second
from bsprof.report.words import best_point, quantity_text, size_range_text
from bsprof.units import format_count, format_share

TIMES_FROM = "Where the times come from"
"""Heading of the sentences of `provenance_sentences`."""


def is_timed_prediction(profile: Profile) -> bool:
    """Whether a profile is predicted, and its times are."""
    predicted = profile.origin is Origin.PREDICTED
    return predicted and any(p.micro_step_s is not None for p in profile.points)


def time_facts(profile: Profile) -> tuple[tuple[str, str], ...]:
    """Label and text: rate, knee, what binds, and how sure that is; empty without times."""
    best = best_point(profile)
    if not is_timed_prediction(profile) or best is None or best.micro_step_s is None:
        return ()
    return tuple(_facts(profile, best))


def _facts(profile: Profile, best: Point) -> Iterator[tuple[str, str]]:
    assert best.micro_step_s is not None
    size = f"{best.micro_batch_size:,}"
    rate = per_second(best.micro_batch_size, best.micro_step_s)
    yield "samples/s", f"{quantity_text(rate, format_count)} in micro-steps of {size}"
    tokens = profile.facts.tokens_per_sample if profile.facts else None
    if tokens:
        yield "tokens/s", quantity_text(rate.scaled(tokens), format_count)
    knee = knee_from_points(profile.ok_points())
    if knee is not None:
        share = format_share(KNEE_SHARE)
        yield "knee", f"{size_range_text(knee)}, for {share} of the full throughput"
    if bound := regimes_text(profile.ok_points()):
        yield "bound by", bound
    if sure := sureness_text(profile):
        yield "how sure", sure


def regimes_text(points: Sequence[Point]) -> str:
    """What binds from which size on: `launch up to 2, compute from 4 on`; empty where unknown."""
    known = [p for p in points if p.regime is not Regime.UNKNOWN]
    runs: list[tuple[Regime, list[int]]] = []
    for point in known:
        if not runs or runs[-1][0] is not point.regime:
            runs.append((point.regime, []))
        runs[-1][1].append(point.micro_batch_size)
    if len(runs) == 1:
        return f"{runs[0][0]} at all sizes"
    parts = []
    for place, (regime, sizes) in enumerate(runs):
        first, last = f"{sizes[0]:,}", f"{sizes[-1]:,}"
        if place == 0:
            parts.append(f"{regime} up to {last}")
        elif place == len(runs) - 1:
            parts.append(f"{regime} from {first} on")
        else:
            parts.append(f"{regime} at {first}" + (f" to {last}" if first != last else ""))
    return ", ".join(parts)


def sureness_text(profile: Profile) -> str:
    """How likely no size is clearly faster than the best one; empty where that is not known."""
    best = best_point(profile)
    others = [p for p in profile.ok_points() if p is not best and micro_step_worlds(p)]
    if best is None or not others:
        return ""
    mine = micro_step_worlds(best)
    rows = [micro_step_worlds(p) for p in others]
    if any(len(row) != len(mine) for row in rows):
        return ""
    limit, size = 1 + TIE_SHARE, best.micro_batch_size
    fastest = [
        min(s / p.micro_batch_size for s, p in zip(now, others, strict=True))
        for now in zip(*rows, strict=True)
    ]
    sure = probability([a / size <= limit * b for a, b in zip(mine, fastest, strict=True)])
    return (
        f"with probability {format_share(sure)} no size that fits is more than "
        f"{format_share(TIE_SHARE)} faster than {size:,}"
    )


def provenance_sentences(profile: Profile) -> tuple[str, ...]:
    """Where predicted times come from, as whole sentences; empty where there are none."""
    known = () if profile.prediction is None else profile.prediction.timing
    return tuple(
        f"{text[0].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")
        for text in known
        if text
    )
