"""Command lines that the reader can run as they are."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import fields

from bsprof.records import Prediction, Profile, WorkloadSpec

_FLAGS = frozenset({"compile", "channels_last", "cudnn_benchmark", "ema", "trust_remote_code"})
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def sweep_command(profile: Profile, *words: str) -> str:
    """`bsprof sweep ...` for the workload and the device of a profile, and these words.

    Everything is named that the workload does not have by default, so that what is measured is
    comparable, and the memory limit where the user had set one. A predicted profile is predicted
    again, for the same device of the catalogue.
    """
    device = profile.device
    place = device.kind if device.kind in ("cpu", "mps") else f"{device.kind}:{device.index}"
    if profile.prediction is not None:
        place = profile.prediction.device
    command = ["bsprof", "sweep", *_options(profile.workload), "--device", place]
    if profile.prediction is not None:
        command += _of_prediction(profile, profile.prediction)
    if profile.plan.memory_limit_bytes is not None:
        command += ["--memory-limit", _bytes(profile.plan.memory_limit_bytes)]
    return shlex.join([*command, *words])


def measuring_command(profile: Profile) -> str:
    """The sweep that measures what a profile predicts, to be run on a machine with the device."""
    words = ["bsprof", "sweep", *_options(profile.workload), "--device", profile.device.kind]
    return shlex.join(words)


def _of_prediction(profile: Profile, prediction: Prediction) -> Iterator[str]:
    """Options that only a prediction takes: whose rules apply, and for how many ranks."""
    software = prediction.software
    rules = ",".join(f"{name}={software[name]}" for name in ("torch", "cudnn") if name in software)
    if rules:
        yield from ("--software", rules)
    if profile.ranks > 1:
        yield from ("--world-size", str(profile.ranks), "--parallel", profile.parallel)


def _options(spec: WorkloadSpec) -> Iterator[str]:
    """The options of `bsprof sweep` that give this spec; most are called like their field."""
    usual = WorkloadSpec(model=spec.model)
    for field in fields(spec):
        value, option = getattr(spec, field.name), "--" + field.name.replace("_", "-")
        if value == getattr(usual, field.name) and field.name != "model":
            continue
        if field.name in _FLAGS:
            yield option
        elif field.name in ("optimizer_options", "model_options"):
            for key, setting in value.items():
                yield from (option.removesuffix("s"), f"{key}={json.dumps(setting)}")
        elif field.name == "freeze":
            for pattern in spec.freeze:
                yield from (option, pattern)
        elif field.name == "lora_rank":
            targets = f",targets={'+'.join(spec.lora_targets)}" if spec.lora_targets else ""
            yield from ("--lora", f"r={value}{targets}")
        elif field.name == "lora_targets":
            continue  # said with the rank
        else:
            yield from (option, str(value))


def _bytes(amount: int) -> str:
    """`3GiB` where that is exact, else plain bytes."""
    for unit, size in _UNITS:
        if amount % size == 0:
            return f"{amount // size}{unit}"
    return str(amount)
