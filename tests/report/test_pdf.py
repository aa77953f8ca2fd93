"""The report as a PDF: nothing overlaps, nothing is cut, and its text is text."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bsprof.records import Note, Profile, Quantity, Recommendation
from bsprof.report import build_report, render
from bsprof.report.pdf_pages import BOTTOM, LEFT, PAGE_HEIGHT, TOP, WIDTH, Pages, line_height
from bsprof.report.pdf_text import kept_together, shown, width_of, wrapped

LONG = "/home/somebody/a-very-long-project/experiments/train_the_language_model.py:make_a_workload"
EDGE = 0.02  # inches of rounding


@dataclass(frozen=True)
class Line:
    """A line of text as it was set, in inches from the left and from the top of its page."""

    page: int
    text: str
    left: float
    right: float
    top: float
    bottom: float


@pytest.fixture
def set_lines(monkeypatch: pytest.MonkeyPatch) -> list[Line]:
    """Every line of text that is set, in order."""
    lines: list[Line] = []
    usual = Pages.line

    def line(self: Pages, text: str, x: float, y: float, **style: object) -> None:
        size = style["size"]
        assert isinstance(size, float | int)
        width = width_of(shown(text), size, bold=bool(style.get("bold")))
        left = x - width if style.get("align") == "right" else x
        place = (left, left + width, y, y + 0.8 * line_height(size))
        lines.append(Line(len(self._figures), text.replace("\u00a0", " "), *place))
        usual(self, text, x, y, **style)  # type: ignore[arg-type]

    monkeypatch.setattr(Pages, "line", line)
    return lines


def check_layout(lines: list[Line]) -> None:
    """Every line lies between the margins, and no two touch."""
    for line in lines:
        assert line.left >= LEFT - 0.1, line
        assert line.right <= LEFT + WIDTH + EDGE, line
        assert TOP - EDGE <= line.top <= line.bottom <= BOTTOM + 0.15 < PAGE_HEIGHT, line
    for page in {line.page for line in lines}:
        here = [line for line in lines if line.page == page and line.text.strip()]
        for index, one in enumerate(here):
            for other in here[index + 1 :]:
                across = min(one.right, other.right) - max(one.left, other.left)
                down = min(one.bottom, other.bottom) - max(one.top, other.top)
                assert across <= EDGE or down <= EDGE, (one, other)


def pages_of(content: bytes) -> int:
    return len(re.findall(rb"/Type /Page\b", content))


def text_of(lines: list[Line]) -> str:
    return " ".join(line.text for line in lines)


def awkward(profile: Profile) -> Profile:
    """Long names, a text the font lacks, and a value in every column of the points."""
    last = profile.points[-3]
    edge = replace(
        last,
        alloc_retries=2,
        compile_s=Quantity.exact(12.3),
        energy_j=Quantity.exact(123.0),
        micro_step_sync_s=last.micro_step_s,
        peak_reserved_bytes=last.device_used_bytes,
        hfu=last.mfu.scaled(1.3) if last.mfu else None,
    )
    return replace(
        profile,
        workload=replace(profile.workload, model=LONG),
        points=(*profile.points[:-3], edge, *profile.points[-2:]),
        notes=(Note(code="x", message=f"About {LONG}, $x^2$ and \u65e5\u672c."),),
    )


def test_an_answer_with_figures_and_tables(
    profile: Profile, recommendation_of: Callable[..., Recommendation], set_lines: list[Line]
) -> None:
    content = render("pdf", build_report([("cpu/gpt-tiny/1", profile)], recommendation_of()))
    check_layout(set_lines)
    assert content.startswith(b"%PDF-")
    assert pages_of(content) == 4
    text = text_of(set_lines)
    for words in (
        "Recommended for 2,048 samples per update",
        "16 is the smallest size within 1 % of the fastest update.",
        "25 % of 3.00 GiB usable memory at the peak",
        "44.2 s \u00b10.6 %",
        "What it was chosen over",
        "the CPU allocator refused memory, asked for 300 MiB, at train.py:12, during step",
        "Who owns the peak",
        "peak bandwidth",
    ):
        assert words in text
    # Figures are drawn, not pasted, and letters are a font's, not outlines.
    assert b"/Subtype /Image" not in content
    assert b"/FontFile2" in content
    assert b"/ToUnicode" in content
    assert b"/Subtype /Type3" not in content


def test_long_names_wrap_and_too_many_columns_are_two_tables(
    profile: Profile, set_lines: list[Line]
) -> None:
    render("pdf", build_report([("a" * 120, awkward(profile))]))
    check_layout(set_lines)
    text = text_of(set_lines)
    assert "About" in text
    assert "$x^2$ and ??." in text
    assert LONG in text.replace(" ", "")
    assert [line.text for line in set_lines].count("micro-batch") >= 3


def test_nothing_that_ran_is_said_on_one_page(
    profile_of: Callable[..., Profile], set_lines: list[Line]
) -> None:
    content = render("pdf", build_report([("a", profile_of((), (1, 2)))]))
    check_layout(set_lines)
    assert pages_of(content) == 1
    assert "The smallest tried, 1: the CPU allocator refused memory" in text_of(set_lines)
    assert "RuntimeError: not enough memory" in text_of(set_lines)


def test_several_profiles_lead_with_their_comparison(
    profile_of: Callable[..., Profile], set_lines: list[Line]
) -> None:
    names = ("One", "Another device", f"{LONG} 80GB", "Fourth")
    found = [(f"p{i}", profile_of((1, 2), (), device=name)) for i, name in enumerate(names)]
    render("pdf", build_report(found))
    check_layout(set_lines)
    text = text_of(set_lines)
    assert "4 profiles compared Side by side" not in text  # the labels stand between
    assert "Side by side no difference in speed shown between One, Another device" in text
    assert "ratio to the first" in text
    assert "All points: Fourth" in text


def test_the_same_data_give_the_same_bytes_and_no_date(profile_of: Callable[..., Profile]) -> None:
    data = build_report([("a", profile_of((), (1,)))])
    content = render("pdf", data)
    assert content == render("pdf", data)
    assert b"CreationDate" not in content
    assert b"Producer" not in content
    assert b"/Title" in content


def script(folder: Path, data: str) -> str:
    return (
        "import sys\nsys.path.insert(0, sys.argv[1])\n"
        "from bsprof.store import load\nfrom pathlib import Path\n"
        "from bsprof.report import build_report, render\n"
        f"data = build_report([('a', load(Path({data!r})))])\n"
        f"Path({str(folder)!r}, sys.argv[2]).write_bytes(render('pdf', data))\n"
    )


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(profile: Profile, tmp_path: Path) -> None:
    from bsprof.store import save

    save(profile, tmp_path / "p.json")
    root = str(Path(__file__).parent.parent.parent)
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", script(tmp_path, str(tmp_path / "p.json")), root, seed],
            env={"PATH": "", "PYTHONHASHSEED": seed, "HOME": str(tmp_path)},
            check=True,
        )
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


@pytest.mark.slow
def test_a_reader_finds_the_words(
    profile: Profile, recommendation_of: Callable[..., Recommendation], tmp_path: Path
) -> None:
    if shutil.which("pdftotext") is None:
        pytest.skip("no pdftotext here")
    path = tmp_path / "r.pdf"
    path.write_bytes(render("pdf", build_report([("a", profile)], recommendation_of())))
    done = subprocess.run(
        ["pdftotext", "-layout", str(path), "-"], capture_output=True, text=True, check=True
    )
    assert "Recommended for 2,048 samples per update" in done.stdout
    assert "16 is the smallest size within 1 % of the fastest update." in done.stdout
    assert "micro-batch size" in done.stdout  # the label of a figure's axis


def test_lines_break_at_spaces_then_at_marks_then_anywhere() -> None:
    width = width_of("one two", 10)
    assert wrapped("one two three", width + 0.01, 10) == ["one two", "three"]
    assert wrapped("", 1.0, 10) == [""]
    path = wrapped("some/where/deep.py", width_of("some/where/", 10) + 0.01, 10)
    assert path == ["some/where/", "deep.py"]
    letters = wrapped("x" * 30, width_of("x" * 12, 10) + 0.001, 10)
    assert letters == ["x" * 12, "x" * 12, "x" * 6]
    kept = wrapped(kept_together("about 8.1 ms (6.0 to 11.0)"), width_of("about 8.1 ms (6", 10), 10)
    assert kept == ["about 8.1\u00a0ms", "(6.0\u00a0to\u00a011.0)"]


def test_widths_are_those_of_the_font() -> None:
    assert width_of("WWW", 10) > width_of("iii", 10)
    assert width_of("abc", 10, bold=True) > width_of("abc", 10)
    assert width_of("abc", 20) == pytest.approx(2 * width_of("abc", 10))
    assert width_of(" ", 10) > 0
