from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import WorkloadSpec
from bsprof.workloads.resolve import resolve
from bsprof.workloads.sources.packages import (
    checked_options,
    find_name,
    import_package,
    refuse_reserved,
    whole_number,
)


class Net:
    """Stands for a model class of a package."""

    def __init__(self, num_classes: int = 10, width: int = 4) -> None:
        self.size = num_classes * width


def build(**options: object) -> Net:
    kind = Net
    return kind(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "package"),
    [
        ("timm:resnet50", "timm"),
        ("torchvision:resnet50", "torchvision"),
        ("hf:some/model", "transformers"),
    ],
)
def test_missing_package_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, model: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(WorkloadError) as caught:
        resolve(WorkloadSpec(model=model))
    assert caught.value.doing == f"--model {model} needs the package {package}"
    assert caught.value.next_step == f"pip install {package}"


def fake_package(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> None:
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)


def test_package_that_lacks_another_names_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_package(tmp_path, monkeypatch, "timm", "import torchvision_is_not_here\n")
    with pytest.raises(WorkloadError) as caught:
        resolve(WorkloadSpec(model="timm:resnet50"))
    assert "timm needs torchvision_is_not_here" in caught.value.found
    assert caught.value.next_step == "pip install torchvision_is_not_here"


@pytest.mark.parametrize(
    ("model", "package"), [("torchvision:x", "torchvision"), ("timm:x", "timm")]
)
def test_torchvision_for_another_torch_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, package: str
) -> None:
    text = "operator torchvision::nms does not exist"
    fake_package(tmp_path, monkeypatch, package, f"raise RuntimeError({text!r})\n")
    with pytest.raises(WorkloadError) as caught:
        resolve(WorkloadSpec(model=model))
    assert caught.value.doing == f"cannot import {package}, which --model {model} needs"
    assert text in caught.value.found
    assert "torch 2" in caught.value.found
    assert "pip install --upgrade torch torchvision" in caught.value.next_step


def test_package_that_breaks_for_another_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_package(tmp_path, monkeypatch, "their_package", "from os import no_such_name\n")
    with pytest.raises(WorkloadError, match="no_such_name") as caught:
        import_package("their_package", "hf:x")
    assert caught.value.next_step == "pip install --upgrade their_package"


def test_imported_package_is_returned() -> None:
    assert import_package("sys", "timm:x") is sys


def test_near_names() -> None:
    assert find_name("ResNet5O", ["resnet50", "vgg16"]) == "near: resnet50"
    assert find_name("zzz", ["resnet50"]) == ""


def test_unknown_option_names_near_ones_and_all() -> None:
    options = {"num_clases": 3}
    with pytest.raises(UsageError) as caught, checked_options("timm:net", options):
        build(**options)
    assert caught.value.doing == "timm:net has no --model-option num_clases"
    assert caught.value.found == "near: num_classes"
    assert caught.value.next_step == "Net takes num_classes, width"


def test_other_type_errors_pass() -> None:
    with pytest.raises(TypeError, match="num_clases"), checked_options("timm:net", {"width": 3}):
        build(num_clases=3)
    with pytest.raises(TypeError, match="unsupported"), checked_options("timm:net", {"width": 3}):
        build(width=None)


def test_reserved_and_empty_options_are_refused() -> None:
    why = {"weights": "the weights are random; leave it out"}
    refuse_reserved("timm:net", {"width": 3}, why)
    with pytest.raises(UsageError, match="weights cannot be given to timm:net") as caught:
        refuse_reserved("timm:net", {"weights": "V1"}, why)
    assert caught.value.next_step == why["weights"]
    with pytest.raises(UsageError, match="width=none has no effect"):
        refuse_reserved("timm:net", {"width": None}, why)


def test_whole_numbers() -> None:
    assert whole_number({}, "width", 4) == 4
    assert whole_number({"width": 3}, "width", 4) == 3
    assert whole_number({"width": 0}, "width", 4, least=0) == 0
    for value in (0, True, 2.5, "3"):
        with pytest.raises(UsageError, match=f"cannot read --model-option width={value}"):
            whole_number({"width": value}, "width", 4)
