"""One kept output per text exporter: a change of what readers see is seen in the difference.

The profile has one size that ran, so nothing is fitted and the bytes hold on every machine. After
a wanted change, write the files again from `render` and read the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bsprof.records import Profile, Recommendation
from bsprof.report import build_report, render

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("report_format", ["md", "csv"])
def test_the_output_is_the_one_that_is_kept(
    report_format: str,
    profile_of: Callable[..., Profile],
    recommendation_of: Callable[..., Recommendation],
) -> None:
    data = build_report([("cpu/gpt-tiny", profile_of((16,), (80,)))], recommendation_of(16, 1000))
    kept = (GOLDEN / f"report.{report_format}").read_bytes()
    assert render(report_format, data) == kept
