"""The figures as inline SVG and as PNG."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from bsprof.records import Profile, Quantity, Recommendation
from bsprof.report import build_report, render
from bsprof.report.figures import drawings
from bsprof.report.memory_plots import peaks_known
from bsprof.report.panel import byte_unit, second_unit
from bsprof.report.pictures import inline_svg
from bsprof.report.theme import DARK, LIGHT, TOKENS, drawable_text
from bsprof.report.time_plots import micro_step_rate

FIVE = ["throughput", "micro-step", "roofline", "memory", "categories"]


def texts_of(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [node.text or "" for node in root.iter() if node.tag == "text"]


def test_a_full_profile_has_the_five_figures(
    profile: Profile, recommendation_of: Callable[..., Recommendation]
) -> None:
    data = build_report([("a", profile)], recommendation_of())
    found = {d.key: d for d in drawings(data)}
    assert list(found) == FIVE
    svg = inline_svg(found["throughput"])
    words = texts_of(svg)
    assert "recommended 16" in words
    assert any(re.match(r"95 % knee at \d+", word) for word in words)
    assert "samples/s in micro-steps" in words
    assert svg.count("<title>micro-batch ") == 10
    assert not any(token in svg for token in TOKENS.values())
    assert set(re.findall(r"var\(--(\w+)\)", svg)) <= set(LIGHT)
    assert "http" not in svg
    assert inline_svg(found["throughput"]) == svg
    ids = re.findall(r'\bid="([^"]+)"', svg)
    assert len(ids) == len(set(ids))
    assert all(name.startswith("throughput-") for name in ids)
    for target in re.findall(r'(?:href="#|url\(#)([^")]+)', svg):
        assert target in ids


def test_the_memory_figure_shows_limit_phases_and_largest_size(
    profile: Profile, recommendation_of: Callable[..., Recommendation]
) -> None:
    data = build_report([("a", profile)], recommendation_of())
    (memory,) = (d for d in drawings(data) if d.key == "memory")
    words = texts_of(inline_svg(memory))
    assert "usable 3.00 GiB" in words
    assert "largest that fits 74 (71 to 77)" in words
    assert {"forward + backward", "accumulation", "optimizer step"} <= set(words)
    assert "memory used, GiB" in words
    assert "largest that fits 74 (71 to 77)" in memory.alternative


def test_a_limit_far_above_is_named_and_not_drawn(profile_of: Callable[..., Profile]) -> None:
    data = build_report([("a", profile_of((1, 2, 4), ()))])
    (memory,) = (d for d in drawings(data) if d.key == "memory")
    assert "usable 3.00 GiB, far above" in texts_of(inline_svg(memory))


@pytest.mark.parametrize(
    ("sizes", "failed", "keys"),
    [
        ((8,), (), FIVE),
        ((3, 4), (5,), FIVE),
        ((), (1, 2), []),
        ((), (), []),
    ],
)
def test_few_points_draw_what_there_is(
    profile_of: Callable[..., Profile],
    sizes: tuple[int, ...],
    failed: tuple[int, ...],
    keys: list[str],
) -> None:
    found = drawings(build_report([("a", profile_of(sizes, failed))]))
    assert [d.key for d in found] == keys
    for drawing in found:
        assert "<path" in inline_svg(drawing)


def test_points_without_memory_draw_only_times(profile: Profile) -> None:
    points = tuple(
        replace(p, memory=None, device_used_bytes=None, peak_by_category_bytes={})
        for p in profile.points
    )
    bare = replace(profile, points=points)
    assert not peaks_known(bare)
    assert [d.key for d in drawings(build_report([("a", bare)]))] == FIVE[:3]


def test_a_peak_without_phases_is_still_drawn(profile_of: Callable[..., Profile]) -> None:
    whole = profile_of((1, 2, 4), ())
    bare = replace(whole, points=tuple(replace(p, memory=None) for p in whole.points))
    (memory,) = (d for d in drawings(build_report([("a", bare)])) if d.key == "memory")
    assert inline_svg(memory).count("<title>micro-batch ") == 3


def test_a_recommended_size_between_measured_ones_is_ringed_on_the_curve(
    profile: Profile, recommendation_of: Callable[..., Recommendation]
) -> None:
    plain = build_report([("a", profile)])
    answer = build_report([("a", profile)], recommendation_of(24))
    markers = [inline_svg(drawings(data)[0]).count("<use ") for data in (plain, answer)]
    assert markers[1] == markers[0] + 1
    assert "recommended 24" in texts_of(inline_svg(drawings(answer)[0]))


def test_several_profiles_share_the_curves_and_keep_their_own_bars(
    profile_of: Callable[..., Profile],
) -> None:
    pair = [("a", profile_of((1, 2, 4, 8))), ("b", profile_of((1, 2, 4), (6,), device="Other $x$"))]
    found = {d.key: d for d in drawings(build_report(pair))}
    assert list(found) == [*FIVE[:4], "categories-0", "categories-1"]
    for key in ("throughput", "memory"):
        assert {"AMD EPYC 9B14", "Other $x$"} <= set(texts_of(inline_svg(found[key])))


def test_texts_the_font_lacks_do_not_stop_a_drawing(profile_of: Callable[..., Profile]) -> None:
    pair = [
        ("a", profile_of((1, 2), (), model="\u65e5\u672c\u8a9e")),
        ("b", profile_of((1, 2), (), model="<i>$\\frac{&")),
    ]
    data = build_report(pair)
    assert {"???", "<i>$\\frac{&"} <= set(texts_of(inline_svg(drawings(data)[0])))
    assert render("png", data).startswith(b"\x89PNG")
    assert drawable_text("x" * 100).count("x") == 44
    assert drawable_text("a\tb\u2603") == "a?b\u2603"


def test_png_is_the_same_every_time_and_has_its_size(
    profile_of: Callable[..., Profile], recommendation_of: Callable[..., Recommendation]
) -> None:
    data = build_report([("a", profile_of((16,), ()))], recommendation_of())
    first = render("png", data)
    assert first == render("png", data)
    width, height = struct.unpack(">II", first[16:24])
    assert width == 1690
    assert height > 1000
    assert b"Software" not in first


def test_png_without_figures_still_says_why(profile_of: Callable[..., Profile]) -> None:
    assert render("png", build_report([("a", profile_of((), (1,)))])).startswith(b"\x89PNG")


def test_drawing_leaves_matplotlib_as_it_was(profile_of: Callable[..., Profile]) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    inline_svg(drawings(build_report([("a", profile_of((1, 2), ()))]))[0])
    assert dict(matplotlib.rcParams) == before


def test_both_schemes_name_the_same_roles() -> None:
    assert set(LIGHT) == set(DARK) == set(TOKENS)
    assert len(set(TOKENS.values())) == len(TOKENS)


def test_units_follow_the_largest_value() -> None:
    assert byte_unit(3 * 2**30) == (2.0**30, "GiB")
    assert byte_unit(2**30) == (2.0**20, "MiB")
    assert byte_unit(10) == (1.0, "B")
    assert second_unit(2.0) == (1.0, "s")
    assert second_unit(0.2) == (1e-3, "ms")
    assert second_unit(1e-4) == (1e-6, "us")


def test_the_rate_falls_back_on_samples_per_second(profile: Profile) -> None:
    point = profile.points[3]
    assert point.micro_step_s is not None
    rate = micro_step_rate(point)
    assert rate is not None
    assert rate.value == pytest.approx(8 / point.micro_step_s.value)
    assert micro_step_rate(replace(point, micro_step_s=None)) == point.samples_per_s
    unknown = replace(point, micro_step_s=None, samples_per_s=None)
    assert micro_step_rate(unknown) is None
    zero = replace(point, micro_step_s=Quantity(value=1, low=0, high=2))
    assert micro_step_rate(zero) == point.samples_per_s
