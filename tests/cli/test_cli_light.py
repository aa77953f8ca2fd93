"""Plain values are read without typer's validation library, with the same result."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from bsprof.cli import build_app
from bsprof.cli.light import lighten
from bsprof.store import save

ROOT = Path(__file__).parent.parent.parent


def outcome(words: list[str], *, light: bool):
    """The parameters of a command line, or the complaint about it."""
    program = typer.main.get_command(build_app((words[0],)))
    if light:
        lighten(program)
    command = program.commands[words[0]]  # type: ignore[attr-defined]
    try:
        return command.make_context(words[0], words[1:]).params
    except typer.BadParameter.__mro__[2] as problem:
        return problem.format_message()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "words",
    [
        ["recommend"],
        *(
            ["recommend", "--target-batch", text]
            for text in ("8", "007", "+7", " 7", "7.0", "1_0", "x", "", "0", "-1", "9" * 30)
        ),
        ["recommend", "--model", "gpt-tiny", "--headroom", "5%", "-vv", "--json"],
        ["report", "a", "b", "-o", "r.html"],
        ["report"],
        ["sweep", "--model", "m", "--clip-norm", "1.5", "--seed", "0"],
        ["sweep", "--model", "m", "--optimizer-option", "a=1", "--optimizer-option", "b=2"],
        ["sweep"],
    ],
)
def test_the_result_is_the_usual_one(words):
    assert outcome(words, light=True) == outcome(words, light=False)


def test_recommending_loads_no_validation_library(tmp_path, make_profile):
    if find_spec("pydantic") is None:
        pytest.skip("this typer has none")
    save(make_profile(), tmp_path / "p.json")
    script = (
        "from bsprof.cli import main; import sys; "
        "main(['recommend', '--target-batch', '8', '--profile', 'p.json']); "
        "print([n for n in ('pydantic', 'statistics', 'bsprof.report.build') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.splitlines()[-1] == "[]"
