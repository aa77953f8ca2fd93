"""The catalogue: one entry a model, read from the `.toml` files beside this module. No torch."""

from __future__ import annotations

import difflib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bsprof.errors import UsageError
from bsprof.records import Scalar

Setting = Scalar | tuple[int, ...]
"""A setting of an architecture; stage-wise ones (depths, widths) are tuples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model of the catalogue.

    Attributes:
        name: What `--model` takes.
        family: Module of `bsprof.workloads.families` that builds it.
        task: What it is trained on here, in words: `causal language model`.
        summary: One line about it.
        parameters: The published parameter count, tied parameters once.
        source: Where the count and the settings were published (an address).
        aliases: Other names that `--model` takes.
        config: The settings of the architecture, by the family's names.
        forward_flops: Published FLOPs of one sample's forward pass (2 per multiply-add), where
            known; at the entry's default sample.
        flops_source: Where those were published.
        note: What differs from the published model, if anything does.
    """

    name: str
    family: str
    task: str
    summary: str
    parameters: int
    source: str
    config: Mapping[str, Setting]
    aliases: tuple[str, ...] = ()
    forward_flops: float | None = None
    flops_source: str = ""
    note: str = ""

    def configured(self, options: Mapping[str, Scalar]) -> Mapping[str, Setting]:
        """The settings with `--model-option`s over them.

        Lists are given as text with commas: `depths=2,2`.

        Raises:
            UsageError: no such setting (near ones are named), or a value of another kind.
        """
        settings = dict(self.config)
        for key, value in options.items():
            if key not in settings:
                near = difflib.get_close_matches(key, settings, n=3, cutoff=0.5)
                raise UsageError(
                    f"{self.name} has no setting {key!r}",
                    found=f"near: {', '.join(near)}" if near else "",
                    next_step=f"its settings: {', '.join(sorted(settings))}",
                )
            settings[key] = _like(settings[key], value, f"--model-option {key}={value}")
        return MappingProxyType(settings)


@functools.cache
def entries() -> Mapping[str, Entry]:
    """Every entry by name, sorted."""
    found: dict[str, Entry] = {}
    for file in sorted(Path(__file__).parent.glob("*.toml")):
        for name, table in tomllib.loads(file.read_text(encoding="utf-8")).items():
            assert name not in found, f"{name} is twice in the catalogue"
            found[name] = _entry(name, table)
    return MappingProxyType(dict(sorted(found.items())))


def find_entry(name: str) -> Entry | None:
    """The entry of that name or alias, whatever its case; None if there is none."""
    return _by_any_name().get(name.lower())


@functools.cache
def _by_any_name() -> Mapping[str, Entry]:
    found: dict[str, Entry] = {}
    for entry in entries().values():
        for name in (entry.name, *entry.aliases):
            assert name not in found, f"{name} names two entries of the catalogue"
            found[name] = entry
    return found


def _entry(name: str, table: dict[str, Any]) -> Entry:
    config = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in table.pop("config").items()
    }
    aliases = tuple(table.pop("aliases", ()))
    return Entry(name=name, config=MappingProxyType(config), aliases=aliases, **table)


def _like(default: Setting, value: Scalar, given: str) -> Setting:
    """The value as the kind of setting that the default is."""
    try:
        if isinstance(default, tuple):
            return tuple(int(part) for part in str(value).split(","))
        if isinstance(default, bool):
            if isinstance(value, bool):
                return value
        elif isinstance(default, int):
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        elif isinstance(default, float):
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
        elif isinstance(value, str):
            return value
    except ValueError:
        pass
    kind = "numbers with commas" if isinstance(default, tuple) else f"a {type(default).__name__}"
    raise UsageError(f"cannot read {given}", next_step=f"give {kind}, like {_text(default)}")


def _text(value: Setting) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
