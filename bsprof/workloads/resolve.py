"""From `--model` to a `Workload`: a known model, a package's, or the user's factory, called.

Imports the user's code, so only a worker calls this.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import WorkloadSpec
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.faults import user_code
from bsprof.workloads.names import BUILTINS, ModelName, parse_model
from bsprof.workloads.workload import Workload

SOURCES = {
    "timm": "bsprof.workloads.sources.timm_models",
    "torchvision": "bsprof.workloads.sources.torchvision_models",
    "hf": "bsprof.workloads.sources.huggingface",
}
"""Modules that build the models of installed packages."""
OPTIONS = {
    "seq_len": ("--seq-len", "uses_seq_len"),
    "image_size": ("--image-size", "uses_image_size"),
    "attention": ("--attention", "uses_attention"),
}
"""Fields of the spec that reach the factory: their option and the workload's word for it."""


def resolve(spec: WorkloadSpec) -> Workload:
    """The workload that `spec.model` names; options that it would ignore are refused.

    A user's factory is called with those of `spec`, `seq_len`, `image_size` and `attention` that
    its signature names; options that were not given are left to its defaults.

    Raises:
        UsageError: no such model, or an option that has no effect on it.
        WorkloadError: the user's code raised (file, line and last lines are named), or what it
            returned is no `Workload`. Errors of memory and of the device pass through untouched.
    """
    name = parse_model(spec.model)
    if spec.trust_remote_code and name.kind != "hf":
        raise UsageError(
            f"--trust-remote-code has no effect on {spec.model}",
            found="no model of Hugging Face",
            next_step="leave it out",
        )
    if name.kind == "builtin":
        _refuse_model_options(spec)
        module = importlib.import_module(BUILTINS[name.location].module)
        workload = cast(Workload, module.workload(spec))
    elif name.kind == "catalogue":
        entry = entries()[name.location]
        _refuse_twice(spec)
        module = importlib.import_module(f"bsprof.workloads.families.{entry.family}")
        workload = cast(Workload, module.workload(spec, entry))
    elif name.kind in SOURCES:
        module = importlib.import_module(SOURCES[name.kind])
        workload = cast(Workload, module.workload(spec, name.location))
    else:
        workload = _call(load_factory(name), spec)
    _check_options(spec, workload)
    return workload


def _refuse_twice(spec: WorkloadSpec) -> None:
    """Refuse a setting that is given as an option of its own, too: one would be ignored."""
    for field in ("seq_len", "image_size"):
        if field in spec.model_options and getattr(spec, field) is not None:
            raise UsageError(
                f"{OPTIONS[field][0]} and --model-option {field} say the same",
                next_step="leave one of them out",
            )


def _refuse_model_options(spec: WorkloadSpec) -> None:
    if spec.model_options:
        raise UsageError(
            f"--model-option has no effect on {spec.model}",
            next_step="leave it out, or take a model of the catalogue (bsprof models)",
        )


def load_factory(name: ModelName) -> Callable[..., Any]:
    """The user's factory function, its file or module imported at most once per process.

    Raises:
        WorkloadError: importing raised, or nothing callable has that name.
    """
    with user_code(f"cannot import {name.location}"):
        module = _import_file(name) if name.kind == "file" else _import_module(name)
    factory = getattr(module, name.factory, None)
    if not callable(factory):
        functions = sorted(
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        )
        raise WorkloadError(
            f"no factory {name.factory!r} in {name.location}",
            found=f"functions there: {', '.join(functions) or 'none'}",
            next_step="name a function that returns a bsprof.Workload",
        )
    return cast(Callable[..., Any], factory)


def _import_file(name: ModelName) -> ModuleType:
    """Import a file as Python would if it stood beside the program: its folder on `sys.path`."""
    path = Path(name.location).resolve()
    _put_on_path(path.parent)
    module_name = _module_name(path)
    if module_name in sys.modules:
        return sys.modules[module_name]
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module
    try:
        module_spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def _module_name(path: Path) -> str:
    """The file's stem, so that its neighbours import the same module; a digest if it is taken."""
    taken = sys.modules.get(path.stem)
    taken_by = getattr(taken, "__file__", None)
    free = taken is None or (taken_by is not None and Path(taken_by).resolve() == path)
    if path.stem.isidentifier() and free:
        return path.stem
    return f"bsprof_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def _import_module(name: ModelName) -> ModuleType:
    """Import a dotted module, from the current folder too, as `python -m` does."""
    _put_on_path(Path.cwd())
    return importlib.import_module(name.location)


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _call(factory: Callable[..., Any], spec: WorkloadSpec) -> Workload:
    """Call a user's factory with what its signature asks for, and check what comes back."""
    parameters = inspect.signature(factory).parameters
    arguments: dict[str, Any] = {"spec": spec} if "spec" in parameters else {}
    for field in OPTIONS:
        value = getattr(spec, field)
        if field in parameters and value is not None:
            arguments[field] = value
    arguments |= _model_options(parameters, spec)
    _check_parameters(parameters, arguments, spec)
    with user_code(f"cannot build the workload {spec.model}"):
        made = factory(**arguments)
    if not isinstance(made, Workload):
        raise WorkloadError(
            f"the factory {spec.model} must return a bsprof.Workload",
            found=f"it returned {_kind(made)}",
            next_step="return Workload(model=..., batch=..., loss=...)",
        )
    return replace(
        made,
        uses_seq_len=made.uses_seq_len or "seq_len" in arguments,
        uses_image_size=made.uses_image_size or "image_size" in arguments,
        uses_attention=made.uses_attention or "attention" in arguments,
    )


def _model_options(parameters: Any, spec: WorkloadSpec) -> dict[str, Any]:
    """`--model-option`s, each a parameter of the factory that no other option speaks for."""
    taken = {"spec", *OPTIONS}
    free = [
        name
        for name, parameter in parameters.items()
        if name not in taken
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key in spec.model_options:
        if key in taken or not (key in free or open_ended):
            raise UsageError(
                f"the factory {spec.model} has no parameter for --model-option {key}",
                found=f"its parameters: {', '.join(parameters) or 'none'}",
                next_step="leave the option out, or give the factory such a parameter",
            )
    return dict(spec.model_options)


def _check_parameters(parameters: Any, arguments: dict[str, Any], spec: WorkloadSpec) -> None:
    """Refuse a factory that needs what it cannot be given."""
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    missing = [
        parameter.name
        for parameter in parameters.values()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in optional
        and parameter.name not in arguments
    ]
    options = [OPTIONS[field][0] for field in missing if field in OPTIONS]
    if missing and len(options) == len(missing):
        raise UsageError(f"the factory {spec.model} needs {' and '.join(options)}")
    if missing:
        raise WorkloadError(
            f"cannot call the factory {spec.model}",
            found=f"it needs {', '.join(missing)}",
            next_step=f"a factory may take spec, {', '.join(OPTIONS)}; give others a default",
        )


def _check_options(spec: WorkloadSpec, workload: Workload) -> None:
    """Refuse options that would change nothing: the numbers would not be what was asked for."""
    for field, (option, word) in OPTIONS.items():
        if getattr(spec, field) is None or getattr(workload, word):
            continue
        next_step = "leave it out"
        if parse_model(spec.model).kind in ("file", "module"):
            next_step += f", or give the factory a parameter {field}"
        raise UsageError(f"{option} has no effect on {spec.model}", next_step=next_step)


def _kind(made: object) -> str:
    """What a factory returned, in a few words."""
    if isinstance(made, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in made) or 'nothing'}"
    return "nothing" if made is None else f"a {type(made).__name__}"
