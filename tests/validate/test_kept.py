"""What decides a kept trace is known to the digest that names it."""

from __future__ import annotations

import ast
from pathlib import Path

import bsprof
from bsprof.validate.kept import _TRACING

ROOT = Path(bsprof.__file__).parent
PLAIN = ("errors", "units", "records", "predict/target", "measure/host")
"""Data that is part of what was asked, messages, and what is read of this machine."""


def test_all_code_that_traces_is_in_the_digest():
    known = (*(part.removesuffix(".py") for part in _TRACING), *PLAIN)
    for part in _TRACING:
        place = ROOT / part
        files = [place] if place.is_file() else list(place.rglob("*.py"))
        assert files, part
        for path in files:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bsprof."):
                    name = node.module.removeprefix("bsprof.").replace(".", "/")
                    assert any(name == k or name.startswith(f"{k}/") for k in known), path
