"""Reports on predicted memory: provenance everywhere, the stack, the step with the peak."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from bsprof.recommend import recommend_plan
from bsprof.recommend.compare import compare_profiles
from bsprof.records import (
    Category,
    Origin,
    Phase,
    Point,
    PointPrediction,
    PointStatus,
    Profile,
    Quantity,
    Stage,
    Timeline,
)
from bsprof.report import build_report, profile_summary, recommendation_summary, render
from bsprof.report.answer import report_answer
from bsprof.report.by_size import memory_table
from bsprof.report.comparison import comparison_summary
from bsprof.report.figures import drawings
from bsprof.report.predicted import drawn_point, stage_table, terms_table
from bsprof.report.stack import stack, stack_table
from bsprof.report.tables import point_table
from bsprof.report.words import counts_text, provenance_text, status_text

MIB = 2**20
SAID = "Predicted for NVIDIA GeForce RTX 4090 with the rules of torch 2.13, cuDNN 9 and CUDA"
SLOW_PDF = pytest.param("pdf", marks=pytest.mark.slow)


def keys(profile: Profile) -> list[str]:
    return [d.key for d in drawings(build_report([("a", profile)]))]


def test_only_figures_of_memory_are_drawn(predicted: Profile) -> None:
    assert keys(predicted) == ["memory", "stack", "timeline", "modules"]


def test_a_measured_profile_has_none_of_them(profile: Profile) -> None:
    assert keys(profile) == ["throughput", "micro-step", "roofline", "memory", "categories"]


def test_with_times_the_figures_of_time_come_back(predicted: Profile, profile: Profile) -> None:
    timed = replace(
        predicted,
        points=tuple(
            replace(p, micro_step_s=other.micro_step_s, samples_per_s=other.samples_per_s)
            for p, other in zip(predicted.points, profile.points, strict=False)
        ),
    )
    assert keys(timed) == ["throughput", "micro-step", "memory", "stack", "timeline", "modules"]
    answer = report_answer(build_report([("a", timed)]))
    assert answer is not None
    assert answer.kicker.startswith("Best predicted size")


def test_what_little_is_known_is_enough(predicted: Profile) -> None:
    bare = [
        replace(p, prediction=None, memory=None, peak_by_category_bytes={}, peak_phase=None)
        for p in predicted.points[:2]
    ]
    profile = replace(predicted, points=tuple(bare), prediction=None)
    assert keys(profile) == ["memory"]
    for kind in ("png", "md", "csv"):
        assert render(kind, build_report([("a", profile)]))


def test_one_size_alone_is_shown(predicted_of: Callable[..., Profile]) -> None:
    profile = predicted_of((8,))
    assert keys(profile) == ["memory", "stack", "timeline", "modules"]
    assert render("png", build_report([("a", profile)]))


def test_the_text_says_that_it_is_a_prediction(predicted: Profile) -> None:
    text = render("md", build_report([("a", predicted)])).decode()
    assert SAID in text


@pytest.mark.slow
def test_every_page_of_the_pdf_says_it(predicted: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    from bsprof.report.pdf_pages import Pages

    footers: list[str] = []
    whole = Pages.finished

    def finished(self: Pages, title: str, footer: str) -> bytes:
        footers.append(footer)
        return whole(self, title, footer)

    monkeypatch.setattr(Pages, "finished", finished)
    render("pdf", build_report([("a", predicted)]))
    assert "predicted, torch 2.13 rules" in footers[0][:60]


def test_measured_pages_do_not_mention_predictions(profile: Profile) -> None:
    assert provenance_text(profile) == ""
    html = render("html", build_report([("a", profile)])).decode()
    assert 'class="provenance"' not in html
    assert "Measured with bsprof" in html
    assert "held by" not in html


def test_the_answer_is_the_largest_that_fits(predicted: Profile) -> None:
    answer = report_answer(build_report([("a", predicted)]))
    assert answer is not None
    assert answer.parts == (("35", "micro-batch"),)
    facts = dict(answer.facts)
    assert facts["memory used"] == "1.97 GiB +-3.0 %"
    assert facts["peak in"] == "accumulation"
    assert facts["held by"] == "activations 80 %"
    assert facts["with 5.0 % headroom"] == "32"
    assert "samples/s" not in facts
    assert answer.memory is not None
    assert answer.memory[0] == pytest.approx(2021 / 2080)


def test_where_nothing_fits_the_need_and_the_changes_are_shown(
    predicted_of: Callable[..., Profile],
) -> None:
    data = build_report([("a", predicted_of((40,)))])
    answer = report_answer(data)
    assert answer is not None
    assert not answer.found
    assert answer.parts[0][0] == "No micro-batch size fits"
    assert "would need more than is usable" in answer.why
    assert "What would make it fit: full activation checkpointing (--act" in answer.why
    html = render("html", data).decode()
    assert "What would make it fit" in html
    assert "--activation-checkpointing full" in html


def test_the_recommendation_has_no_time(predicted: Profile) -> None:
    answer = recommend_plan(predicted, target_batch=2048)
    summary = recommendation_summary(answer, predicted)
    facts = dict(summary.facts)
    assert not {"update", "samples/s", "tokens/s", "knee", "regime"} & facts.keys()
    assert facts["checked"].startswith("no: predicted")
    assert [c.key for c in summary.table.columns] == [
        "micro_batch_size",
        "accumulation_steps",
        "device_used_bytes",
        "reason",
    ]


@pytest.mark.parametrize("kind", ["html", SLOW_PDF, "md", "png", "csv"])
def test_a_report_with_a_recommendation_is_drawn(kind: str, predicted: Profile) -> None:
    answer = recommend_plan(predicted, target_batch=2048)
    assert render(kind, build_report([("a", predicted)], answer))


def test_the_terminal_shows_the_verdict_columns(predicted: Profile) -> None:
    summary = profile_summary("", predicted)
    assert summary.title == (
        "gpt-tiny: the largest micro-batch that fits is 35 (34 to 37); the profile holds no time"
    )
    facts = dict(summary.facts)
    assert facts["predicted for"] == "NVIDIA GeForce RTX 4090"
    assert facts["with the rules of"] == "torch 2.13, cuDNN 9 and CUDA 12.8"
    titles = [c.key for c in summary.table.columns]
    assert titles == [
        "micro_batch_size",
        "status",
        "device_used_bytes",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "peak_phase",
        "owner",
        "top_module",
        "reason",
    ]
    last = dict(zip(titles, summary.table.rows[6].cells, strict=True))
    assert last["status"] == "fits"
    assert last["device_used_bytes"] == "1.97 GiB +-3.0 %"
    assert last["owner"] == "activations 80 %"
    assert last["top_module"] == "blocks.11.mlp.up 315 MiB"


def test_statuses_of_predicted_points(predicted: Profile) -> None:
    assert [status_text(p) for p in predicted.points[6:]] == [
        "fits",
        "fits only after a flush",
        "does not fit",
    ]
    assert counts_text(predicted) == "7 fit, 1 only after a flush, 1 too large"
    nothing = replace(predicted, points=predicted.points[8:], max_micro_batch_size=None)
    assert profile_summary("", nothing).title == "gpt-tiny: no micro-batch size fits"


def test_the_stack_adds_up_to_what_the_device_holds(predicted: Profile) -> None:
    for point in predicted.points:
        layers = stack(point)
        assert point.device_used_bytes is not None
        assert sum(part.bytes for part in layers) == pytest.approx(point.device_used_bytes.value)
        assert [part.name for part in layers[-2:]] == ["cached", "context"]
    assert "libraries" in {part.name for part in stack(predicted.points[0])}


def test_layers_that_are_not_known_are_left_out() -> None:
    point = Point(
        micro_batch_size=1,
        status=PointStatus.OK,
        peak_by_category_bytes={Category.WEIGHTS: 10, Category.GRADIENTS: 0},
    )
    assert [(part.name, part.bytes) for part in stack(point)] == [("weights", 10)]
    less = replace(point, device_used_bytes=Quantity.exact(9))  # contradictory, but no crash
    assert len(stack(less)) == 1


def test_the_table_of_the_stack(predicted: Profile, profile: Profile) -> None:
    table = stack_table(predicted, 32)
    assert table is not None
    assert [c.title for c in table.columns][-4:] == ["cached", "context", "together", "status"]
    assert len(table.rows) == len(predicted.points)
    empty = replace(profile.points[-1], peak_by_category_bytes={})
    assert stack_table(replace(profile, points=(empty,))) is None


def test_the_step_part_by_part(predicted: Profile) -> None:
    point = drawn_point(predicted, None)
    assert point is not None
    assert point.micro_batch_size == 35
    table = stage_table(point)
    assert table is not None
    assert [row.cells[0] for row in table.rows] == [
        "forward of micro-step 1",
        "backward of micro-step 1",
        "forward of micro-step 2",
        "backward of micro-step 2",
        "optimizer step",
    ]
    assert [str(row.emphasis) for row in table.rows] == ["none", "none", "chosen", "none", "none"]
    assert table.rows[2].cells[2] == "764 MiB"
    assert table.rows[2].cells[3].startswith("activations 92 %")


def test_a_step_with_almost_nothing_in_it(predicted: Profile) -> None:
    empty = Timeline(positions=(), bytes_by_category={})
    one = Timeline(
        positions=(3,),
        bytes_by_category={Category.WEIGHTS: (5,)},
        stages=(Stage(sample=0, phase=None), Stage(sample=0, phase=Phase.FORWARD)),
    )
    for timeline, figures in ((empty, ["stack"]), (one, ["stack", "timeline"])):
        prediction = PointPrediction(timeline=timeline)
        points = (replace(predicted.points[0], prediction=prediction),)
        profile = replace(predicted, points=points)
        assert keys(profile) == ["memory", *figures]
        assert render("png", build_report([("a", profile)]))


def test_the_recommended_size_is_drawn_where_it_has_a_timeline(predicted: Profile) -> None:
    small = predicted.points[3]
    assert small.prediction is not None
    drawn = predicted.points[6].prediction
    assert drawn is not None
    points = [*predicted.points]
    points[3] = replace(small, prediction=replace(small.prediction, timeline=drawn.timeline))
    profile = replace(predicted, points=tuple(points))
    for chosen, size in ((8, 8), (16, 35), (None, 35)):
        point = drawn_point(profile, chosen)
        assert point is not None
        assert point.micro_batch_size == size


def test_terms_have_their_sources(predicted: Profile) -> None:
    table = terms_table(predicted, drawn_point(predicted, None))
    assert table is not None
    assert [row.cells for row in table.rows] == [
        (
            "CUDA context",
            "450 MiB (360 MiB to 540 MiB)",
            "outside the allocator",
            "all",
            "own measurements of an idle process",
        ),
        (
            "convolution workspace",
            "35.0 MiB (0 B to 70.0 MiB)",
            "in the allocator",
            "35",
            "the least that its algorithms need",
        ),
    ]
    text = render("md", build_report([("a", predicted)])).decode()
    assert "own measurements of an idle process" in text


def test_a_term_of_the_whole_is_not_said_again_at_a_size(predicted: Profile) -> None:
    point = drawn_point(predicted, None)
    assert point is not None
    assert point.prediction is not None
    assert predicted.prediction is not None
    terms = (*predicted.prediction.terms, *point.prediction.terms)
    again = replace(point, prediction=replace(point.prediction, terms=terms))
    assert terms_table(predicted, again) == terms_table(predicted, point)


def test_the_page_says_what_it_is_and_names_its_marks(predicted: Profile) -> None:
    html = render("html", build_report([("a", predicted)])).decode()
    assert f"{SAID} 12.8; nothing was run on it." in html
    assert "Predicted with bsprof" in html
    tips = set(re.findall(r"<title>([^<]+)</title>", html))
    assert "micro-batch 35: cached 212 MiB" in tips
    assert "micro-batch 35: context 450 MiB" in tips
    assert "forward of micro-step 2: at most 764 MiB live" in tips
    assert "blocks.11.mlp.up: 315 MiB, 23 % of what is live" in tips
    for figure in ("stack", "timeline", "modules"):
        assert f'id="figure-{figure}"' in html


def test_the_values_say_that_they_are_predicted(predicted: Profile) -> None:
    text = render("csv", build_report([("a", predicted)])).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["origin"] for row in rows} == {"predicted"}
    assert {row["micro_step_s"] for row in rows} == {""}
    assert rows[6]["device_used_bytes"] == str(2021 * MIB)
    assert rows[6]["peak_libraries_bytes"] == str(8 * MIB)


def beside_measured(predicted: Profile, profile: Profile) -> list[tuple[str, Profile]]:
    measured = replace(profile, device=predicted.device)
    return [("p", predicted), ("m", measured)]


def test_predicted_beside_measured_memory_by_size(predicted: Profile, profile: Profile) -> None:
    comparison = compare_profiles(beside_measured(predicted, profile))
    [pair] = comparison.against
    assert pair.sizes == (1, 2, 4, 8, 16, 32)
    assert pair.same_device
    table = memory_table(comparison)
    assert table is not None
    cells = {row.cells[0]: row.cells[1:] for row in table.rows}
    assert cells["16"] == ("1.25 GiB +-3.0 %", "780 MiB", "+64.1 %")
    assert cells["40"] == ("2.16 GiB +-3.0 % (does not fit)", "", "")
    assert cells["80"] == ("", "out of memory", "")
    summary = comparison_summary(comparison)
    assert summary.more == (table,)
    assert summary.title.startswith("memory used is predicted 134 % too high in the median of 6")
    assert "0 of 6 measured values lie in the interval" in summary.title


@pytest.mark.parametrize("kind", ["html", SLOW_PDF, "md", "png", "csv"])
def test_a_comparison_with_a_prediction_is_drawn(
    kind: str, predicted: Profile, profile: Profile
) -> None:
    found = render(kind, build_report(beside_measured(predicted, profile)))
    if kind in ("html", "md"):
        text = found.decode()
        assert "Memory by size" in text
        assert "predicted for nvidia geforce rtx 4090" in text.lower()


def test_measured_comparisons_are_as_they_were(profile_of: Callable[..., Profile]) -> None:
    comparison = compare_profiles([("a", profile_of()), ("b", profile_of(device="other"))])
    assert comparison.by_size == ()
    assert comparison.against == ()
    assert comparison_summary(comparison).more == ()


def test_the_point_table_of_imported_numbers_has_no_owner(predicted: Profile) -> None:
    columns = {c.key for c in point_table(replace(predicted, origin=Origin.IMPORTED)).columns}
    assert "owner" not in columns
