"""The command line: the only place that prints, reads the environment and ends the process."""

from bsprof.cli.app import app, main

__all__ = ["app", "main"]
