"""The program as a whole: help, configuration, colours, terminals, real processes."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import bsprof
from bsprof.cli import build_app
from bsprof.cli.progress import progress
from bsprof.cli.terminal import Terminal
from bsprof.measure.events import SweepEvent

ROOT = Path(__file__).parent.parent.parent
COMMANDS = (
    "sweep",
    "recommend",
    "report",
    "compare",
    "profiles",
    "models",
    "devices",
    "doctor",
)


def test_help_lists_every_command(run):
    outcome = run("--help")
    assert outcome.status == 0
    assert outcome.err == ""
    for command in COMMANDS:
        assert re.search(rf"^  {command}  +\w.*[^.]\.?$", outcome.out, re.M), command
    assert outcome.out.count("...") == 1  # ARGS...: no summary is cut short


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example_and_the_common_options(run, command):
    outcome = run(command, "--help")
    assert outcome.status == 0
    assert f"Example: bsprof {command}" in outcome.out
    for option in ("--json", "-q, --quiet", "-v, --verbose", "--debug", "--color"):
        assert option in outcome.out


def test_no_arguments_show_help_on_stderr(run):
    outcome = run()
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("Usage: bsprof")


def test_version(run):
    assert run("--version").out == f"bsprof {bsprof.__version__}\n"


def test_an_unknown_command_is_refused(run):
    outcome = run("swep")
    assert outcome.status == 2
    assert outcome.err.splitlines()[0].startswith("error: No such command 'swep'")
    assert outcome.err.splitlines()[-1] == "  next:   see `bsprof --help`"


def documented_commands() -> list[str]:
    """Every `bsprof ...` in a shell block of the README, and every command's example."""
    text = (ROOT / "README.md").read_text()
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S))
    found = re.findall(r"(?:^|\s|/)(bsprof (?:\w+)(?: [^&\n]*)?)", blocks.replace("\\\n", " "))
    examples = [
        group.epilog.removeprefix("Example: ")
        for group in typer.main.get_command(build_app()).commands.values()  # type: ignore[attr-defined]
    ]
    return [command.strip() for command in (*found, *examples)]


def test_the_readme_documents_each_command():
    text = (ROOT / "README.md").read_text()
    assert all(f"`bsprof {command}" in text for command in COMMANDS)
    assert len(documented_commands()) >= len(COMMANDS) + 6


@pytest.mark.parametrize("line", documented_commands())
def test_documented_commands_parse(line):
    program, name, *words = shlex.split(line)
    assert program == "bsprof"
    command = typer.main.get_command(build_app()).commands[name]  # type: ignore[attr-defined]
    assert command.make_context(name, words).params


def config(folder: Path, text: str, name: str = "bsprof.toml") -> None:
    (folder / name).write_text(text)


def test_defaults_come_from_the_file_of_the_folder(run, sweep, folder, monkeypatch):
    config(
        folder,
        'device = "cuda"\n[sweep]\nmicro-batch-sizes = "1,2"\nseq_len = 64\ncompile = true\n',
    )
    assert run("sweep", "--model", "gpt-tiny").status == 0
    call = sweep.calls[-1]
    assert (call["device"], call["spec"].seq_len, call["spec"].compile) == ("cuda", 64, True)
    assert call["plan"].micro_batch_sizes == (1, 2)
    monkeypatch.setenv("BSPROF_DEVICE", "mps")
    run("sweep", "--model", "gpt-tiny", "--seq-len", "32")
    assert (sweep.calls[-1]["device"], sweep.calls[-1]["spec"].seq_len) == ("mps", 32)


def test_a_command_table_wins_over_the_top_and_lists_repeat(run, sweep, folder):
    config(
        folder,
        'seed = 3\n[sweep]\nmodel = "mlp"\nseed = 4\noptimizer-option = ["lr=0.1", "eps=1e-7"]\n',
    )
    assert run("sweep").status == 0
    spec = sweep.calls[0]["spec"]
    assert (spec.model, spec.seed, spec.optimizer_options) == ("mlp", 4, {"lr": 0.1, "eps": 1e-7})


def test_pyproject_has_a_table_too_and_the_own_file_wins(run, sweep, folder):
    config(folder, "[project]\nname = 'x'\n[tool.bsprof.sweep]\nseed = 5\n", "pyproject.toml")
    run("sweep", "--model", "mlp")
    config(folder, "[sweep]\nseed = 6\n")
    run("sweep", "--model", "mlp")
    assert [call["spec"].seed for call in sweep.calls] == [5, 6]


def test_a_pyproject_without_our_table_is_none_of_our_business(run, folder):
    config(folder, "[project]\nname = 'x'\n[tool.other]\nx = 1\n", "pyproject.toml")
    assert run("models").status == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[sweep]\nprecison = 'fp32'\n", "did you mean precision?"),
        ("memory_limt = '1GiB'\n", "did you mean memory-limit?"),
        ("[swep]\nx = 1\n", "did you mean sweep?"),
        ("[models]\nzzzzz = 1\n", "known: color, debug, explain, family, json, max-parameters,"),
        ("x = ", "cannot read the configuration bsprof.toml"),
        ("[sweep]\nseed = 'soon'\n", "Invalid value for '--seed'"),
    ],
)
def test_a_wrong_configuration_is_an_error(run, sweep, folder, text, expected):
    config(folder, text)
    outcome = run("sweep", "--model", "mlp")
    assert outcome.status == 2
    assert expected in outcome.err
    assert sweep.calls == []
    assert run("sweep", "--help").status == 0


@pytest.mark.parametrize(
    ("environ", "flag", "expected"),
    [
        ({}, "auto", False),
        ({}, "always", True),
        ({"FORCE_COLOR": "1"}, "auto", True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, "auto", False),
        ({"NO_COLOR": "1"}, "always", True),
        ({"NO_COLOR": ""}, "auto", False),
        ({"FORCE_COLOR": "1"}, "never", False),
    ],
)
def test_colour_without_a_terminal(environ, flag, expected):
    terminal = Terminal(environ)
    terminal.choose(quiet=False, verbosity=0, debug=False, color=flag)
    assert terminal.colored(io.StringIO()) is expected


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("yes", True), ("0", False), ("false", False), ("", False)]
)
def test_tracebacks_by_environment(value, expected):
    assert Terminal({"BSPROF_DEBUG": value}).debug is expected


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False), ({"TERM": "xterm"}, True)],
)
def test_colour_on_a_terminal(environ, expected):
    assert Terminal(environ).colored(Screen()) is expected


def test_a_live_line_on_a_terminal_keeps_points_and_notes(monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    terminal = Terminal({"TERM": "xterm", "NO_COLOR": "1"})
    with progress(terminal) as listen:
        listen(SweepEvent(kind="phase", text="warming up"))
        listen(SweepEvent(kind="point", text="size [4]: ok"))
        listen(SweepEvent(kind="note", text="fine"))
    text = screen.getvalue()
    assert "size [4]: ok" in text
    assert "note: fine" in text


@pytest.mark.parametrize("quiet", [True, False])
def test_a_dumb_terminal_gets_plain_lines(monkeypatch, quiet):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    terminal = Terminal({"TERM": "dumb"})
    terminal.quiet = quiet
    with progress(terminal) as listen:
        listen(SweepEvent(kind="point", text="size 4: ok"))
    assert screen.getvalue() == ("" if quiet else "size 4: ok\n")


def on_a_terminal(words: list[str], folder: Path, **environ: str) -> str:
    """What a real process writes when stdout is a terminal 200 columns wide."""
    parent, child = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "bsprof", *words],
        stdout=child,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "200", **environ},
    ) as process:
        os.close(child)
        shown = b""
        while True:
            try:
                shown += (read := os.read(parent, 65536))
            except OSError:  # the other end of a terminal that closes is an error on Linux
                break
            if not read:
                break
    os.close(parent)
    assert process.returncode == 0
    return shown.decode().replace("\r\n", "\n")


def test_tables_are_drawn_on_a_terminal(stored, folder):  # noqa: ARG001
    words = ["recommend", "--target-batch", "96"]
    colored = on_a_terminal(words, folder)
    assert "\x1b[1m" in colored
    assert "\t" not in colored
    plain = on_a_terminal(words, folder, NO_COLOR="1")
    assert "\x1b[" not in plain
    assert "\u2500" in plain
    assert "- " in plain


def test_the_reader_of_a_pipe_may_leave(stored, folder):  # noqa: ARG001
    command = f"{shlex.quote(sys.executable)} -m bsprof profiles --json | head -c 1"
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr


def test_a_real_process_keeps_the_streams_apart(stored, folder):  # noqa: ARG001
    done = subprocess.run(
        [sys.executable, "-m", "bsprof", "recommend", "--target-batch", "0"],
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: Invalid value for '--target-batch'")
