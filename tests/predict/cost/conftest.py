"""Lets the tests of this folder import `made_operators` and those of traces' workloads."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "trace")]
