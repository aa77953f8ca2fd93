"""A comparison as a table, as a summary, and in the formats of a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bsprof.recommend.compare import compare_profiles
from bsprof.records import Precision, Profile, Quantity
from bsprof.report import build_report, render
from bsprof.report.comparison import comparison_summary, comparison_table


def rows_of(pair: list[tuple[str, Profile]], **question: int) -> dict[str, tuple[str, ...]]:
    table = comparison_table(compare_profiles(pair, **question))
    assert {len(row.cells) for row in table.rows} == {len(table.columns)}
    return {row.cells[0]: row.cells[1:] for row in table.rows}


def fast_and_slow(profile_of: Callable[..., Profile]) -> list[tuple[str, Profile]]:
    slow, fast = profile_of(), profile_of(device="Other")
    points = tuple(
        replace(p, timing=None, micro_step_s=p.micro_step_s.scaled(0.5)) if p.micro_step_s else p
        for p in fast.points
    )
    spec = replace(fast.workload, precision=Precision.AMP_BF16)
    return [("a", slow), ("b", replace(fast, workload=spec, points=points))]


def test_what_differs_leads_and_rates_carry_their_interval(
    profile_of: Callable[..., Profile],
) -> None:
    rows = rows_of(fast_and_slow(profile_of))
    assert list(rows)[:3] == ["device", "precision", "micro-batch"]
    assert rows["precision"] == ("fp32", "amp-bf16")
    assert rows["micro-batch"] == ("16", "16")
    assert rows["ratio to the first"] == ("1", "2.00 (1.98 to 2.02)")
    assert rows["samples/s in micro-steps"][1] == "92.8 +-1.0 %"
    assert rows["peak memory"] == ("780 MiB", "780 MiB")
    assert rows["largest that fits"][0] == "74 (71 to 77)"
    assert rows["checked"] == ("ran again, fitted", "ran again, fitted")
    assert rows["profile"] == ("a", "b")
    assert "accumulation steps" not in rows
    assert "update of one micro-batch" in rows


def test_with_a_target_it_is_plans(profile_of: Callable[..., Profile]) -> None:
    rows = rows_of(fast_and_slow(profile_of), target_batch=2048)
    assert rows["micro-batch"] == ("32", "64")
    assert rows["accumulation steps"] == ("64", "32")
    assert rows["update"][0] == "43.6 s +-0.4 %"
    assert "samples/s" in rows
    assert rows["checked"] == ("measured once", "measured once")


def test_energy_is_shown_where_it_was_measured(profile_of: Callable[..., Profile]) -> None:
    pair = fast_and_slow(profile_of)
    assert "energy of an update" not in rows_of(pair)
    name, profile = pair[1]
    points = tuple(
        replace(p, energy_j=Quantity.exact(40.0)) if p.is_ok else p for p in profile.points
    )
    measured = [pair[0], (name, replace(profile, points=points))]
    assert rows_of(measured)["energy of an update"] == ("", "40.0 J")
    asked = rows_of(measured, target_batch=2048)["energy of an update"]
    assert asked[1].endswith(" J")


def test_without_an_answer_it_says_so(profile_of: Callable[..., Profile]) -> None:
    rows = rows_of([("a", profile_of()), ("b", profile_of((), (1,)))])
    assert rows["ratio to the first"] == ("1", "no answer")
    assert rows["micro-batch"] == ("16", "")
    assert "profile" not in rows  # the names are the labels


def test_a_summary_says_what_is_compared_and_what_is_the_same(
    profile_of: Callable[..., Profile],
) -> None:
    pair = fast_and_slow(profile_of)
    summary = comparison_summary(compare_profiles(pair))
    assert summary.title == "Other is 2.00 times as fast as AMD EPYC 9B14 (1.98 to 2.02)"
    assert [name for name, _ in summary.facts] == ["compared", "same in all"]
    facts = dict(summary.facts)
    assert facts["same in all"] == "gpt-tiny, adamw"
    three = comparison_summary(compare_profiles([*pair, ("c", profile_of((1, 2)))]))
    assert [name for name, _ in three.facts][:2] == ["verdict", "verdict"]
    asked = compare_profiles(pair, target_tokens=2048 * 128, world_size=2)
    text = dict(comparison_summary(asked).facts)["compared"]
    assert text == "the recommended plans for 262,144 tokens per update over 2 ranks"


def test_every_format_shows_it(profile_of: Callable[..., Profile]) -> None:
    pair = fast_and_slow(profile_of)
    data = build_report(pair, comparison=compare_profiles(pair, target_batch=2048))
    title = "Other is 2.01 times as fast as AMD EPYC 9B14"
    page = render("html", data).decode()
    assert title in page
    assert "the recommended plans for 2,048 samples per update" in page
    text = render("md", data).decode()
    assert f"## {title} (1.99 to 2.03)" in text
    assert "| **ratio to the first** | **1** | **2.01 (1.99 to 2.03)** |" in text
