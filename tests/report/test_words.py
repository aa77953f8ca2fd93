"""Short texts about quantities, plans and points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsprof.records import (
    Mode,
    Note,
    Point,
    PointStatus,
    Precision,
    Profile,
    Quantity,
    RankPieces,
    Recommendation,
    WorkloadSpec,
)
from bsprof.report.words import (
    STATUS_NAMES,
    best_point,
    counts_text,
    environment_rows,
    failure_text,
    note_text,
    origin_text,
    pieces_text,
    plan_text,
    quantity_text,
    size_range_text,
    spread_text,
    status_text,
    workload_text,
)
from bsprof.units import format_seconds


def test_a_spread_is_the_wider_half_of_the_interval() -> None:
    assert spread_text(Quantity(value=100, low=99, high=104)) == "+-4.0 %"
    assert spread_text(Quantity.exact(3.0)) == ""
    assert spread_text(Quantity(value=1.0, low=0.9999, high=1.0)) == ""
    assert spread_text(Quantity(value=0, low=-1, high=1)) == ""


def test_a_quantity_carries_unit_and_spread() -> None:
    assert quantity_text(Quantity(value=0.02, low=0.019, high=0.02), format_seconds) == (
        "20.0 ms +-5.0 %"
    )
    assert quantity_text(None, format_seconds) == ""


def test_a_size_range_is_in_whole_samples_of_at_least_one() -> None:
    assert size_range_text(Quantity(value=71.4, low=68, high=1074)) == "71 (68 to 1,074)"
    assert size_range_text(Quantity.exact(71)) == "71"
    assert size_range_text(Quantity(value=0.3, low=0.1, high=2)) == "1 (1 to 2)"


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([RankPieces.of((32, 32, 32))], "3 x 32"),
        ([RankPieces.of((32, 32, 17))], "2 x 32 + 1 x 17"),
        (
            [RankPieces.of((8, 8), ranks=2), RankPieces.of((8, 7))],
            "ranks 0 to 1: 2 x 8; rank 2: 1 x 8 + 1 x 7",
        ),
    ],
)
def test_pieces_are_counted_and_equal_ranks_put_together(
    pieces: list[RankPieces], text: str
) -> None:
    assert pieces_text(pieces) == text


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.builds(
            RankPieces.of, st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 4)
        ),
        min_size=1,
        max_size=2,
    )
)
def test_the_text_of_pieces_names_every_sample(pieces: list[RankPieces]) -> None:
    total = 0
    for group in pieces_text(pieces).split("; "):
        where, _, runs = group.rpartition(": ")
        ends = [int(word) for word in where.split() if word.isdigit()]
        ranks = ends[-1] - ends[0] + 1 if ends else 1
        per_rank = (run.split(" x ") for run in runs.split(" + "))
        total += ranks * sum(int(count) * int(size) for count, size in per_rank)
    assert total == sum(kind.ranks * kind.samples for kind in pieces)


def test_the_plan_names_ranks_only_when_there_are_several(
    recommendation_of: Callable[..., Recommendation],
) -> None:
    assert plan_text(recommendation_of(16, 2048)) == "micro-batch 16 x 128 accumulation steps"
    assert plan_text(recommendation_of(16, 16)) == "micro-batch 16 x 1 accumulation step"
    assert plan_text(recommendation_of(16, 64, 4)).endswith("x 1 accumulation step x 4 ranks")


def test_a_workload_is_told_without_its_defaults() -> None:
    assert workload_text(WorkloadSpec(model="mlp")) == "mlp, fp32, adamw"
    spec = WorkloadSpec(
        model="t.py:f",
        seq_len=2048,
        image_size=224,
        precision=Precision.AMP_BF16,
        mode=Mode.INFER,
        clip_norm=0.5,
        activation_checkpointing="full",
        attention="eager",
        compile=True,
        channels_last=True,
    )
    assert workload_text(spec) == (
        "t.py:f, sequence 2,048, image 224, amp-bf16, inference, clip norm 0.5, "
        "checkpointing full, eager attention, compiled, channels last"
    )


def test_every_status_has_words() -> None:
    assert set(STATUS_NAMES) == set(PointStatus)


def test_a_point_at_the_edge_is_not_called_ok(edge_profile: Profile) -> None:
    edge = edge_profile.point(64)
    assert edge is not None
    assert status_text(edge) == "ok, at the edge"
    assert "never recommended" in failure_text(edge)
    assert counts_text(edge_profile) == "7 ok, 1 at the edge, 2 out of memory"


def test_a_failure_tells_reason_size_place_and_phase(profile: Profile) -> None:
    failed = profile.points[-1]
    assert failure_text(failed) == (
        "the CPU allocator refused memory, asked for 300 MiB, at train.py:12, during step"
    )
    assert failure_text(profile.points[0]) == ""


def test_confirmed_points_say_so(profile: Profile) -> None:
    assert status_text(Point(micro_batch_size=3, status=PointStatus.OK)) == "ok"
    assert [status_text(p) for p in profile.points if p.confirmed] == ["ok, confirmed"]


def test_the_confirmed_size_is_the_best_even_if_another_is_faster(profile: Profile) -> None:
    best = best_point(profile)
    assert best is not None
    assert best.micro_batch_size == 16
    unconfirmed = replace(
        profile, points=tuple(replace(p, confirmed=False) for p in profile.points)
    )
    fastest = best_point(unconfirmed)
    assert fastest is not None
    assert fastest.micro_batch_size == 64
    assert best_point(replace(profile, points=profile.points[-2:])) is None


def test_a_note_reads_as_one_line() -> None:
    note = Note(code="x", message="too noisy", hint="measure longer", micro_batch_size=8)
    assert note_text(note) == "micro-batch 8: too noisy; measure longer"
    assert note_text(Note(code="x", message="Done.", hint="Rest.")) == "Done. Rest."
    assert note_text(Note(code="x", message="alone")) == "alone"


def test_an_unfinished_sweep_says_so(profile: Profile) -> None:
    assert origin_text(profile) == "measured"
    assert origin_text(replace(profile, complete=False)) == "measured, not complete"


def test_the_environment_tells_software_device_peaks_and_settings(profile: Profile) -> None:
    rows = dict(environment_rows(profile))
    assert rows["torch"] == "2.13.0"
    assert rows["peak fp32"] == "220 GFLOP/s"
    assert rows["peaks from"] == "probe"
    assert rows["tf32"] == "no"
    assert rows["OMP_NUM_THREADS"] == "-"
    assert "peak fp32" not in dict(environment_rows(replace(profile, peaks=None)))
