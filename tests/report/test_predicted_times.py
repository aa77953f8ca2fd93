"""Reports on predicted times: curves through the points, the roofline, kinds of work, sources."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from bsprof.accounting.work import WorkClass
from bsprof.recommend import recommend_plan
from bsprof.records import PointPrediction, Precision, Profile, Quantity, Regime, Saturation
from bsprof.report import build_report, profile_summary, recommendation_summary, render
from bsprof.report.answer import report_answer
from bsprof.report.drawing import Drawing
from bsprof.report.figures import drawings
from bsprof.report.pictures import inline_svg
from bsprof.report.roofline_plots import ceiling, roof_points, roof_text
from bsprof.report.tables import point_table
from bsprof.report.time_classes import (
    GROUPS,
    OTHER,
    WAITING,
    class_table,
    device_seconds,
    group_of,
    heaviest_table,
    portions,
)
from bsprof.report.timed import provenance_sentences, regimes_text, sureness_text, time_facts
from bsprof.report.words import best_point

SLOW_PDF = pytest.param("pdf", marks=pytest.mark.slow)
FIGURES = [
    "throughput",
    "micro-step",
    "roofline",
    "classes",
    "memory",
    "stack",
    "timeline",
    "modules",
]


def figures(*profiles: Profile, target: int | None = None) -> dict[str, Drawing]:
    named = [(f"p{i}", profile) for i, profile in enumerate(profiles)]
    answer = None
    if target is not None:
        answer = recommend_plan(profiles[0], target_batch=target, profile_name="p0")
    return {d.key: d for d in drawings(build_report(named, answer))}


def texts_of(drawing: Drawing) -> list[str]:
    root = ElementTree.fromstring(inline_svg(drawing))
    return [node.text or "" for node in root.iter() if node.tag == "text"]


def tips_of(drawing: Drawing) -> list[str]:
    return re.findall(r"<title>(micro-batch [^<]+)</title>", inline_svg(drawing))


def test_times_have_their_figures(timed: Profile) -> None:
    assert list(figures(timed)) == FIGURES


def test_the_curve_runs_through_the_points_with_their_own_intervals(timed: Profile) -> None:
    (view,) = build_report([("a", timed)]).views
    assert view.time_fit is None
    assert view.problems == ()
    step, rate = view.micro_step, view.throughput
    assert step is not None
    assert rate is not None
    for point in timed.ok_points():
        assert point.micro_step_s is not None
        place = step.sizes.index(point.micro_batch_size)
        held = (step.lows[place], step.values[place], step.highs[place])
        own = point.micro_step_s
        assert held == (own.low, own.value, own.high)
        assert rate.values[place] == pytest.approx(point.micro_batch_size / own.value)
    assert step.at(24) == pytest.approx(0.004 * 24)
    assert view.saturation is Saturation.SATURATED
    assert view.knee is not None
    assert view.knee.value == pytest.approx(2.81, rel=0.01)  # on the line from 2 to 4
    assert view.knee.high < 3.2  # the machine errs alike at all sizes


def test_the_throughput_says_that_it_is_predicted(timed: Profile) -> None:
    found = figures(timed)["throughput"]
    assert "levels off within the predicted range" in found.caption
    assert "sizes that do not fit" in found.caption
    assert "95 % knee at 3" in texts_of(found)
    text = render("md", build_report([("a", timed)])).decode()
    assert "Throughput over the predicted range: saturated" in text


def test_one_size_has_no_curve(timed_of: Callable[..., Profile]) -> None:
    profile = timed_of(sizes=(8,), flushed=())
    (view,) = build_report([("a", profile)]).views
    assert view.micro_step is view.throughput is view.knee is None
    assert view.saturation is Saturation.UNKNOWN
    assert "roofline" in figures(profile)
    assert render("png", build_report([("a", profile)]))


def test_the_roofline_has_every_size_below_its_ceilings(timed: Profile) -> None:
    points = roof_points(timed)
    assert [at.point.micro_batch_size for at in points] == [1, 2, 4, 8, 16, 32, 35, 38]
    assert timed.peaks is not None
    for at in points:
        point = at.point
        assert point.flops is not None
        assert point.micro_step_s is not None
        assert at.flops_per_s.value == pytest.approx(point.flops.value / point.micro_step_s.value)
        assert point.arithmetic_intensity is not None
        assert at.intensity == pytest.approx(point.arithmetic_intensity.value)
        assert point.mfu is not None
        assert at.flops_per_s.value / 8e13 == pytest.approx(point.mfu.value)
    drawing = figures(timed)["roofline"]
    words = texts_of(drawing)
    assert "80.0 TFLOP/s fp32" in words
    assert "1.00 TB/s" in words
    assert "1" in words
    assert "FLOPs per byte moved" in words
    assert "80.0 TFLOP/s in fp32 and 1.00 TB/s (data sheet)" in drawing.caption
    tips = tips_of(drawing)
    assert len(tips) == len(points)
    assert tips[0] == "micro-batch 1: 11.1 TFLOP/s +-28 %, 100 FLOP/B, launch bound"
    assert "ceilings 80.0 TFLOP/s in fp32" in drawing.alternative


def test_marks_that_touch_share_a_label(timed: Profile) -> None:
    words = texts_of(figures(timed)["roofline"])
    assert any(re.fullmatch(r"\d+ to 38", word) for word in words)


def test_a_measured_profile_is_held_against_measured_ceilings(profile: Profile) -> None:
    assert roof_text(profile) == "220 GFLOP/s in fp32 and 24.0 GB/s (measured)"
    words = texts_of(figures(profile)["roofline"])
    assert "GFLOP/s in micro-steps" in words or "TFLOP/s in micro-steps" in words
    assert len(roof_points(profile)) == 8


def test_the_ceiling_is_that_of_the_precision(timed: Profile) -> None:
    spec = replace(timed.workload, precision=Precision.AMP_BF16)
    assert ceiling(replace(timed, workload=spec)) == 1.6e14
    unknown = replace(timed, workload=replace(timed.workload, precision=Precision.FP16))
    assert ceiling(unknown) is None
    assert roof_text(unknown) == "1.00 TB/s (data sheet)"
    assert "1.00 TB/s" in texts_of(figures(unknown)["roofline"])


def test_without_peaks_or_counts_there_is_no_roofline(timed: Profile) -> None:
    assert roof_points(replace(timed, peaks=None)) == []
    assert ceiling(replace(timed, peaks=None)) is None
    assert roof_text(replace(timed, peaks=None)) == ""
    points = tuple(replace(p, flops=None) for p in timed.points)
    assert "roofline" not in figures(replace(timed, points=points))
    nothing = tuple(replace(p, flops=Quantity.exact(0)) for p in timed.points)
    assert roof_points(replace(timed, points=nothing)) == []


def test_several_devices_share_one_roofline(timed: Profile, profile: Profile) -> None:
    other = replace(timed, device=replace(timed.device, name="NVIDIA A100-SXM4-80GB"))
    found = figures(timed, other)
    assert [key for key in found if key.startswith("classes")] == ["classes-0", "classes-1"]
    words = texts_of(found["roofline"])
    assert {"NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-80GB"} <= set(words)
    assert "1.00 TB/s" not in words
    assert found["roofline"].caption.count("80.0 TFLOP/s") == 2
    mixed = figures(timed, replace(profile, peaks=None))
    assert "AMD EPYC 9B14:" not in mixed["roofline"].alternative.split(". ")[1]


def test_every_class_of_work_has_a_group() -> None:
    groups = {group_of(work_class) for work_class in WorkClass}
    assert groups == set(GROUPS) - {WAITING}
    assert group_of("matmul") == "matrix products"
    assert group_of("a class of a later version") == OTHER
    for name in ("convolution_forward", "convolution_data", "convolution_weight"):
        assert group_of(name) == "convolutions"


def test_portions_add_up_to_the_micro_step(timed: Profile) -> None:
    for point in timed.ok_points():
        parts = portions(point)
        assert point.micro_step_s is not None
        assert sum(p.seconds for p in parts) == pytest.approx(point.micro_step_s.value)
        waits = [p for p in parts if p.name == WAITING]
        assert bool(waits) == (point.regime is Regime.LAUNCH)
    first = {p.name: p.seconds for p in portions(timed.points[0])}
    assert first["matrix products"] == pytest.approx(0.6 * 0.004)
    assert first[WAITING] == pytest.approx(0.005)
    assert device_seconds(timed.points[0]) == pytest.approx(0.004)
    assert portions(timed.points[-1]) == ()


def test_the_bars_show_shares_and_what_waits(timed: Profile) -> None:
    drawing = figures(timed, target=256)["classes"]
    assert "Waiting: for the host to start operators" in drawing.caption
    assert drawing.alternative.endswith("other work 10 %.")
    tips = tips_of(drawing)
    assert "micro-batch 1: waiting 5.00 ms, 56 %" in tips
    assert "micro-batch 32: matrix products 76.8 ms, 60 %" in tips
    assert {"matrix products", "attention", "norms and softmax", "waiting"} <= set(
        texts_of(drawing)
    )


def test_seconds_of_host_and_device_stand_side_by_side(timed: Profile) -> None:
    table = class_table(timed, 32)
    assert table is not None
    titles = [c.title for c in table.columns]
    assert titles == [
        "micro-batch",
        "micro-step",
        "device",
        "host",
        "regime",
        "matrix products",
        "attention",
        "norms and softmax",
        "other work",
        "waiting",
    ]
    first = dict(zip(titles, table.rows[0].cells, strict=True))
    assert (first["device"], first["host"], first["regime"]) == ("4.00 ms", "9.00 ms", "launch")
    assert (first["matrix products"], first["waiting"]) == ("27 %", "56 %")
    assert [str(row.emphasis) for row in table.rows].count("chosen") == 1
    assert table.rows[-1].cells[-1] == ""


def test_the_heaviest_operators_are_of_the_recommended_size(timed: Profile) -> None:
    table = heaviest_table(timed, 16)
    assert table is not None
    assert table.caption == "Heaviest operators, micro-batch 16"
    assert table.rows[0].cells == (
        "aten.mm",
        "(2048, 192) by (192, 768), bf16",
        "12",
        "19.2 ms",
        "30 %",
        "compute",
        "33.3 TFLOP/s",
        "668 MiB",
    )
    assert table.rows[1].cells[4:7] == ("20 %", "bandwidth", "")
    best = best_point(timed)
    assert best is not None
    without = heaviest_table(timed)
    assert without is not None
    assert without.caption.endswith(f"micro-batch {best.micro_batch_size}")
    bare = tuple(replace(p, prediction=PointPrediction()) for p in timed.points)
    assert heaviest_table(replace(timed, points=bare)) is None
    assert class_table(replace(timed, points=bare)) is None


def test_the_best_size_is_the_smallest_of_those_that_tie(timed: Profile) -> None:
    best = best_point(timed)
    assert best is not None
    assert best.micro_batch_size == 4  # bound by arithmetic from there on, in every world
    only_large = replace(timed, points=timed.points[6:])
    largest = best_point(only_large)
    assert largest is not None
    assert largest.micro_batch_size == 35
    assert best_point(replace(timed, points=())) is None


def test_the_terminal_answers_in_one_line(timed: Profile) -> None:
    summary = profile_summary("", timed)
    assert (
        summary.title == "gpt-tiny: micro-batch 4 is predicted best, 250 samples/s in micro-steps"
    )
    facts = dict(summary.facts)
    assert facts["samples/s"] == "250 +-28 % in micro-steps of 4"
    assert facts["tokens/s"].startswith("32,000 +-")
    assert facts["knee"] == "3, for 95 % of the full throughput"
    assert facts["bound by"] == "launch up to 2, compute from 4 on"
    assert facts["how sure"] == (
        "with probability 98 % no size that fits is more than 1.0 % faster than 4"
    )
    assert summary.reasons == ()
    assert summary.more[-1].caption == "What would make it fit"


def test_details_are_told_when_asked_for(timed: Profile) -> None:
    summary = profile_summary("", timed, detailed=True)
    assert summary.reasons == provenance_sentences(timed)
    assert [t.caption for t in summary.more] == [
        "Where the time of a micro-step goes",
        "Heaviest operators, micro-batch 4",
        "What would make it fit",
    ]


def test_regimes_are_told_from_size_to_size(timed: Profile) -> None:
    def said(*regimes: Regime) -> str:
        points = [
            replace(p, regime=regime) for p, regime in zip(timed.points, regimes, strict=False)
        ]
        return regimes_text(points)

    assert said() == ""
    assert said(Regime.UNKNOWN) == ""
    assert said(Regime.COMPUTE, Regime.COMPUTE) == "compute at all sizes"
    assert said(
        Regime.LAUNCH, Regime.BANDWIDTH, Regime.BANDWIDTH, Regime.LAUNCH, Regime.COMPUTE
    ) == ("launch up to 1, bandwidth at 2 to 4, launch at 8, compute from 16 on")


def test_measured_profiles_have_no_such_facts(profile: Profile, predicted: Profile) -> None:
    assert time_facts(profile) == time_facts(predicted) == ()
    assert provenance_sentences(profile) == ()
    assert sureness_text(profile) == ""


def test_the_answer_of_a_report_says_how_sure_it_is(timed: Profile) -> None:
    answer = report_answer(build_report([("a", timed)]))
    assert answer is not None
    assert answer.kicker == "Best predicted size, no target given"
    assert answer.parts == (("4", "micro-batch"),)
    facts = dict(answer.facts)
    assert facts["samples/s"] == "250 +-28 %"
    assert facts["micro-step"].startswith("16.0 ms +-")
    assert facts["regime"] == "compute bound"
    assert facts["MFU"] == "31 % +-20 %"
    assert "bound by" not in facts
    assert answer.small[0][1].startswith("with probability 98 %")
    assert answer.memory is not None


def test_the_recommendation_has_times(timed: Profile) -> None:
    summary = recommendation_summary(recommend_plan(timed, target_batch=2048), timed)
    facts = dict(summary.facts)
    assert {"update", "samples/s", "tokens/s", "knee", "regime"} <= facts.keys()
    assert facts["checked"] == "no: predicted, and not run"
    assert "slower_by" in [c.key for c in summary.table.columns]


def test_utilisation_is_told_to_be_of_the_data_sheet(timed: Profile, profile: Profile) -> None:
    def meaning(of: Profile) -> str:
        return next(c.meaning for c in point_table(of).columns if c.key == "mfu")

    assert meaning(timed) == "Model FLOP/s over the peak of the device's data sheet."
    assert meaning(profile) == "Model FLOP/s over the device's measured peak."


@pytest.mark.parametrize("kind", ["html", SLOW_PDF, "md", "png", "csv"])
def test_every_format_is_drawn_and_always_the_same(kind: str, timed: Profile) -> None:
    answer = recommend_plan(timed, target_batch=2048, profile_name="a")
    data = build_report([("a", timed)], answer)
    first = render(kind, data)
    assert first == render(kind, data)
    if kind in ("html", "md"):
        text = first.decode()
        for words in (
            "Where the time of a micro-step goes",
            f"Heaviest operators, micro-batch {answer.plan.micro_batch_size}",
            "Where the times come from",
            "Shapes: measured on this family.",
        ):
            assert words in text
        for false in ("ran again", "measured once", "did not run", "fastest measured"):
            assert false not in text


def test_texts_of_a_calibration_are_escaped(timed: Profile) -> None:
    html = render("html", build_report([("a", timed)])).decode()
    assert "Ceiling of fp32 matmuls: a table &lt;b&gt;." in html
    assert '<section id="times" class="card">' in html
    assert "a table <b>" not in html


def test_memory_alone_has_no_section_on_times(predicted: Profile) -> None:
    html = render("html", build_report([("a", predicted)])).decode()
    assert 'id="times"' not in html
    assert "Heaviest operators" not in html
    assert (
        "Where the times come from" not in render("md", build_report([("a", predicted)])).decode()
    )


@pytest.mark.slow
def test_the_pdf_says_where_times_come_from(
    timed: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bsprof.report.pdf_pages import Pages

    headings: list[str] = []
    usual = Pages.heading

    def heading(self: Pages, text: str, *, size: float = 13.0, keep: float = 0.9) -> None:
        headings.append(text)
        usual(self, text, size=size, keep=keep)

    monkeypatch.setattr(Pages, "heading", heading)
    assert render("pdf", build_report([("a", timed)])).startswith(b"%PDF")
    assert {"Roofline", "Where the time goes", "Where the times come from"} <= set(headings)
    assert "Heaviest operators, micro-batch 4" in headings


def test_seconds_are_in_the_values(timed: Profile) -> None:
    text = render("csv", build_report([("a", timed)])).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    first = rows[0]
    assert float(first["device_s"]) == pytest.approx(0.004)
    assert float(first["host_s"]) == pytest.approx(0.009)
    assert float(first["matrix_products_s"]) == pytest.approx(0.0024)
    assert float(first["waiting_s"]) == pytest.approx(0.005)
    assert first["convolutions_s"] == ""
    assert first["regime"] == "launch"
    assert rows[-1]["device_s"] == rows[-1]["host_s"] == rows[-1]["waiting_s"] == ""
    groups = [f"{name.replace(' ', '_')}_s" for name in GROUPS]
    assert float(rows[5]["micro_step_s"]) == pytest.approx(
        sum(float(rows[5][name] or 0) for name in groups)
    )


def test_the_heading_of_the_picture_says_predicted(timed: Profile) -> None:
    from bsprof.report.pictures import _fastest_text

    alone = _fastest_text(build_report([("a", timed)]))
    assert alone == "micro-batch 4, predicted 250 +-28 % samples/s in micro-steps"
    other = replace(timed, device=replace(timed.device, name="Other"))
    both = _fastest_text(build_report([("a", timed), ("b", other)]))
    assert both.endswith("; Other: micro-batch 4, 250 samples/s in micro-steps")


def test_a_predicted_profile_may_lack_worlds(timed: Profile) -> None:
    points = tuple(
        replace(p, prediction=replace(p.prediction, worlds=None)) if p.prediction else p
        for p in timed.points
    )
    bare = replace(timed, points=points)
    assert "how sure" not in dict(time_facts(bare))
    assert list(figures(bare)) == FIGURES
