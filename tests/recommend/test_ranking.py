"""Devices in order of time or cost, how likely the order is right, and predictions held against
measurements.
"""

import json
from dataclasses import replace

import pytest
from recommend_profiles import (
    GIB,
    Quantity,
    affine,
    device,
    ok_point,
    predicted_profile,
    profile_of,
    timed_prediction,
)

from bsprof.errors import UsageError
from bsprof.hardware.catalogue import find_device
from bsprof.predict.scenarios import WORLDS, factors
from bsprof.recommend.by_size import against_measured
from bsprof.recommend.compare import compare_profiles
from bsprof.recommend.compare_document import comparison_document
from bsprof.recommend.ranking import (
    RankedBy,
    cost_per_million,
    prices_of,
    ranking,
    refuse_useless_prices,
)
from bsprof.records import TimeWorlds

CARDS = {
    "rtx-4090": "NVIDIA GeForce RTX 4090",
    "a100-80gb-sxm": "NVIDIA A100-SXM4-80GB",
    "h100-80gb-sxm": "NVIDIA H100 80GB HBM3",
}


def card(name, slope_s, **times):
    return timed_prediction(
        affine(0.002, slope_s), name=CARDS[name], catalogue=name, times=times or None
    )


def compared(*profiles, **question):
    return compare_profiles([(f"p{i}", p) for i, p in enumerate(profiles, start=1)], **question)


def by(comparison, kind):
    return next((r for r in comparison.rankings if r.by is kind), None)


def test_the_probability_is_the_share_of_worlds():
    worlds = [[1.0, 1.0, 3.0, 3.0], [2.0, 2.0, 2.0, 2.0], [9.0, 9.0, 9.0, 1.0]]
    found = ranking(RankedBy.TIME, worlds, [1.0, 2.0, 9.0])
    assert found.order == (0, 1, 2)
    assert found.first_is_right == pytest.approx(3 / 6)
    assert found.order_is_right == pytest.approx(3 / 6)
    assert ranking(RankedBy.COST, worlds, [9.0, 1.0, 2.0]).order == (1, 2, 0)


def test_devices_that_are_far_apart_are_surely_in_order():
    found = compared(card("a100-80gb-sxm", 0.01), card("h100-80gb-sxm", 0.002))
    rank = by(found, RankedBy.TIME)
    assert rank.order == (1, 0)
    assert rank.first_is_right == rank.order_is_right == pytest.approx((WORLDS + 1) / (WORLDS + 2))
    assert found.title.startswith("NVIDIA H100 80GB HBM3 is predicted to be 4.98 times as "), (
        found.title
    )
    assert by(found, RankedBy.COST) is None


def test_devices_that_are_near_are_not():
    found = compared(card("a100-80gb-sxm", 0.0100), card("h100-80gb-sxm", 0.0099))
    assert 0.3 < by(found, RankedBy.TIME).first_is_right < 0.7
    assert found.title.startswith("no difference shown between")
    assert found.profiles[1].ratio.low < 0.8
    assert found.profiles[1].ratio.high > 1.25


def test_what_two_predictions_share_cancels_in_their_ratio():
    one, two = (card("rtx-4090", slope, machine="one machine") for slope in (0.01, 0.0101))
    found = compared(one, two)
    ratio = found.profiles[1].ratio
    assert found.profiles[0].rate_per_s.relative_width > 0.5
    assert ratio.high - ratio.low < 1e-9
    assert found.title.endswith("is predicted to be 0.990 times as fast as p1")


def test_the_cheaper_card_may_be_the_slower_one():
    found = compared(
        card("h100-80gb-sxm", 0.002),
        card("rtx-4090", 0.005),
        prices={"h100-80gb-sxm": 4.0, "rtx-4090": 0.5},
    )
    assert by(found, RankedBy.TIME).order == (0, 1)
    assert by(found, RankedBy.COST).order == (1, 0)
    first, second = found.profiles
    rate = first.rate_per_s.value
    assert first.cost_per_million.value == pytest.approx(4.0 / 3600 * 1e6 / rate)
    assert second.price_per_hour == 0.5
    document = json.loads(json.dumps(comparison_document(found), allow_nan=False))
    assert document["rankings"][1]["by"] == "cost"
    assert document["rankings"][1]["order"] == ["p2", "p1"]
    assert document["profiles"][0]["price_per_hour"] == 4.0


def test_ranks_are_all_paid():
    cost = cost_per_million(Quantity.exact(100.0), [100.0] * WORLDS, 2.0, 8)
    assert cost.value == cost.low == cost.high == pytest.approx(2.0 * 8 / 3600 * 1e6 / 100)


def test_a_target_ranks_whole_updates():
    profiles = [card("a100-80gb-sxm", 0.01), card("h100-80gb-sxm", 0.002)]
    found = compared(*profiles, target_batch=256, prices={"cuda": 2.0})
    assert [e.plan.micro_batch_size for e in found.profiles] == [16, 64]
    for entry in found.profiles:
        assert len(entry.rate_worlds) == WORLDS
        step = entry.plan.step_time_s
        slowest = 256 / min(entry.rate_worlds)
        assert step.value < slowest
        assert 256 / entry.rate_per_s.value == pytest.approx(step.value)
    assert by(found, RankedBy.COST).order == (1, 0)


def test_a_measurement_has_worlds_of_its_own():
    seconds = Quantity(value=0.64, low=0.62, high=0.66)
    real = profile_of(
        [ok_point(64, 0.64, used_bytes=GIB, micro_step_s=seconds)], device=device(name="Real")
    )
    found = compared(card("h100-80gb-sxm", 0.009), real)
    spread = [w / found.profiles[1].rate_per_s.value for w in found.profiles[1].rate_worlds]
    assert 0.9 < min(spread) < 0.97
    assert 1.03 < max(spread) < 1.1
    assert found.title.startswith("no difference shown between Real")
    assert [n.message for n in found.notes if n.code == "not-measured"] == [
        "NVIDIA H100 80GB HBM3: the numbers are predicted, not measured."
    ]


def test_worlds_of_another_version_are_not_paired():
    whole = card("h100-80gb-sxm", 0.002)

    def fewer(point):
        worlds = point.prediction.worlds if point.prediction else None
        if worlds is None:
            return point
        short = TimeWorlds(
            micro_step_s=worlds.micro_step_s[:30], optimizer_step_s=worlds.optimizer_step_s[:30]
        )
        return replace(point, prediction=replace(point.prediction, worlds=short))

    older = replace(whole, points=tuple(map(fewer, whole.points)))
    found = compared(older, card("a100-80gb-sxm", 0.01))
    assert len(found.profiles[0].rate_worlds) == WORLDS
    assert by(found, RankedBy.TIME).order == (0, 1)


def test_all_predicted_is_said_once():
    found = compared(card("a100-80gb-sxm", 0.01), card("h100-80gb-sxm", 0.002))
    assert [n.message for n in found.notes] == ["All numbers are predicted; nothing was measured."]


def test_three_devices_have_a_first():
    found = compared(
        card("a100-80gb-sxm", 0.01), card("h100-80gb-sxm", 0.002), card("rtx-4090", 0.02)
    )
    assert found.title == "NVIDIA H100 80GB HBM3 is predicted to be the fastest"
    assert by(found, RankedBy.TIME).order == (1, 0, 2)


def test_a_price_is_of_the_very_device():
    profiles = [card(name, 0.01) for name in CARDS]
    assert prices_of({"4090": 0.5, "A100-SXM4-80GB": 1.5}, profiles) == (0.5, 1.5, None)
    assert prices_of({"cuda": 1.0}, profiles) == (1.0, 1.0, 1.0)
    assert prices_of({}, profiles) == (None, None, None)
    variant = timed_prediction(
        affine(0.0, 0.01), name="NVIDIA GeForce RTX 4090 D", catalogue="rtx-4090-d"
    )
    assert prices_of({"rtx-4090": 1.0}, [variant, profiles[0]]) == (None, 1.0)
    real = profile_of([ok_point(1, 0.1)], device=device(kind="cuda", name="NVIDIA H100 80GB HBM3"))
    assert prices_of({"h100-80gb-sxm": 3.0}, [real]) == (3.0,)
    processor = profile_of([ok_point(1, 0.1)], device=device(name="AMD EPYC 9B14"))
    assert prices_of({"epyc": 0.1}, [processor]) == (0.1,)


def test_a_price_of_nothing_is_refused_and_one_too_few_is_told():
    profiles = [card("a100-80gb-sxm", 0.01), card("h100-80gb-sxm", 0.002)]
    with pytest.raises(UsageError, match="a price is given for l4, and nothing"):
        compared(*profiles, prices={"l4": 1.0})
    ahead = [find_device("l4")]
    refuse_useless_prices({"l4": 1.0}, ahead, profiles)
    refuse_useless_prices({"h100-80gb-sxm": 1.0}, ahead, profiles)
    with pytest.raises(UsageError, match="for t4"):
        refuse_useless_prices({"t4": 1.0}, ahead, profiles)
    found = compared(*profiles, prices={"h100-80gb-sxm": 3.0})
    assert by(found, RankedBy.COST) is None
    [note] = [n for n in found.notes if n.code == "no-price"]
    assert note.message == "No price was given for NVIDIA A100-SXM4-80GB."


def measured_like(prediction, factor):
    """What the card of a prediction measured: its times are those predicted times a factor."""
    points = [
        ok_point(
            p.micro_batch_size,
            factor * p.micro_step_s.value,
            used_bytes=p.device_used_bytes.value,
            half_width=0.01,
        )
        for p in prediction.points
        if p.is_ok
    ]
    return profile_of(points, device=prediction.device)


@pytest.mark.parametrize(("factor", "inside", "way"), [(1.25, 7, "low"), (0.5, 0, "high")])
def test_predicted_times_are_held_against_measured_ones(factor, inside, way):
    prediction = card("rtx-4090", 0.01)
    found = compared(prediction, measured_like(prediction, factor))
    memory, time = found.against
    assert (memory.field, time.field) == ("device_used_bytes", "micro_step_s")
    assert time.median_error == pytest.approx(1 / factor - 1)
    assert time.inside == inside
    assert found.title.startswith("the time of a micro-step is predicted")
    assert f" too {way} in the median of 7 sizes; {inside} of 7 measured values" in found.title
    assert "predicted to be" not in found.profiles[1].verdict
    fields = [pair["field"] for pair in comparison_document(found)["predicted_against_measured"]]
    assert fields == ["device_used_bytes", "micro_step_s"]


def test_times_of_another_card_say_nothing_of_the_prediction():
    prediction = card("rtx-4090", 0.01)
    other = replace(
        measured_like(prediction, 1.0), device=replace(prediction.device, name="NVIDIA A100")
    )
    assert [pair.field for pair in against_measured([prediction, other])] == ["device_used_bytes"]
    title = compared(prediction, other).title
    assert title.startswith("no difference shown between NVIDIA A100")


def test_a_prediction_without_times_has_no_rank():
    found = compared(card("rtx-4090", 0.01), predicted_profile())
    assert found.rankings == ()
    assert found.profiles[1].rate_worlds == ()


def test_draws_of_a_name_are_always_the_same():
    assert factors("x", 0.3) == factors("x", 0.3)
    assert factors("x", 0.3) != factors("y", 0.3)
