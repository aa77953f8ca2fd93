"""Lets the tests of this folder import their hand-made profiles, and the side-by-side table."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parent.parent / "benchmarks"))
