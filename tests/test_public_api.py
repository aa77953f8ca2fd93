from __future__ import annotations

import inspect
import re
import tomllib
import typing
from pathlib import Path

import pytest

import bsprof

ROOT = Path(__file__).parent.parent


def test_public_names_are_sorted_and_complete():
    assert bsprof.__all__ == sorted(bsprof.__all__)
    assert set(bsprof.__all__) == {*bsprof._HOMES, "__version__"}
    assert dir(bsprof) == sorted(bsprof.__all__)


@pytest.mark.parametrize("name", bsprof.__all__)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(bsprof, name)
    if name != "__version__":
        assert inspect.getdoc(value), name


def test_names_for_type_checkers_are_the_names_at_run_time():
    source = (Path(bsprof.__file__)).read_text()
    block = source[source.index("if TYPE_CHECKING:") : source.index("__version__ =")]
    declared = set(re.findall(r"^        (\w+),$", block, re.M))
    for imports in re.findall(r" import ([\w ]+)$", block, re.M):
        declared.add(imports.split(" as ")[-1].strip())
    assert declared == set(bsprof._HOMES)


@pytest.mark.parametrize("name", [n for n in bsprof.__all__ if n[0].islower()])
def test_public_functions_are_typed(name):
    function = getattr(bsprof, name)
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, f"{name}: {parameter.name}"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'bsprof' has no attribute 'run_sweeps'"):
        bsprof.run_sweeps  # noqa: B018


def test_a_recommendation_from_python(make_profile, tmp_path):
    profile = make_profile()
    path = tmp_path / "p.json"
    bsprof.save_profile(profile, path)
    answer = bsprof.recommend_plan(bsprof.load_profile(path), target_batch=96)
    assert sum(sum(pieces) for pieces in answer.plan.pieces_by_rank) == 96
    document = bsprof.recommendation_document(answer)
    assert document["target_batch"] == 96


def test_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == bsprof.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(r"^## ([\d.]+)", changelog, re.M)[1] == bsprof.__version__  # type: ignore[index]


def test_constraints_pin_versions_only_and_meet_the_project():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert "torch==2.13.0" in pins
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", pin) for pin in pins)
    pinned = {re.sub(r"[-_.]+", "-", pin.split("==")[0]).lower() for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    wanted = [requirement for group in groups for requirement in group]
    # torchvision wants the torch of its own release, which .ci/run names beside it.
    elsewhere = {"torchvision", "bsprof"}
    for requirement in wanted:
        name = re.split(r"[><=\[]", requirement)[0].lower()
        assert name in pinned | elsewhere, requirement


def test_the_type_hints_of_records_resolve():
    for name in ("Profile", "Recommendation", "WorkloadSpec"):
        assert typing.get_type_hints(getattr(bsprof, name))
