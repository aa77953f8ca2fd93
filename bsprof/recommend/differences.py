"""What is not the same in all of several profiles, and the shortest names that tell them apart.

Only what may change speed or memory counts: neither the seed nor the time of measuring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from bsprof.records import Profile, WorkloadSpec
from bsprof.units import format_bytes
from bsprof.workloads.catalogue.entries import Setting, find_entry
from bsprof.workloads.listing import find_model

_SAME_SPEED = frozenset({"model", "seed", "trust_remote_code"})  # the model is looked at on its own
_NAMES = {
    "seq_len": "sequence",
    "image_size": "image",
    "activation_checkpointing": "checkpointing",
}
_UNSET = {"seq_len": "default", "image_size": "default", "attention": "default"}
_SPEAK_FOR_THEMSELVES = frozenset({"model", "device", "precision", "optimizer", "mode", "origin"})
_SAME_SETTINGS = frozenset({"TORCHINDUCTOR_CACHE_DIR"})  # a place, not a speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that is not the same in all profiles.

    Attributes:
        name: What it is, in words: `precision`.
        values: One text per profile.
    """

    name: str
    values: tuple[str, ...]


def differences(profiles: Sequence[Profile]) -> tuple[Difference, ...]:
    """Everything that differs: model and device first, then options, software and settings."""
    return tuple(
        Difference(name=name, values=values)
        for name, values in _candidates(profiles)
        if len(set(values)) > 1
    )


def labels(profiles: Sequence[tuple[str, Profile]]) -> tuple[str, ...]:
    """The shortest texts that tell the profiles apart: what differs, else their names.

    Args:
        profiles: Name and profile; a single one is called by its model.
    """
    if len(profiles) == 1:
        return (profiles[0][1].workload.model,)
    parts: list[list[str]] = [[] for _ in profiles]
    for difference in differences([profile for _, profile in profiles]):
        before = len({tuple(part) for part in parts})
        values = _short(difference)
        with_it = [[*part, value] for part, value in zip(parts, values, strict=True)]
        if len({tuple(part) for part in with_it}) > before:
            parts = with_it
    found = [", ".join(part) for part in parts]
    if len(set(found)) == len(found):
        return tuple(found)
    names = [name for name, _ in profiles]
    if len(set(names)) == len(names):
        return tuple(names)
    return tuple(f"{number}: {name}" for number, name in enumerate(names, start=1))


def models_differ(profiles: Sequence[Profile]) -> bool:
    """Whether the models are not the same: by name, or by how many parameters they have.

    Adapters, and positions that are learned for samples of one size, do not make another model.
    """
    counts = {p.facts.parameter_count for p in profiles if p.facts is not None}
    alike = {(p.workload.lora_rank, p.workload.lora_targets, sample_size(p)) for p in profiles}
    return len(set(_models(profiles))) > 1 or (len(counts) > 1 and len(alike) == 1)


def sample_size(profile: Profile) -> tuple[Setting | None, Setting | None]:
    """Tokens and pixels per side of a sample, where they are known: as asked, else by default."""
    spec = profile.workload
    known = find_model(spec.model)
    usual: Mapping[str, Setting] = {} if known is None else known.sample

    def of(name: str, asked: int | None) -> Setting | None:
        return asked if asked is not None else spec.model_options.get(name, usual.get(name))

    return of("seq_len", spec.seq_len), of("image_size", spec.image_size)


def sources_differ(profiles: Sequence[Profile]) -> bool:
    """Whether the user's own file of one and the same factory was another one each time."""
    factories = {p.workload.model for p in profiles}
    if len(factories) > 1 or ":" not in profiles[0].workload.model:
        return False
    return len({p.key.sources for p in profiles if p.key is not None}) > 1


def _short(difference: Difference) -> list[str]:
    """The values as parts of a label: with what they are of, and files without their folders."""
    if difference.name not in _SPEAK_FOR_THEMSELVES:
        return [f"{difference.name} {value}" for value in difference.values]
    short = [
        value.replace("\\", "/").rpartition("/")[2] if ".py:" in value else value
        for value in difference.values
    ]
    same = len(set(short)) == len(set(difference.values))
    return short if same else list(difference.values)


def _candidates(profiles: Sequence[Profile]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Name and values of everything that may differ."""
    yield "model", _models(profiles)
    yield from _each(profiles, {"device": lambda p: p.device.name or p.device.kind})
    yield from _options(profiles)
    yield from _each(profiles, _AROUND)
    if len({p.device.name for p in profiles}) == 1:  # else they differ as the devices do
        settings = [p.environment.settings for p in profiles]
        for key in sorted({*settings[0]}.union(*settings[1:]) - _SAME_SETTINGS):
            yield key, tuple(_text(key, s.get(key)) for s in settings)


_AROUND: Mapping[str, Callable[[Profile], Any]] = {
    "threads": lambda p: p.device.threads,
    "memory limit": lambda p: (
        None if p.plan.memory_limit_bytes is None else format_bytes(p.plan.memory_limit_bytes)
    ),
    "ranks": lambda p: p.ranks,
    "parallel": lambda p: p.parallel,
    "origin": lambda p: p.origin,
    "torch": lambda p: p.environment.torch,
}


def _each(
    profiles: Sequence[Profile], questions: Mapping[str, Callable[[Profile], Any]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, ask in questions.items():
        yield name, tuple(_text(name, ask(p)) for p in profiles)


def _options(profiles: Sequence[Profile]) -> Iterator[tuple[str, tuple[str, ...]]]:
    tokens = {None if p.facts is None else p.facts.tokens_per_sample for p in profiles}
    for field in fields(WorkloadSpec):
        if field.name in _SAME_SPEED:
            continue
        if field.name == "seq_len" and len(tokens) == 1 and None not in tokens:
            continue  # given in one, the default of the other
        name = _NAMES.get(field.name, field.name.replace("_", " "))
        yield name, tuple(_text(field.name, getattr(p.workload, field.name)) for p in profiles)


def _models(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """The models' names; two names of one entry of the catalogue are the same."""
    given = [p.workload.model for p in profiles]
    if len(set(given)) == 1:
        return tuple(given)
    entries = [find_entry(name) for name in given]
    return tuple(
        name if entry is None else entry.name for name, entry in zip(given, entries, strict=True)
    )


def _text(name: str, value: Any) -> str:
    if value is None:
        return _UNSET.get(name, "none")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_text(key, value[key])}" for key in sorted(value)) or "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
