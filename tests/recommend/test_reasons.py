"""The sentences that say why, and the document that carries them."""

import json

import pytest
from recommend_profiles import (
    GIB,
    MIB,
    PointStatus,
    Quantity,
    affine,
    curve_profile,
    facts,
    failed_point,
    ok_point,
    profile_of,
)

from bsprof.recommend import recommend_plan, recommendation_document
from bsprof.recommend.wording import listing, pieces, plural, slower_or_faster, with_interval
from bsprof.records import RankPieces, Regime
from bsprof.units import format_seconds

SIZES = [1, 2, 4, 8, 16, 32, 64]


def test_the_whole_text():
    def seconds(size):
        return 0.05 + 0.005 * size if size <= 32 else 0.2105 * size / 32

    points = [
        ok_point(
            b,
            seconds(b),
            used_bytes=(200 + 30 * b) * MIB,
            half_width=0.002,
            regime=Regime.COMPUTE,
            mfu=Quantity.exact(0.58),
            confirmed=b == 32,
        )
        for b in SIZES
    ]
    profile = profile_of([*points, failed_point(128)])
    answer = recommend_plan(profile, target_batch=2000)
    assert answer.reasons[0] == (
        "Run 62 micro-steps of 32 and 1 of 16: exactly 2,000 samples per update, in 13.2 s "
        "(13.1 s to 13.2 s), 152 samples per second."
    )
    assert answer.reasons[1].startswith("Of 7 measured sizes that fit, 32 takes the least time")
    assert "at 32 arithmetic limits it (58 % of the device's peak FLOP/s)" in answer.reasons[2]
    assert answer.reasons[3] == (
        "Its peak is 1.13 GiB of 3.00 GiB usable: 1.87 GiB (62 %) stays free, 154 MiB were asked "
        "for."
    )
    assert answer.reasons[4].startswith("The next larger size measured, 64, would be ")
    assert answer.reasons[4].endswith("and need 960 MiB more.")
    assert answer.reasons[5].startswith("What the runner-up sizes cost per update: 64 is ")
    assert answer.reasons[6] == (
        "How sure: 32 was run again in a fresh process, and fitted; the time is known to within "
        "0.2 % (90 % interval)."
    )


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (affine(0.0, 0.01), "Throughput is the same at all measured sizes"),
        (lambda b: 0.01 * b**1.3, "Throughput is best at the smallest sizes"),
        (affine(1.0, 0.001), "Throughput still rises at the largest measured size"),
        (affine(0.005, 0.01), "the knee: 95 % of the full throughput is reached at about "),
    ],
)
def test_the_shape_of_the_curve(seconds, expected):
    answer = recommend_plan(curve_profile(SIZES, seconds, half_width=0.002), target_batch=512)
    assert any(expected in reason for reason in answer.reasons)


def next_larger(answer):
    (found,) = [
        r for r in answer.reasons if "arger" in r and "runner-up" not in r and "knee" not in r
    ]
    return found


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (PointStatus.OOM, "128, ran out of memory."),
        (PointStatus.KILLED, "128, was killed for its memory."),
        (PointStatus.TIMEOUT, "128, did not end within its time limit."),
        (PointStatus.NOT_MEMORY_LIMIT, "128, hit a limit that is not memory."),
    ],
)
def test_why_not_larger_failed(status, expected):
    profile = curve_profile(SIZES, affine(0.02, 0.005))
    points = [*profile.points, failed_point(128, status)]
    answer = recommend_plan(profile_of(points), target_batch=512)
    assert next_larger(answer).endswith(expected)


def test_why_not_larger_otherwise():
    profile = curve_profile(SIZES, affine(0.02, 0.005))
    assert next_larger(recommend_plan(profile, target_batch=512)) == (
        "No larger size was measured."
    )
    assert next_larger(recommend_plan(profile, target_batch=16, world_size=2)) == (
        "No larger micro-batch is possible: 8 is the whole update of a rank."
    )
    known = curve_profile(
        SIZES, affine(0.02, 0.005), max_micro_batch_size=Quantity(value=92, low=90, high=95)
    )
    assert next_larger(recommend_plan(known, target_batch=512)).endswith("fits is about 92.0.")
    tight = recommend_plan(profile, target_batch=512, headroom=2 * GIB)
    assert "but needs up to 1.13 GiB where the headroom leaves 1.00 GiB" in next_larger(tight)


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        (Quantity(value=0.012, low=0.003, high=0.021), "1.2 % slower (0.3 % to 2.1 %)"),
        (Quantity(value=-0.012, low=-0.02, high=0.001), "1.2 % faster (-0.1 % to 2.0 %)"),
        (Quantity.exact(0.2), "20 % slower"),
        (Quantity.exact(0.0), "as fast"),
        (Quantity(value=0.0001, low=-0.004, high=0.003), "as fast (to within 0.4 %)"),
    ],
)
def test_slower_or_faster(quantity, expected):
    assert slower_or_faster(quantity) == expected


def test_phrases():
    assert plural(1, "rank") == "1 rank"
    assert plural(2048, "forward pass") == "2,048 forward passes"
    runs = RankPieces.of((64, 64, 16)).runs
    assert pieces(runs, "micro-step") == "2 micro-steps of 64 and 1 of 16"
    assert listing(["a"]) == "a"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert with_interval(Quantity.exact(2), format_seconds) == "2.00 s"
    assert with_interval(Quantity(value=2, low=1, high=3), format_seconds) == (
        "2.00 s (1.00 s to 3.00 s)"
    )


DOCUMENTED = {
    "schema",
    "target_batch",
    "world_size",
    "micro_batch_size",
    "accumulation_steps",
    "pieces_by_rank",
    "effective_batch_size",
    "target_tokens",
    "step_time_s",
    "samples_per_s",
    "device_used_bytes",
    "headroom_bytes",
    "confirmed",
    "regime",
    "knee",
    "alternatives",
    "advice",
    "notes",
    "profile",
}


def test_the_document():
    profile = curve_profile(SIZES, affine(0.005, 0.01), facts=facts(batch_norm_modules=2))
    answer = recommend_plan(profile, target_batch=513, world_size=2, profile_name="cpu/x")
    document = recommendation_document(answer)
    assert document.keys() >= DOCUMENTED
    assert json.loads(json.dumps(document)) == document
    assert sum(map(sum, document["pieces_by_rank"])) == document["target_batch"] == 513
    assert document["step_time_s"].keys() == {"value", "low", "high"}
    assert document["schema"] == 1
    assert document["profile"] == "cpu/x"
    assert document["reasons"] == list(answer.reasons)
    assert {n["code"] for n in document["advice"]} >= {"batch-norm", "piece-weights"}
    for alternative in document["alternatives"]:
        assert alternative["reason"]
        assert alternative["slower_by"]["low"] <= alternative["slower_by"]["value"]
        assert alternative["micro_batch_size"] != document["micro_batch_size"]
