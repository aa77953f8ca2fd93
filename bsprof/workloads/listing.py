"""Every model that `--model` knows by name, for listing and explaining; no torch."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from bsprof.workloads.catalogue.entries import Entry, Setting, entries, find_entry
from bsprof.workloads.names import BUILTINS

_SAMPLE = ("seq_len", "target_len", "frames", "image_size")
"""Settings that say how large one sample is."""
_LEAST = {"layers": "2", "depths": "1"}
"""Settings that make a model small enough to try it out; one value per stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model that `--model` knows by name.

    Attributes:
        name: What `--model` takes; `aliases` are other names for it.
        kind: `built-in`, or `catalogue` for a published architecture.
        family: What builds it: models of one family share their settings.
        task: What it is trained on here, in words.
        summary: One line about it.
        parameters: Parameter count with the default settings, tied parameters once.
        settings: What `--model-option` takes, with the defaults; empty for a built-in.
        sample: Size of one sample by default: tokens, frames, or pixels per side, by setting.
        source: Where the count and the settings were published; empty for a built-in.
        forward_flops: Published FLOPs of the forward pass of one sample; None when unknown.
        flops_source: Where those were published.
        note: What differs from the published model, if anything does.
    """

    name: str
    kind: str
    family: str
    task: str
    summary: str
    parameters: int
    aliases: tuple[str, ...] = ()
    settings: Mapping[str, Setting] = field(default_factory=dict)
    sample: Mapping[str, int] = field(default_factory=dict)
    source: str = ""
    forward_flops: float | None = None
    flops_source: str = ""
    note: str = ""

    @property
    def small(self) -> str:
        """A `--model-option` that makes it small enough for a first try; empty without one."""
        for setting, value in _LEAST.items():
            default = self.settings.get(setting)
            if isinstance(default, tuple):
                return f"{setting}={','.join([value] * len(default))}"
            if default is not None:
                return f"{setting}={value}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelForm:
    """A way to name a model that is not known here.

    Attributes:
        form: How it is written.
        summary: What it is.
        options: What `--model-option` sets there.
        package: The package it needs; empty for none but torch.
    """

    form: str
    summary: str
    options: str
    package: str = ""


FORMS = (
    ModelForm(
        form="timm:NAME",
        summary="a model of the installed package timm, with random weights",
        options="keyword arguments of timm.create_model",
        package="timm",
    ),
    ModelForm(
        form="torchvision:NAME",
        summary="a model of the installed package torchvision, with random weights",
        options="keyword arguments of the model's function",
        package="torchvision",
    ),
    ModelForm(
        form="hf:FOLDER-or-id",
        summary="a config.json in a folder or in the local hub cache, built by transformers with "
        "random weights",
        options="fields of the configuration",
        package="transformers",
    ),
    ModelForm(
        form="file.py:factory",
        summary="your own function in that file, which returns a bsprof.Workload",
        options="parameters of the function",
    ),
    ModelForm(
        form="package.module:factory",
        summary="your own function in that module, which returns a bsprof.Workload",
        options="parameters of the function",
    ),
)

# Of the built-ins: family, task, parameters and sample. A test holds them against the models.
_BUILTINS: Mapping[str, tuple[str, str, int, Mapping[str, int]]] = MappingProxyType(
    {
        "convnet": ("resnet", "image classification", 309_738, {"image_size": 32}),
        "encoder-tiny": ("encoder", "masked language model", 3_516_136, {"seq_len": 128}),
        "gpt-tiny": ("decoder", "causal language model", 3_448_320, {"seq_len": 128}),
        "mlp": ("mlp", "classification", 932_362, {}),
        "vit-tiny": ("vit", "image classification", 809_354, {"image_size": 32}),
    }
)


def list_models(
    text: str = "",
    *,
    family: str | None = None,
    task: str | None = None,
    min_parameters: int | None = None,
    max_parameters: int | None = None,
) -> tuple[KnownModel, ...]:
    """The models that `--model` knows by name, sorted by it; none when nothing matches.

    Args:
        text: Part of a name, an alias, the family or the task, whatever its case.
        family: The whole name of the family.
        task: Part of the task.
        min_parameters, max_parameters: Least and largest parameter count, both included.
    """
    wanted = text.lower()
    return tuple(
        model
        for model in _all()
        if any(wanted in name for name in (model.family, model.task.lower(), *_names(model)))
        and family in (None, model.family)
        and (task is None or task.lower() in model.task.lower())
        and (min_parameters is None or model.parameters >= min_parameters)
        and (max_parameters is None or model.parameters <= max_parameters)
    )


def find_model(name: str) -> KnownModel | None:
    """The model of exactly that name or alias; None when there is none."""
    if name in BUILTINS:
        return _builtin(name)
    entry = find_entry(name)
    return None if entry is None else _published(entry)


def families() -> tuple[str, ...]:
    """Names of all families, sorted."""
    return tuple(sorted({model.family for model in _all()}))


def near_names(text: str) -> list[str]:
    """Names, aliases and families that resemble the text, the nearest first; at most three."""
    known = {name for model in _all() for name in (model.family, *_names(model))}
    return difflib.get_close_matches(text.lower(), sorted(known), n=3, cutoff=0.5)


def setting_text(value: Setting) -> str:
    """A setting as `--model-option` takes it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _names(model: KnownModel) -> tuple[str, ...]:
    return (model.name, *model.aliases)


def _all() -> list[KnownModel]:
    known = [*map(_builtin, BUILTINS), *map(_published, entries().values())]
    return sorted(known, key=lambda model: model.name)


def _builtin(name: str) -> KnownModel:
    family, task, parameters, sample = _BUILTINS[name]
    return KnownModel(
        name=name,
        kind="built-in",
        family=family,
        task=task,
        summary=BUILTINS[name].summary,
        parameters=parameters,
        sample=sample,
    )


def _published(entry: Entry) -> KnownModel:
    return KnownModel(
        name=entry.name,
        kind="catalogue",
        family=entry.family,
        task=entry.task,
        summary=entry.summary,
        parameters=entry.parameters,
        aliases=entry.aliases,
        settings=entry.config,
        sample={key: value for key in _SAMPLE if isinstance(value := entry.config.get(key), int)},
        source=entry.source,
        forward_flops=entry.forward_flops,
        flops_source=entry.flops_source,
        note=entry.note,
    )
