"""Imports go down only, and nothing heavy is loaded before it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bsprof

PACKAGE = Path(bsprof.__file__).parent

LAYERS = (
    ("errors", "units", "records"),
    ("hardware", "store"),
    ("workloads", "accounting", "fit"),
    ("measure", "predict"),
    ("recommend", "accumulation", "diagnose", "calibrate", "validate"),
    ("frameworks", "report"),
    ("cli",),
)
"""Lowest first. A part may import lower layers and, within a layer, only itself, save for PEERS."""

PEERS = frozenset(
    {
        ("records", "errors"),
        ("units", "errors"),
        ("hardware", "store"),
        ("predict", "measure"),
        ("validate", "calibrate"),
        ("diagnose", "accumulation"),
    }
)
"""Imports within a layer that are allowed: (importer, imported)."""

RANK = {name: number for number, layer in enumerate(LAYERS) for name in layer}
HEAVY = ("torch", "numpy", "pandas", "scipy", "matplotlib")


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(tree: ast.AST) -> set[str]:
    """Top-level parts of bsprof that a module imports, anywhere in it."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import, line {node.lineno}"
            if node.module == "bsprof":
                names += [f"bsprof.{alias.name}" for alias in node.names]
            else:
                names.append(node.module or "")
    return {name.split(".")[1] for name in names if name.startswith("bsprof.")}


def test_every_part_has_a_layer():
    parts = {part_of(path) for path in modules()}
    assert parts - set(RANK) <= {"__init__", "__main__", "_data"}


@pytest.mark.parametrize(
    "path",
    [p for p in modules() if part_of(p) not in ("__init__", "__main__")],
    ids=lambda p: p.relative_to(PACKAGE).as_posix(),
)
def test_imports_go_down_only(path):
    part = part_of(path)
    allowed_names = {"__version__"}  # the version is a constant of the package itself
    for imported in imported_parts(ast.parse(path.read_text(encoding="utf-8"))) - allowed_names:
        assert imported in RANK, f"{path} imports bsprof.{imported}, which has no layer"
        fine = imported == part or RANK[imported] < RANK[part] or (part, imported) in PEERS
        assert fine, f"{part} must not import {imported}"


@pytest.mark.parametrize(
    "statement",
    [
        "import bsprof",
        "import bsprof; dir(bsprof); bsprof.Profile; bsprof.recommend_plan; bsprof.run_sweep",
        "import bsprof.cli",
        "from bsprof.cli import main; main(['--help'])",
        "from bsprof.cli import main; main(['sweep', '--help'])",
        "from bsprof.cli import main; main(['models', '--json'])",
        "from bsprof.cli import main; main(['profiles'])",
        "from bsprof.cli import main; main(['recommend', '--target-batch', '8'])",
    ],
)
def test_nothing_heavy_is_loaded_early(statement, tmp_path, make_profile):
    from bsprof.store import profile_path, save

    profile = make_profile()
    save(profile, profile_path(profile, tmp_path))
    script = f"{statement}\nimport sys\nheavy = [n for n in {HEAVY} if n in sys.modules]\n"
    script += "print('LOADED', heavy)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": "", "PYTHONPATH": str(PACKAGE.parent), "BSPROF_STORE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED []"


def test_help_loads_no_rich_and_no_records_beyond_need():
    script = (
        "from bsprof.cli import main; main(['--help']); import sys; "
        "print([n for n in ('rich', 'json', 'bsprof.records.profile') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": str(PACKAGE.parent)},
    )
    assert "rich" not in done.stdout.splitlines()[-1]


def test_only_the_command_line_prints_or_exits():
    for path in modules():
        if part_of(path) in ("cli", "__main__"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("print", "input"), f"{path}:{node.lineno}"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) != ("sys", "exit"), f"{path}:{node.lineno}"


def test_code_is_ascii():
    for path in modules():
        assert path.read_text(encoding="utf-8").isascii(), path
