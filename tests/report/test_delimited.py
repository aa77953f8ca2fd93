"""The points as comma-separated values."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from bsprof.records import Profile, Recommendation
from bsprof.report import build_report, render


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_numbers_come_back_exactly(
    profile: Profile, recommendation_of: Callable[..., Recommendation]
) -> None:
    data = build_report([("a/b", profile)], recommendation_of())
    rows = rows_of(render("csv", data).decode())
    assert len(rows) == len(profile.points)
    for row, point in zip(rows, profile.points, strict=True):
        assert int(row["micro_batch_size"]) == point.micro_batch_size
        assert row["status"] == point.status
        assert row["profile"] == "a/b"
        if point.micro_step_s is None:
            assert row["micro_step_s"] == row["micro_step_s_low"] == ""
            assert row["reason"]
        else:
            assert float(row["micro_step_s"]) == point.micro_step_s.value
            assert float(row["micro_step_s_high"]) == point.micro_step_s.high
    assert [r["micro_batch_size"] for r in rows if r["recommended"] == "1"] == ["16"]
    assert rows[0]["peak_optimizer_state_bytes"] == str(28 * 2**20)
    assert rows[0]["device_used_bytes"].isdigit()


def test_awkward_names_stay_one_cell(profile_of: Callable[..., Profile]) -> None:
    name = 'a "quoted", name\nwith a line'
    rows = rows_of(render("csv", build_report([(name, profile_of((1,), ()))])).decode())
    assert [row["profile"] for row in rows] == [name]


def test_several_profiles_share_one_header(profile: Profile) -> None:
    text = render("csv", build_report([("a", profile), ("b", profile)])).decode()
    assert text.count("micro_step_s_low") == 1
    assert {row["profile"] for row in rows_of(text)} == {"a", "b"}
    assert text.endswith("\n")
    assert "\r" not in text
