from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import WorkloadSpec
from bsprof.workloads.names import parse_model
from bsprof.workloads.resolve import load_factory, resolve

WriteFile = Callable[..., Path]

HEAD = """
import torch
from torch import nn
from bsprof.workloads.workload import Workload

def linear(**more):
    return Workload(
        model=lambda: nn.Linear(4, 1),
        batch=lambda b, device: torch.randn(b, 4, device=device),
        loss=lambda model, batch: model(batch).mean(),
        **more,
    )
"""


def spec_of(path: Path, factory: str = "make", **options: object) -> WorkloadSpec:
    return WorkloadSpec(model=f"{path}:{factory}", **options)  # type: ignore[arg-type]


def test_factory_without_parameters(user_file: WriteFile) -> None:
    path = user_file(HEAD + "def make():\n    return linear(dataset_size=50)\n")
    workload = resolve(spec_of(path))
    assert workload.dataset_size == 50
    assert workload.batch(3, torch.device("cpu")).shape == (3, 4)


def test_factory_gets_only_what_its_signature_names(user_file: WriteFile) -> None:
    path = user_file(
        HEAD
        + "def make(seq_len=7, image_size=9, extra=1):\n"
        + "    return linear(dataset_size=seq_len * 1000 + image_size)\n"
        + "def from_spec(spec):\n    return linear(dataset_size=spec.seed)\n"
    )
    assert resolve(spec_of(path)).dataset_size == 7009
    chosen = resolve(spec_of(path, seq_len=5))
    assert chosen.dataset_size == 5009
    assert chosen.uses_seq_len
    assert not chosen.uses_image_size
    assert resolve(spec_of(path, "from_spec", seed=33)).dataset_size == 33


@pytest.mark.parametrize(
    ("options", "named"),
    [({"seq_len": 8}, "--seq-len"), ({"image_size": 8}, "--image-size")],
)
def test_option_without_effect_is_refused(
    user_file: WriteFile, options: dict[str, object], named: str
) -> None:
    path = user_file(HEAD + "def make():\n    return linear()\n")
    with pytest.raises(UsageError, match=named):
        resolve(spec_of(path, **options))
    with pytest.raises(UsageError, match=f"{named} has no effect on mlp"):
        resolve(WorkloadSpec(model="mlp", **options))  # type: ignore[arg-type]


def test_attention_without_effect_is_refused() -> None:
    with pytest.raises(UsageError, match="--attention has no effect on convnet"):
        resolve(WorkloadSpec(model="convnet", attention="eager"))
    with pytest.raises(UsageError, match="no attention 'flash'"):
        resolve(WorkloadSpec(model="gpt-tiny", attention="flash"))


def test_remote_code_is_of_hugging_face_models_only() -> None:
    with pytest.raises(UsageError, match="--trust-remote-code has no effect on convnet"):
        resolve(WorkloadSpec(model="convnet", trust_remote_code=True))


@pytest.mark.parametrize(
    ("model", "field"),
    [("gpt2", "seq_len"), ("llama-3.2-1b", "seq_len"), ("resnet50", "image_size")],
)
def test_a_size_that_is_given_twice_is_refused(model: str, field: str) -> None:
    asked: dict[str, Any] = {field: 64, "model_options": {field: 32}}
    with pytest.raises(UsageError, match=f"--model-option {field} say the same"):
        resolve(WorkloadSpec(model=model, **asked))


def test_required_option_is_asked_for(user_file: WriteFile) -> None:
    path = user_file(HEAD + "def make(seq_len):\n    return linear()\n")
    with pytest.raises(UsageError, match="needs --seq-len"):
        resolve(spec_of(path))
    assert resolve(spec_of(path, seq_len=4)).uses_seq_len


def test_parameter_that_cannot_be_given_is_named(user_file: WriteFile) -> None:
    path = user_file(HEAD + "def make(folder, seq_len=1):\n    return linear()\n")
    with pytest.raises(WorkloadError, match="it needs folder"):
        resolve(spec_of(path))


def test_factory_that_raises_names_file_line_and_last_lines(user_file: WriteFile) -> None:
    path = user_file(
        HEAD + "def helper():\n    return {}['weights']\n\ndef make():\n    helper()\n"
    )
    line = path.read_text().splitlines().index("    return {}['weights']") + 1
    with pytest.raises(WorkloadError) as caught:
        resolve(spec_of(path))
    assert f"{path}:{line}: KeyError: 'weights'" in caught.value.found
    assert caught.value.found.splitlines()[-1] == "KeyError: 'weights'"
    assert "bsprof/workloads/resolve.py" not in caught.value.found


def test_syntax_error_and_missing_import_name_the_place(user_file: WriteFile) -> None:
    broken = user_file("def make(:\n    pass\n", "broken_job.py")
    with pytest.raises(WorkloadError, match=r"broken_job\.py:1: SyntaxError"):
        resolve(spec_of(broken))
    lacking = user_file("import not_a_package_at_all\n", "lacking_job.py")
    with pytest.raises(WorkloadError, match=r"lacking_job\.py:1: ModuleNotFoundError") as caught:
        resolve(spec_of(lacking))
    assert "install 'not_a_package_at_all'" in caught.value.next_step
    assert "lacking_job" not in sys.modules


def test_memory_errors_and_exits_pass_through(user_file: WriteFile) -> None:
    path = user_file(
        "import torch\n"
        "def memory():\n    raise MemoryError\n"
        "def accelerator():\n    raise torch.OutOfMemoryError('CUDA out of memory.')\n"
        "def cpu():\n    torch.empty(1 << 60)\n"
        "def leave():\n    raise SystemExit(3)\n"
        "def stop():\n    raise KeyboardInterrupt\n"
    )
    for factory, error in (
        ("memory", MemoryError),
        ("accelerator", torch.OutOfMemoryError),
        ("cpu", RuntimeError),
        ("leave", SystemExit),
        ("stop", KeyboardInterrupt),
    ):
        with pytest.raises(error) as caught:
            resolve(spec_of(path, factory))
        assert not isinstance(caught.value, WorkloadError)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("(nn.Linear(4, 1), 2, 3)", "a tuple of Linear, int, int"),
        ("nn.Linear(4, 1)", "a Linear"),
        ("None", "nothing"),
    ],
)
def test_other_than_a_workload_is_refused(user_file: WriteFile, value: str, found: str) -> None:
    path = user_file(HEAD + f"def make():\n    return {value}\n")
    with pytest.raises(WorkloadError, match=f"it returned {found}"):
        resolve(spec_of(path))


def test_missing_factory_lists_the_functions_there(user_file: WriteFile) -> None:
    path = user_file(HEAD + "def make():\n    return linear()\n")
    with pytest.raises(WorkloadError) as caught:
        resolve(spec_of(path, "mke"))
    assert "functions there: linear, make" in caught.value.found


def test_file_is_imported_once_and_sees_its_neighbours(user_file: WriteFile) -> None:
    user_file("VALUE = 11\n", "neighbour_of_job.py")
    path = user_file(
        HEAD
        + "import neighbour_of_job\nimported = []\n"
        + "def make():\n"
        + "    import again_from_job\n"
        + "    imported.append(1)\n"
        + "    return linear(dataset_size=neighbour_of_job.VALUE + len(imported))\n"
    )
    user_file("import their_job\nassert their_job.imported is not None\n", "again_from_job.py")
    assert resolve(spec_of(path)).dataset_size == 12
    assert resolve(spec_of(path)).dataset_size == 13


def test_file_named_like_a_loaded_module_gets_its_own_name(user_file: WriteFile) -> None:
    path = user_file(HEAD + "def make():\n    return linear()\n", "torch.py")
    factory = load_factory(parse_model(f"{path}:make"))
    assert factory.__module__.startswith("bsprof_user_torch_")
    assert sys.modules["torch"] is torch


def test_module_of_a_package(
    user_file: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_file("SIZE = 6\n", "their_package/__init__.py")
    user_file(
        HEAD + "from . import SIZE\ndef make():\n    return linear(dataset_size=SIZE)\n",
        "their_package/job.py",
    )
    monkeypatch.chdir(tmp_path)
    assert resolve(WorkloadSpec(model="their_package.job:make")).dataset_size == 6
    with pytest.raises(WorkloadError, match=r"cannot import their_package\.jobs"):
        resolve(WorkloadSpec(model="their_package.jobs:make"))
    with pytest.raises(WorkloadError) as caught:
        resolve(spec_of(tmp_path / "their_package" / "job.py"))
    assert "pkg.mod:factory" in caught.value.next_step
