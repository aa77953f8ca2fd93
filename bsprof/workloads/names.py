"""What `--model` may say, checked without importing torch or the user's code."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast

from bsprof.errors import UsageError, WorkloadError
from bsprof.workloads.catalogue.entries import entries, find_entry

NEXT_STEP = (
    "see bsprof models, or name timm:NAME, torchvision:NAME, hf:FOLDER-or-id, file.py:factory or "
    "pkg.mod:factory"
)
PACKAGES = ("timm", "torchvision", "hf")
"""Prefixes that name a model of an installed package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """A built-in model: the module that defines it, and one line about it."""

    module: str
    summary: str


BUILTINS: Mapping[str, Builtin] = MappingProxyType(
    {
        "convnet": Builtin(
            module="bsprof.workloads.builtins.convnet",
            summary="residual convnet with BatchNorm, 32 x 32 images, 10 classes",
        ),
        "encoder-tiny": Builtin(
            module="bsprof.workloads.builtins.encoder",
            summary="BERT architecture, masked language model: 4 layers, width 256, sequence 128",
        ),
        "gpt-tiny": Builtin(
            module="bsprof.workloads.builtins.gpt",
            summary="GPT-2 architecture: 4 layers, width 256, 4 heads, sequence 128",
        ),
        "mlp": Builtin(
            module="bsprof.workloads.builtins.mlp",
            summary="four linear layers, width 512, 784 inputs, 10 classes",
        ),
        "vit-tiny": Builtin(
            module="bsprof.workloads.builtins.vit",
            summary="vision transformer: 4 layers, width 128, patch 4, 32 x 32 images",
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelName:
    """A parsed `--model`.

    Attributes:
        kind: `builtin`, `catalogue`, a package (`timm:NAME`, `torchvision:NAME`, `hf:NAME`),
            `file` (`file.py:factory`) or `module` (`pkg.mod:factory`).
        location: Name of the built-in or the catalogue's entry, name in the package, path of the
            file, or dotted name of the module.
        factory: Attribute in the file or module; empty for the others.
    """

    kind: Literal["builtin", "catalogue", "timm", "torchvision", "hf", "file", "module"]
    location: str
    factory: str = ""


def builtin_names() -> tuple[str, ...]:
    """Names of the built-in models, sorted."""
    return tuple(sorted(BUILTINS))


def parse_model(model: str) -> ModelName:
    """What kind of thing `model` names; files are looked for, modules are not imported.

    Raises:
        UsageError: no name that is known, nor the form of a factory.
        WorkloadError: `file.py:factory` and there is no such file.
    """
    if model in BUILTINS:
        return ModelName(kind="builtin", location=model)
    entry = find_entry(model)
    if entry is not None:
        return ModelName(kind="catalogue", location=entry.name)
    package, colon, name = model.partition(":")
    if colon and package in PACKAGES:
        if not name:
            raise UsageError(f"the model {model!r} lacks a name", next_step=NEXT_STEP)
        return ModelName(kind=cast(Literal["timm", "torchvision", "hf"], package), location=name)
    # From the right: a Windows path has a colon of its own.
    location, colon, factory = model.rpartition(":")
    if not colon or not location:
        raise _unknown(model)
    if not factory.isidentifier():
        raise UsageError(
            f"cannot read the model {model!r}",
            found=f"{factory!r} after the colon, which is no name of a function",
            next_step=NEXT_STEP,
        )
    if location.endswith(".py"):
        if not Path(location).is_file():
            raise WorkloadError(
                f"cannot load the model {model!r}",
                found=f"no file {location}, seen from {Path.cwd()}",
                next_step="check the path",
            )
        return ModelName(kind="file", location=location, factory=factory)
    if all(part.isidentifier() for part in location.split(".")):
        return ModelName(kind="module", location=location, factory=factory)
    raise _unknown(model)


def check_model(model: str) -> None:
    """Refuse a `--model` that cannot be, before a worker is started for it.

    Raises:
        UsageError: no name that is known (near ones are named), nor the form of a factory.
        WorkloadError: `file.py:factory` and there is no such file.
    """
    parse_model(model)


def _unknown(model: str) -> UsageError:
    """The error for a name that is not known and has not the form of a factory."""
    if model.endswith(".py"):
        return UsageError(
            f"the model {model!r} lacks the name of its factory",
            next_step=f"write {model}:FUNCTION, a function there that returns a bsprof.Workload",
        )
    known = (*builtin_names(), *entries())
    near = difflib.get_close_matches(model.lower(), known, n=3, cutoff=0.5)
    found = f"near: {', '.join(near)}" if near else f"known: {', '.join(known)}"
    return UsageError(f"unknown model {model!r}", found=found, next_step=NEXT_STEP)
