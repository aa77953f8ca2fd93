"""The command line: the only place that prints, reads the environment and ends the process."""

from bsprof.cli.app import build_app, main

__all__ = ["build_app", "main"]
