"""Summaries on stdout: sentences and a drawn table on a terminal, tab-separated lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING

from bsprof.cli.terminal import Terminal, is_terminal

if TYPE_CHECKING:
    from bsprof.report.summary import Summary
    from bsprof.report.tables import Table

_STYLES = {"none": "", "chosen": "bold green", "failed": "dim", "edge": "yellow"}


def show_summary(terminal: Terminal, summary: Summary, *, columns: Collection[str] = ()) -> None:
    """Print a summary; its notes go to stderr.

    Args:
        terminal: Where to.
        summary: What to print.
        columns: Keys of the table's columns that are drawn on a terminal; empty for all. A pipe
            gets all of them.
    """
    if is_terminal(sys.stdout):
        _draw(terminal, summary)
    else:
        terminal.fields(summary.title)
        for label, text in summary.facts:
            terminal.fields(label, text)
        for reason in summary.reasons:
            terminal.fields("why", reason)
        columns = ()
    _show_table(terminal, summary.table, columns)
    for table in summary.more:
        terminal.fields(table.caption)
        _show_table(terminal, table, ())
    sys.stdout.flush()
    for note in summary.notes:
        terminal.note(note)


def _draw(terminal: Terminal, summary: Summary) -> None:
    from rich.text import Text

    console = terminal.console(sys.stdout)
    console.print(Text(summary.title, style="bold"))
    width = max((len(label) for label, _ in summary.facts), default=0)
    for label, text in summary.facts:
        console.print(Text(f"  {label.ljust(width)}  ", style="dim").append(text, style="not dim"))
    for reason in summary.reasons:
        console.print(Text(f"- {reason}"))


def _show_table(terminal: Terminal, table: Table, columns: Collection[str]) -> None:
    if not table.columns:
        return
    shown = [i for i, c in enumerate(table.columns) if not columns or c.key in columns]
    terminal.table(
        [table.columns[i].title for i in shown],
        [[row.cells[i] for i in shown] for row in table.rows],
        numeric={at for at, i in enumerate(shown) if table.columns[i].numeric},
        styles=[_STYLES[row.emphasis] for row in table.rows],
    )
