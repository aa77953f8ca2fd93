"""The tables of a validation, from outcomes made by hand; and grouping of cases."""

from __future__ import annotations

from bsprof.predict.target import Protocol
from bsprof.records import Phase, Quantity, WorkloadSpec
from bsprof.validate.answer import Validation, sheets
from bsprof.validate.cases import Bracket, Case, Kind, Measured, Skipped
from bsprof.validate.collect import Collected
from bsprof.validate.outcomes import Outcome, Unpredicted
from bsprof.validate.predict import grouped
from bsprof.validate.scores import BracketAnswer

GIB = 2**30


def case(model="resnet50", size=8, *, gib=None, bracket=None, **spec) -> Case:
    return Case(
        row=f"f.csv:{size}",
        source="somebody",
        family="resnet",
        model=model,
        spec=WorkloadSpec(model=model, **spec),
        device="rtx-3090",
        micro_batch=size,
        measured=None if gib is None else Measured(kind=Kind.DEVICE, bytes=gib * GIB),
        bracket=bracket,
    )


def predicted(given: Case, gib: float) -> Outcome:
    return Outcome(
        case=given,
        predicted=Quantity(value=gib * GIB, low=0.9 * gib * GIB, high=1.1 * gib * GIB),
        made_of={"weights": gib * GIB},
        phase=Phase.FORWARD_BACKWARD,
    )


def validation(outcomes=(), failed=(), skipped=()) -> Validation:
    collected = Collected(
        cases=tuple(o.case for o in outcomes),
        skipped=tuple(skipped),
        assumptions={"somebody": ("a guess",)},
    )
    return Validation(collected=collected, outcomes=tuple(outcomes), failed=tuple(failed))


def found(given: Validation, title: str):
    return next(sheet for sheet in sheets(given) if sheet.title.startswith(title))


def test_peaks_are_told_by_source_device_and_quantity():
    given = validation(
        [predicted(case(size=8, gib=2.0), 2.2), predicted(case(size=16, gib=4.0), 4.4)]
    )
    peak, slope = found(given, "Error of peaks").rows
    assert peak[:4] == ("somebody", "rtx-3090", "device", "peak")
    assert peak[4:7] == ("2", "10.0 %", "10.0 %")
    assert slope[3:6] == ("per sample", "1", "10.0 %")


def test_rows_left_out_are_counted_with_their_reasons():
    lost = Unpredicted(case=case("odd", gib=1.0), reason="reads values")
    left = [
        Skipped(row=f"f.csv:{n}", source="somebody", model="m", reason="no peak", counts=False)
        for n in range(3)
    ]
    given = validation([predicted(case(gib=2.0), 2.0)], [lost], left)
    rows = {row[2]: (row[1], row[3]) for row in found(given, "Rows that are not").rows}
    assert rows == {"no peak": ("3", "no"), "reads values": ("1", "yes")}
    assert (given.scored().hits, given.scored().count) == (1, 2)
    assert found(given, "Rows scored").rows == (("somebody", "1", "2", "50.0 %"),)


def test_the_worst_row_comes_first_with_what_it_is_made_of():
    given = validation(
        [predicted(case("good", gib=2.0), 2.0), predicted(case("bad", gib=2.0), 3.0)]
    )
    first = found(given, "The 20 worst").rows[0]
    assert first[1] == "bad"
    assert first[3] == "+50.0 %"
    assert "weights" in first[-1]


def test_missed_brackets_are_named_and_near_ones_are_not():
    def answered(model, **flags):
        bracket = Bracket(fits=64, fails=96)
        answer = BracketAnswer(name=model, lower_fits=True, fits=64, fails=96, **flags)
        return Outcome(case=case(model, bracket=bracket), answer=answer)

    given = validation(
        [
            answered("inside", upper_fits=False),
            answered("far", upper_fits=True),
            answered("near", upper_fits=True, upper_near=True),
        ]
    )
    assert [row[1] for row in found(given, "Missed").rows] == ["far"]
    [row] = found(given, "Largest size").rows
    assert row[3:6] == ("3", "66.7 %", "33.3 %")


def test_cases_share_traces_unless_settings_differ():
    groups = grouped(
        [
            case(size=8, gib=1.0),
            case(size=16, gib=2.0),
            case(size=8, gib=1.0, channels_last=True),
        ]
    )
    assert [group.sizes for group in groups] == [(8, 16), (8,)]


def test_the_size_that_failed_is_asked_about_too():
    [group] = grouped([case(size=64, bracket=Bracket(fits=64, fails=96))])
    assert group.sizes == (64, 96)
    assert Protocol() == group.first.protocol
