"""The report as one HTML page."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from bsprof.errors import UsageError
from bsprof.records import Note, Profile, Recommendation
from bsprof.report import FORMATS, build_report, render
from bsprof.report.page import pretty

_VOID = {"meta", "link", "br", "use", "path"}


class Page(HTMLParser):
    """Reads tags, ids and text, and fails on a tag that is closed out of order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def page_of(*profiles: tuple[str, Profile], answer: Recommendation | None = None) -> Page:
    return Page(render("html", build_report(list(profiles), answer)).decode())


def test_a_full_page_has_every_part_and_asks_for_nothing(
    profile: Profile, recommendation_of: Callable[..., Recommendation]
) -> None:
    data = build_report([("cpu/gpt-tiny/1", profile)], recommendation_of())
    text = render("html", data).decode()
    page = Page(text)
    parts = {"top", "recommendation", "figures", "points", "notes", "environment"}
    figures = {f"figure-{key}" for key in ("throughput", "micro-step", "memory", "categories")}
    assert parts | figures <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert not {"script", "iframe", "img", "object"} & page.tags
    assert not re.search(r"https?:|@import|//[a-z]", text)
    for name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("src", "href", "xlink:href"):
            assert (value or "").startswith(("#", "data:"))
    assert "prefers-color-scheme: dark" in text
    assert "default-src 'none'" in text
    for words in (
        "Recommended for 2,048 samples per update",
        "accumulation steps",
        "16 is the smallest size within 1 % of the fastest update.",
        "25 % of 3.00 GiB usable memory at the peak",
        "out of memory",
        "asked for 300 MiB, at train.py:12, during step",
        "torch",
    ):
        assert words in page.text


def test_the_same_data_give_the_same_page(profile_of: Callable[..., Profile]) -> None:
    data = build_report([("a", profile_of((8,), ()))])
    assert render("html", data) == render("html", data)


def test_hostile_texts_are_shown_and_not_obeyed(
    profile_of: Callable[..., Profile], recommendation_of: Callable[..., Recommendation]
) -> None:
    bad = "</title><script>alert('x')</script><img src=x onerror=y>\"&"
    awkward = profile_of((16,), (), model=bad, device=bad, notes=(Note(code="x", message=bad),))
    page = page_of((bad, awkward), answer=recommendation_of(profile=bad))
    assert not {"script", "img"} & page.tags
    assert page.text.count("alert('x')") >= 3


@pytest.mark.parametrize(
    ("sizes", "failed", "words"),
    [
        ((8,), (), "Fastest measured size, no target given"),
        ((), (1, 2), "The smallest tried, 1: the CPU allocator refused memory"),
        ((), (), "No size was tried yet."),
    ],
)
def test_few_points_still_make_a_page(
    profile_of: Callable[..., Profile],
    sizes: tuple[int, ...],
    failed: tuple[int, ...],
    words: str,
) -> None:
    page = page_of(("a", profile_of(sizes, failed)))
    assert words in page.text
    assert "No curve through the times" in page.text


def test_the_last_lines_of_a_failing_script_are_shown(profile_of: Callable[..., Profile]) -> None:
    page = page_of(("a", profile_of((), (1,))))
    assert "pre" in page.tags
    assert "RuntimeError: not enough memory" in page.text


def test_several_profiles_stand_side_by_side(
    profile_of: Callable[..., Profile], recommendation_of: Callable[..., Recommendation]
) -> None:
    pair = (("a", profile_of((16,), ())), ("b", profile_of((8,), (9,), device="Other")))
    page = page_of(*pair, answer=recommendation_of(profile="a"))
    assert "comparison" in page.ids
    assert "Recommended for 2,048 samples per update, from AMD EPYC 9B14" in page.text
    assert "Side by side" in page.text
    assert len(page.ids) == len(set(page.ids))


def test_unequal_pieces_and_ranks_are_shown(
    profile_of: Callable[..., Profile], recommendation_of: Callable[..., Recommendation]
) -> None:
    page = page_of(("a", profile_of((48,), ())), answer=recommendation_of(48, 2000, 4))
    assert "Exact pieces: ranks 0 to 3: 10 x 48 + 1 x 20" in page.text


def test_a_recommendation_from_elsewhere_is_shown_without_a_mark(
    profile_of: Callable[..., Profile], recommendation_of: Callable[..., Recommendation]
) -> None:
    page = page_of(("a", profile_of((16,), ())), answer=recommendation_of(profile="elsewhere"))
    assert "Recommended for 2,048" in page.text
    assert "recommended 16" not in page.text


def test_numbers_are_set_with_one_sign_and_kept_with_their_unit() -> None:
    assert pretty("12.3 ms +-1.2 %") == (
        '12.3\u00a0ms <span class="spread">&plusmn;1.2&thinsp;%</span>'
    )
    assert pretty("188 +-0.6 % over all ranks").endswith("</span> over all ranks")
    assert pretty("a < b") == "a &lt; b"


def test_the_formats_are_known_and_others_refused(profile_of: Callable[..., Profile]) -> None:
    data = build_report([("a", profile_of((), (1,)))])
    assert FORMATS == ("html", "pdf", "md", "png", "csv")
    for report_format in FORMATS:
        assert render(report_format, data)
    with pytest.raises(UsageError, match="docx"):
        render("docx", data)
