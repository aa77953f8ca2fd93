"""Tables of points, plans and profiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bsprof.records import Alternative, Profile, Quantity, Recommendation
from bsprof.report.tables import (
    Emphasis,
    Table,
    alternative_table,
    point_table,
    slower_text,
)


def column(table: Table, key: str) -> list[str]:
    index = [c.key for c in table.columns].index(key)
    return [row.cells[index] for row in table.rows]


def test_every_point_has_a_row_and_every_row_all_cells(profile: Profile) -> None:
    table = point_table(profile, 16)
    assert len(table.rows) == len(profile.points) == 10
    assert {len(row.cells) for row in table.rows} == {len(table.columns)}
    assert column(table, "micro_batch_size")[:3] == ["1", "2", "4"]
    assert column(table, "micro_step_s")[4] == "345 ms +-1.0 %"
    assert column(table, "reason")[-1].startswith("the CPU allocator refused memory")


def test_emphasis_tells_chosen_failed_and_edge(edge_profile: Profile) -> None:
    rows = {row.cells[0]: row.emphasis for row in point_table(edge_profile, 16).rows}
    assert rows["16"] is Emphasis.CHOSEN
    assert rows["8"] is Emphasis.NONE
    assert rows["64"] is Emphasis.EDGE
    assert rows["80"] is Emphasis.FAILED


def test_columns_that_nobody_knows_are_left_out(profile_of: Callable[..., Profile]) -> None:
    with_peaks = {c.key for c in point_table(profile_of()).columns}
    without = {c.key for c in point_table(profile_of(with_peaks=False)).columns}
    assert {"mfu", "regime"} <= with_peaks
    assert with_peaks - without == {"mfu", "regime"}
    assert not {"hfu", "energy_j", "compile_s", "micro_step_sync_s"} & with_peaks
    nothing = point_table(profile_of((), ()))
    assert [c.key for c in nothing.columns] == ["micro_batch_size", "status"]
    assert nothing.rows == ()


def test_hfu_is_shown_only_where_it_differs_from_mfu(profile: Profile) -> None:
    points = tuple(
        replace(p, hfu=p.mfu.scaled(1.3)) if p.mfu and p.micro_batch_size == 2 else p
        for p in profile.points
    )
    table = point_table(replace(profile, points=points))
    assert [bool(cell) for cell in column(table, "hfu")].count(True) == 1


def test_an_mfu_above_one_is_flagged(profile: Profile) -> None:
    first = replace(profile.points[0], mfu=Quantity.exact(1.07))
    table = point_table(replace(profile, points=(first, *profile.points[1:])))
    assert column(table, "mfu")[0] == "107 % (above 1)"
    assert "above" not in column(table, "mfu")[1]


def test_the_chosen_plan_leads_and_the_others_follow_by_time(
    recommendation_of: Callable[..., Recommendation],
) -> None:
    table = alternative_table(recommendation_of())
    assert column(table, "micro_batch_size") == ["16", "64", "32", "8"]
    assert table.rows[0].emphasis is Emphasis.CHOSEN
    assert column(table, "slower_by") == [
        "",
        "-2.0 % (-2.6 to -1.4)",
        "-1.3 % (-1.9 to -0.7)",
        "+2.6 % (+2.0 to +3.2)",
    ]
    assert table.caption == "Plans for 2,048 samples per update"


def test_a_plan_alone_has_no_column_for_what_is_slower(
    recommendation_of: Callable[..., Recommendation],
) -> None:
    table = alternative_table(replace(recommendation_of(), alternatives=()))
    assert "slower_by" not in {c.key for c in table.columns}
    assert len(table.rows) == 1


def test_an_interpolated_plan_says_so(recommendation_of: Callable[..., Recommendation]) -> None:
    answer = recommendation_of()
    other = Alternative(
        plan=replace(answer.plan, micro_batch_size=24, interpolated=True),
        slower_by=Quantity.exact(0.01),
        reason="slower",
    )
    table = alternative_table(replace(answer, alternatives=(other,)))
    assert column(table, "micro_batch_size") == ["16", "24 (interpolated)"]
    assert slower_text(other.slower_by) == "+1.0 %"
