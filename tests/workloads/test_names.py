from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bsprof.errors import UsageError, WorkloadError
from bsprof.workloads.names import ModelName, builtin_names, check_model, parse_model


def test_builtin_names_are_sorted_and_pass() -> None:
    assert builtin_names() == ("convnet", "encoder-tiny", "gpt-tiny", "mlp", "vit-tiny")
    for name in builtin_names():
        check_model(name)


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("gpt-tny", "gpt-tiny"), ("MLP", "mlp"), ("convnt", "convnet"), ("vit_tiny", "vit-tiny")],
)
def test_unknown_name_names_near_matches(typo: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_model(typo)
    assert typo in caught.value.doing
    assert meant in caught.value.found


def test_unknown_name_without_near_match_lists_all() -> None:
    with pytest.raises(UsageError) as caught:
        check_model("zzzzzz")
    assert all(name in caught.value.found for name in builtin_names())


def test_file_that_exists_is_parsed_not_run(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("raise SystemExit(9)")
    name = parse_model(f"{path}:make")
    assert name == ModelName(kind="file", location=str(path), factory="make")


def test_missing_file_is_missing_input(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"nowhere\.py"):
        check_model(f"{tmp_path / 'nowhere.py'}:make")


def test_file_without_factory_says_what_to_add(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("")
    with pytest.raises(UsageError) as caught:
        check_model(str(path))
    assert "lacks the name of its factory" in caught.value.doing
    assert f"{path}:FUNCTION" in caught.value.next_step


def test_module_and_windows_path_forms() -> None:
    assert parse_model("pkg.mod:make").kind == "module"
    with pytest.raises(WorkloadError) as caught:  # a file, though it has two colons
        parse_model(r"C:\jobs\job.py:make")
    assert r"C:\jobs\job.py" in caught.value.found


@pytest.mark.parametrize(
    "wrong", ["", ":", "pkg.mod:", ":make", "pkg..mod:make", "a b:make", "m:2"]
)
def test_what_has_no_form_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError):
        check_model(wrong)


def test_names_load_no_torch() -> None:
    code = (
        "import sys, bsprof.workloads.names as n, bsprof.workloads.workload; n.check_model('mlp');"
        "sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    )
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
