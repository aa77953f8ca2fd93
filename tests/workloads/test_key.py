from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType

import pytest

from bsprof.records import WorkloadKey, WorkloadSpec
from bsprof.workloads.key import (
    _digest_sources,
    key_differences,
    workload_key,
    workload_sources,
)
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

WriteFile = Callable[..., Path]

JOB = """
import torch
from torch import nn
from bsprof.workloads.workload import Workload
{imports}

def make():
    return Workload(
        model=lambda: nn.Linear({width}, 1),
        batch=lambda b, device: torch.randn(b, {width}, device=device),
        loss=lambda model, batch: model(batch).mean(),
    )
"""


def key_of(spec: WorkloadSpec, operators: tuple[str, ...] = ("aten.mm",)) -> WorkloadKey:
    return workload_key(spec, build_training(spec, resolve(spec), "cpu"), operators)


def test_same_workload_same_key_in_sixteen_digits() -> None:
    spec = WorkloadSpec(model="mlp")
    one, again = key_of(spec), key_of(spec)
    assert one == again
    assert key_differences(one, again) == ()
    for field in fields(one):
        digest = getattr(one, field.name)
        assert len(digest) == 16
        assert int(digest, 16) >= 0


def test_each_kind_of_change_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = WorkloadSpec(model="gpt-tiny", seq_len=4)
    old = key_of(spec)
    assert key_differences(old, key_of(spec, ("aten.bmm",))) == ("the operators of a micro-step",)
    assert key_differences(old, key_of(replace(spec, clip_norm=1.0))) == (
        "the options of the workload",
    )
    longer = key_differences(old, key_of(replace(spec, seq_len=5)))
    assert longer == (
        "the parameters of the model (names, shapes or types), or the data set",
        "the options of the workload",
    )
    monkeypatch.setattr("torch.__version__", "2.99.0")
    (software,) = key_differences(old, key_of(spec))
    assert "torch" in software


def test_edited_file_changes_the_sources(user_file: WriteFile) -> None:
    path = user_file(JOB.format(imports="", width=4))
    spec = WorkloadSpec(model=f"{path}:make")
    training = build_training(spec, resolve(spec), "cpu")
    old = workload_key(spec, training, ())
    path.write_text(path.read_text() + "# edited\n")
    assert key_differences(old, workload_key(spec, training, ())) == (
        "the source files of the workload",
    )


def test_sources_are_the_file_and_what_it_imported_beside_it(
    user_file: WriteFile, tmp_path: Path
) -> None:
    user_file("", "parts_of_job/__init__.py")
    layers = user_file("", "parts_of_job/layers.py")
    beside = user_file("", "beside_job.py")
    user_file("", "never_imported.py")
    installed = user_file("", "venv/lib/site-packages/installed_for_job.py")
    path = user_file(
        JOB.format(
            width=4,
            imports=f"import sys; sys.path.append({str(installed.parent)!r})\n"
            "import beside_job, installed_for_job, parts_of_job.layers",
        )
    )
    spec = WorkloadSpec(model=f"{path}:make")
    training = build_training(spec, resolve(spec), "cpu")
    folder, files = workload_sources(spec.model)
    assert folder == tmp_path.resolve()
    assert files == (beside, layers.with_name("__init__.py"), layers, path)

    old = workload_key(spec, training, ())
    (tmp_path / "never_imported.py").write_text("VALUE = 1\n")
    installed.write_text("VALUE = 1\n")
    assert workload_key(spec, training, ()) == old
    layers.write_text("VALUE = 1\n")
    assert workload_key(spec, training, ()).sources != old.sources


def test_sources_of_a_module_are_its_package(
    user_file: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = user_file("", "keyed_package/__init__.py")
    helper = user_file("", "keyed_package/deep/helper.py")
    user_file("", "outside_of_package.py")
    job = user_file(
        JOB.format(width=4, imports="import outside_of_package\nimport keyed_package.deep.helper"),
        "keyed_package/jobs/job.py",
    )
    monkeypatch.chdir(tmp_path)
    spec = WorkloadSpec(model="keyed_package.jobs.job:make")
    resolve(spec)
    folder, files = workload_sources(spec.model)
    assert folder == root.parent
    assert files == (root, helper, job)


def test_sources_of_a_builtin_are_ours() -> None:
    folder, files = workload_sources("mlp")
    names = {file.relative_to(folder).as_posix() for file in files}
    assert {"builtins/mlp.py", "training.py", "workload.py"} <= names


def test_digest_does_not_depend_on_the_folder(user_file: WriteFile) -> None:
    keys = []
    for folder in ("here", "there"):
        path = user_file(JOB.format(imports="", width=4), f"{folder}/job_in_{folder}.py")
        path = path.rename(path.with_name("same_job.py"))
        spec = WorkloadSpec(model=f"{path}:make")
        keys.append(key_of(spec))
    assert keys[0].sources == keys[1].sources
    assert keys[0].parameters == keys[1].parameters


def test_loaded_model_packages_are_part_of_the_software(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = WorkloadSpec(model="mlp")
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    without = key_of(spec)
    package = ModuleType("timm")
    monkeypatch.setitem(sys.modules, "timm", package)
    package.__version__ = "1.0"  # type: ignore[attr-defined]
    one = key_of(spec)
    package.__version__ = "1.1"  # type: ignore[attr-defined]
    other = key_of(spec)
    assert len({key.software for key in (without, one, other)}) == 3
    (change,) = key_differences(one, other)
    assert "software" in change


def test_an_edited_hugging_face_configuration_changes_the_sources(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    model = f"hf:{tmp_path}"
    before = _digest_sources(model)
    assert _digest_sources(model) == before
    (tmp_path / "modeling_mine.py").write_text("LAYERS = 2\n")
    with_code = _digest_sources(model)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_layer": 2}')
    assert len({before, with_code, _digest_sources(model)}) == 3
