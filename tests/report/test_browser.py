"""The page in a real browser, where one is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bsprof.recommend import recommend_plan
from bsprof.records import Profile, Recommendation
from bsprof.report import build_report, render

_BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_BROWSER is None, reason="no chromium is installed"),
]


def browse(page: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert _BROWSER is not None
    return subprocess.run(
        [_BROWSER, *_QUIET, f"--user-data-dir={folder}", *options, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.fixture(params=["measured", "predicted", "both"])
def page(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    profile: Profile,
    predicted: Profile,
    recommendation_of: Callable[..., Recommendation],
) -> Path:
    """A page with a recommendation: of a measured profile, a predicted one; or both compared."""
    path = tmp_path / "report.html"
    if request.param == "both":
        data = build_report([("a", profile), ("b", predicted)])
    elif request.param == "measured":
        data = build_report([("a", profile)], recommendation_of())
    else:
        data = build_report([("a", predicted)], recommend_plan(predicted, target_batch=2048))
    path.write_bytes(render("html", data))
    return path


def test_the_browser_builds_the_whole_page_without_complaint(page: Path, tmp_path: Path) -> None:
    done = browse(page, tmp_path / "browser", "--dump-dom")
    ids = set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8")))
    assert len(ids) > 100
    assert ids == set(re.findall(r'\bid="([^"]+)"', done.stdout))
    assert "CONSOLE" not in done.stderr  # refused requests and broken markup are logged there


@pytest.mark.parametrize("width", [1280, 500])
@pytest.mark.parametrize(("scheme", "dark"), [(0, True), (1, False)])
def test_both_schemes_fit_wide_and_narrow_windows(
    page: Path, tmp_path: Path, width: int, scheme: int, dark: bool
) -> None:
    import matplotlib.image

    picture = tmp_path / "page.png"
    browse(
        page,
        tmp_path / "browser",
        f"--window-size={width},900",
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--screenshot={picture}",
    )
    pixels = matplotlib.image.imread(picture)[:, :, :3]
    assert pixels.shape[:2] == (900, width)
    assert bool(pixels[4, 4].mean() < 0.2) is dark
    # The margin right of the page is plain: nothing sticks out.
    assert (abs(pixels[:, -4] - pixels[4, 4]) < 0.02).all()
