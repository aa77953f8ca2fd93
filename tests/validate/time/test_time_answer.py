"""Tables of a validation of times, from outcomes made by hand."""

from __future__ import annotations

import pytest

from bsprof.accounting.work import WorkClass
from bsprof.records import Precision, Quantity, WorkloadSpec
from bsprof.validate.cases import Skipped
from bsprof.validate.time.answer import sheets, sweep_scores
from bsprof.validate.time.cases import Calibrates, TimeCase
from bsprof.validate.time.cited import cited
from bsprof.validate.time.collect import TimeCollected
from bsprof.validate.time.constants import CONSTANTS, fitted_constants
from bsprof.validate.time.made_of import blamed
from bsprof.validate.time.outcomes import TimeOutcome, TimeUnpredicted
from bsprof.validate.time.validation import TimeValidation


def case(row="f.csv:2", size=8, seconds=1.0, set_name="", **changes) -> TimeCase:
    return TimeCase(
        row=row,
        source=changes.pop("source", "somebody"),
        family="resnet",
        model="resnet50",
        spec=WorkloadSpec(model="resnet50", precision=Precision.AMP_FP16),
        device="rtx-3090",
        micro_batch=size,
        seconds=seconds,
        set_name=set_name,
        **changes,
    )


def outcome(given: TimeCase, predicted: float, sheet=0.5, **by_class) -> TimeOutcome:
    return TimeOutcome(
        case=given,
        predicted=Quantity(value=predicted, low=0.9 * predicted, high=1.1 * predicted),
        sheet_s=sheet,
        by_class_s={WorkClass(name): seconds for name, seconds in by_class.items()},
        set_name=given.set_name,
    )


def validation(outcomes=(), failed=(), skipped=()) -> TimeValidation:
    cases = [*(o.case for o in outcomes), *(f.case for f in failed)]
    collected = TimeCollected(
        cases=tuple(cases),
        skipped=tuple(skipped),
        judged=frozenset({*(c.row for c in cases), *(s.row for s in skipped)}),
        usable={c.row: c.source for c in cases},
        assumptions={"somebody": ("a guess",)},
    )
    return TimeValidation(collected=collected, outcomes=tuple(outcomes), failed=tuple(failed))


def found(given: TimeValidation, title: str):
    return next(sheet for sheet in sheets(given) if sheet.title.startswith(title))


def cells(given: TimeValidation, title: str) -> dict[str, str]:
    sheet = found(given, title)
    return dict(zip(sheet.columns, sheet.rows[0], strict=True))


def test_a_set_is_held_to_its_bar_and_to_the_data_sheet():
    rows = [
        outcome(case(f"f.csv:{n}", set_name="timm-3090-nchw"), 1.05, sheet=0.5) for n in range(9)
    ]
    rows.append(outcome(case("f.csv:9", set_name="timm-3090-nchw"), 1.3, sheet=0.5))
    row = cells(validation(rows), "Sets")
    assert row["set"] == "timm training, NCHW"
    assert (row["rows"], row["median"], row["90th"]) == ("10", "5.0 %", "5.0 %")
    assert row["covered"] == "90.0 %"
    assert row["asked"] == "median 7, 90th 16"
    assert row["met"] == "yes"
    assert row["data sheet"].startswith("50.0/50/-50")
    assert row["times its own"].endswith("(2.00)")


def test_what_is_missed_is_named():
    row = cells(validation([outcome(case(set_name="sia-bert"), 1.5)]), "Sets")
    assert "median" in row["met"]
    assert "covered" in row["met"]


def test_rows_that_fit_or_calibrate_are_not_scored_but_give_the_constants():
    fitting = outcome(case("f.csv:3", seconds=1.2, training_row=True), 1.2, sheet=0.6)
    point = outcome(case("f.csv:4", calibrates=Calibrates.POINT), 9.0)
    given = validation([fitting, point, outcome(case("f.csv:5"), 1.0)])
    assert [o.case.row for o in given.scored] == ["f.csv:5"]
    assert fitted_constants(given.outcomes) == {"half": pytest.approx(2.0)}


def test_the_constants_are_told_beside_what_rows_here_give():
    given = validation([outcome(case(seconds=1.2, training_row=True), 1.2, sheet=0.6)])
    assert cells(given, "The constants")["here"] == "2.00"
    assert set(CONSTANTS) == {"half", "tf32", "fp32"}


def test_other_files_are_told_by_group_and_together():
    rows = [outcome(case("f.csv:2"), 1.1), outcome(case("f.csv:3", source="another"), 1.5)]
    left = Skipped(row="f.csv:9", source="somebody", model="m", reason="unknown")
    given = validation(rows, skipped=[left])
    together = {row[0]: row[1] for row in found(given, "Other files together").rows}
    assert together["groups"] == "2"
    assert together["median of their medians"] == "30.0 %"
    assert together["groups above 40.0 %"] == "50.0 %"
    assert together["judged rows of supported models that are scored"] == "2 of 3, 66.7 %"


def test_sweeps_are_told_with_the_point_that_calibrates():
    rows = [
        outcome(case(f"f.csv:{b}", size=b, seconds=1.0 + b, sweep="s", calibrates=kind), 1.0 + b)
        for b, kind in ((1, Calibrates.POINT), (2, Calibrates.NOTHING), (4, Calibrates.NOTHING))
    ]
    [(key, score)] = sweep_scores(rows)
    assert key == ("somebody", "rtx-3090", "resnet50")
    assert (score.sizes, score.knee_steps) == (3, 0)


def test_the_class_whose_time_is_wrong_is_blamed_first():
    rows = [
        outcome(case(f"f.csv:{n}"), matmul + 0.4, matmul=matmul, layout=0.4)
        for n, matmul in enumerate((0.8, 0.79, 0.81))
    ]  # layout takes half of that
    name, _share, factor, now, then = blamed(rows)[0]
    assert name == "layout"
    assert float(factor) == pytest.approx(0.5, abs=0.06)
    assert float(then.split()[0]) < float(now.split()[0])


def test_what_is_left_out_is_counted_and_the_worst_come_first():
    lost = TimeUnpredicted(case=case("f.csv:7"), reason="reads values")
    given = validation([outcome(case("f.csv:2"), 1.0), outcome(case("f.csv:3"), 2.0)], [lost])
    assert found(given, "Rows that are not").rows == (("somebody", "1", "reads values", "yes"),)
    assert found(given, "The 20 worst").rows[0][0] == "f.csv:3"
    assert (given.share().hits, given.share().count) == (2, 3)


def test_cited_times_are_of_models_and_devices_that_are_known():
    collected = cited()
    assert len(collected.cases) >= 10
    assert {c.source for c in collected.cases} >= {"timm benchmark", "LLM Foundry"}
    assert all(c.seconds > 0 for c in collected.cases)
    few = cited(limit=2)
    assert len({c.model for c in few.cases}) == 2
    assert few.sampled_from is not None
