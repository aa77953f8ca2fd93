"""The key of a workload: digests that say whether two sweeps measured the same thing."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import bsprof
from bsprof.records import WorkloadKey, WorkloadSpec
from bsprof.records.codec import to_json
from bsprof.workloads.names import parse_model

if TYPE_CHECKING:
    from torch import nn

    from bsprof.workloads.training import Training

_CHANGES = {
    "sources": "the source files of the workload",
    "parameters": "the parameters of the model (names, shapes or types), or the data set",
    "operators": "the operators of a micro-step",
    "options": "the options of the workload",
    "software": "the software (Python, torch, its libraries, or bsprof)",
}
_MODEL_PACKAGES = (
    "accelerate",
    "bitsandbytes",
    "lightning",
    "peft",
    "pytorch_lightning",
    "timm",
    "torchvision",
    "transformers",
)
_INSTALLED = ("site-packages", "dist-packages")


def workload_key(spec: WorkloadSpec, training: Training, operators: Sequence[str]) -> WorkloadKey:
    """The key of a built workload.

    Args:
        spec: What was asked for.
        training: What was built from it.
        operators: Names of the operators of one micro-step, in order.
    """
    return WorkloadKey(
        sources=_digest_sources(spec.model),
        parameters=_digest([*_parameter_lines(training.model), _data_line(training)]),
        operators=_digest(operators),
        options=_digest([json.dumps(to_json(spec), sort_keys=True)]),
        software=_digest(_software_lines()),
    )


def key_differences(old: WorkloadKey, new: WorkloadKey) -> tuple[str, ...]:
    """What changed between two keys, in plain words; empty when nothing did."""
    return tuple(
        words for field, words in _CHANGES.items() if getattr(old, field) != getattr(new, field)
    )


def workload_sources(model: str) -> tuple[Path, tuple[Path, ...]]:
    """The folder and the files that define a workload, sorted.

    For a user's factory: its file, and every module imported by now that lies in the same folder
    or below it (of a package: in the package), installed packages and bsprof itself apart. For
    all others: the sources of `bsprof.workloads` (a package's version is part of the software;
    the key adds a Hugging Face configuration and the code beside it).
    """
    name = parse_model(model)
    if name.kind not in ("file", "module"):
        folder = Path(__file__).resolve().parent
        return folder, tuple(sorted([*folder.rglob("*.py"), *folder.rglob("*.toml")]))
    if name.kind == "file":
        file = Path(name.location).resolve()
        folder = file.parent
    else:
        file = Path(str(sys.modules[name.location].__file__)).resolve()
        package = sys.modules[name.location.partition(".")[0]]
        # A namespace package has no file of its own; then the factory's folder has to do.
        folder = Path(package.__file__).resolve().parent if package.__file__ else file.parent
    beside = {path for path in _imported_files() if _belongs(path, folder)}
    return folder, tuple(sorted({file, *beside}))


def _imported_files() -> Iterable[Path]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        # Some modules name a file that is not there (torch.classes: a bare "_classes.py").
        if file and file.endswith(".py") and Path(file).is_file():
            yield Path(file).resolve()


def _belongs(path: Path, folder: Path) -> bool:
    """Whether a file is of the user's own tree: below the folder, and not installed there."""
    if not path.is_relative_to(folder) or path.is_relative_to(Path(bsprof.__file__).parent):
        return False
    below = path.relative_to(folder).parts
    # A module alone in site-packages has all that is installed for neighbours.
    alone = folder.name in _INSTALLED or folder == Path(platform.__file__).resolve().parent
    return not alone and not set(below) & set(_INSTALLED)


def _parameter_lines(model: nn.Module) -> list[str]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return [f"{name} {tuple(t.shape)} {t.dtype} {t.requires_grad}" for name, t in named]


def _data_line(training: Training) -> str:
    """What is known of the user's data."""
    facts = training.facts
    return f"{facts.dataset_size} samples of {facts.tokens_per_sample} tokens"


def _software_lines() -> list[str]:
    """Versions of what a workload runs on, model packages only where they are loaded."""
    import torch

    loaded = [(name, sys.modules.get(name)) for name in _MODEL_PACKAGES]
    return [
        f"python {platform.python_version()}",
        f"torch {torch.__version__}",
        f"cuda {torch.version.cuda}",
        f"hip {torch.version.hip}",
        f"cudnn {torch.backends.cudnn.version()}",  # type: ignore[no-untyped-call]
        f"bsprof {bsprof.__version__}",
        *(f"{name} {getattr(module, '__version__', None)}" for name, module in loaded if module),
    ]


def _digest_sources(model: str) -> str:
    """Digest of file names and contents; where the folder lies does not matter."""
    folder, files = workload_sources(model)
    named = [(file.relative_to(folder).as_posix(), file) for file in files]
    parsed = parse_model(model)
    if parsed.kind == "hf":
        from bsprof.workloads.sources.hf_config import find_config

        config = find_config(model, parsed.location)
        beside = {config, *config.parent.glob("*.py")}  # code that comes with it
        named += [(file.name, file) for file in sorted(beside)]
    return _digest(
        f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}" for name, file in named
    )


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
