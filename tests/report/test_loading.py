"""The measured loader in a report, and the energy of plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bsprof.records import LoaderPoint, Profile, Quantity, Recommendation
from bsprof.report import build_report, render
from bsprof.report.loading import loader_fact, loader_tables
from bsprof.report.pdf_pages import Pages
from bsprof.report.summary import profile_summary, recommendation_summary
from bsprof.report.tables import Emphasis, alternative_table


def point(workers: int, rate: float, size: int = 16, prefetch: int = 2) -> LoaderPoint:
    return LoaderPoint(
        batch_size=size,
        num_workers=workers,
        prefetch_factor=prefetch if workers else None,
        samples_per_s=Quantity(value=rate, low=0.98 * rate, high=1.02 * rate),
        first_batch_s=0.25,
    )


@pytest.fixture
def fed(profile: Profile) -> Profile:
    """The sizes take from 24 samples a second (one) to 47 (64); two workers give 40."""
    return replace(profile, loader=(point(2, 40.0), point(1, 20.0), point(0, 21.0)))


def test_without_a_loader_nothing_is_shown(profile: Profile) -> None:
    assert loader_tables(profile) == ()
    assert loader_fact(profile) == ""
    assert "loader" not in dict(profile_summary("a", profile).facts)


def test_the_loader_by_setting(fed: Profile) -> None:
    table, _ = loader_tables(fed)
    assert [row.cells for row in table.rows] == [
        ("16", "0", "", "21.0 +-2.0 %", "250 ms"),
        ("16", "1", "2", "20.0 +-2.0 %", "250 ms"),
        ("16", "2", "2", "40.0 +-2.0 %", "250 ms"),
    ]
    assert {len(row.cells) for row in table.rows} == {len(table.columns)}


def test_each_size_is_held_against_the_loader(fed: Profile) -> None:
    _, table = loader_tables(fed)
    assert {len(row.cells) for row in table.rows} == {len(table.columns)}
    assert len(table.rows) == len(fed.ok_points())
    verdicts = {row.cells[0]: (row.cells[-2], row.cells[-1], row.emphasis) for row in table.rows}
    assert verdicts["1"] == ("2", "keeps up", Emphasis.NONE)
    assert verdicts["64"] == ("none", "waits for data", Emphasis.EDGE)


def test_a_profile_whose_sizes_all_failed_shows_the_settings_alone(
    profile_of: Callable[..., Profile],
) -> None:
    nothing = replace(profile_of((), (8,)), loader=(point(0, 21.0),))
    (table,) = loader_tables(nothing)
    assert len(table.rows) == 1
    assert loader_fact(nothing) == ""


def test_one_line_about_the_best_size(fed: Profile) -> None:
    fact = dict(profile_summary("a", fed).facts)["loader"]
    assert (
        fact
        == "40.0 +-2.0 % samples/s with 2 workers at micro-batch 16, measured alone: waits for data"
    )
    quick = replace(fed, loader=(*fed.loader, point(4, 90.0), point(4, 95.0, prefetch=4)))
    assert loader_fact(quick) == (
        "95.0 +-2.0 % samples/s with 4 workers at micro-batch 16, measured alone: keeps up"
    )


@pytest.mark.parametrize("kind", ["html", "md"])
def test_reports_show_both_tables(fed: Profile, kind: str) -> None:
    text = render(kind, build_report([("a", fed)])).decode()
    assert "Data loader" in text
    assert "What each micro-batch takes, and the data loader gives" in text
    assert "waits for data" in text


def test_a_pdf_shows_them_too(fed: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    usual = Pages.line

    def line(self: Pages, text: str, *place: float, **style: Any) -> None:
        lines.append(text)
        usual(self, text, *place, **style)

    monkeypatch.setattr(Pages, "line", line)
    few = replace(fed, points=fed.points[3:5])
    render("pdf", build_report([("a", few)]))
    assert "Data loader" in lines
    assert "waits for data" in " ".join(lines)


def test_the_energy_of_plans_is_shown_where_it_is_known(
    recommendation_of: Callable[..., Recommendation],
) -> None:
    answer = recommendation_of()
    assert "energy_j" not in {c.key for c in alternative_table(answer).columns}
    assert "energy" not in dict(recommendation_summary(answer).facts)
    plan = replace(answer.plan, energy_j=Quantity(value=1234.0, low=1172.3, high=1295.7))
    known = replace(answer, plan=plan)
    table = alternative_table(known)
    index = [c.key for c in table.columns].index("energy_j")
    assert [row.cells[index] for row in table.rows] == ["1,234 J +-5.0 %", "", "", ""]
    assert dict(recommendation_summary(known).facts)["energy"] == "1,234 J +-5.0 % per update"
