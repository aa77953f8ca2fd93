"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Callable

from bsprof.records import Note, Profile, Recommendation
from bsprof.report import build_report, render
from bsprof.report.markdown import escaped


def test_it_leads_with_the_answer_and_its_reasons(
    profile: Profile, recommendation_of: Callable[..., Recommendation]
) -> None:
    text = render("md", build_report([("a", profile)], recommendation_of())).decode()
    lines = text.splitlines()
    assert lines[0] == "# gpt-tiny on AMD EPYC 9B14"
    assert lines[2] == "## Recommended: micro-batch 16 x 128 accumulation steps"
    assert lines[4] == "- 16 is the smallest size within 1 % of the fastest update."
    assert "### Plans for 2,048 samples per update" in lines
    assert "### All points" in lines
    assert "### Environment" in lines
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_every_table_row_has_as_many_cells_as_its_header(
    profile_of: Callable[..., Profile],
) -> None:
    awkward = profile_of(model="a|b*c_d`e`<i>", notes=(Note(code="x", message="p|q"),))
    text = render("md", build_report([("n|m", awkward)])).decode()
    widths: list[int] = []
    for line in text.splitlines():
        if line.startswith("|"):
            widths.append(line.replace("\\|", "").count("|"))
        elif widths:
            assert len(set(widths)) == 1
            widths = []
    assert "a\\|b\\*c\\_d\\`e\\`\\<i\\>" in text


def test_special_characters_and_line_breaks_are_made_harmless() -> None:
    assert escaped("a\n# b [c](d) $x$") == "a \\# b \\[c\\](d) \\$x\\$"


def test_several_profiles_are_compared(profile_of: Callable[..., Profile]) -> None:
    pair = [("a", profile_of()), ("b", profile_of(device="Other"))]
    text = render("md", build_report(pair)).decode()
    assert "### Side by side" in text
    assert "| what | AMD EPYC 9B14 | Other |" in text
    assert "## AMD EPYC 9B14" in text
    assert "## Other" in text


def test_without_a_usable_point_it_says_so(profile_of: Callable[..., Profile]) -> None:
    text = render("md", build_report([("a", profile_of((), (1, 2)))])).decode()
    assert "no micro-batch size ran" in text
    assert "the CPU allocator refused memory" in text
