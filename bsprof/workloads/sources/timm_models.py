"""`timm:NAME`: an image classifier of the user's timm, with random weights."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.data import Images, image_batches
from bsprof.workloads.checkpointing import repeated_blocks
from bsprof.workloads.sources.packages import (
    checked_options,
    find_name,
    import_package,
    refuse_reserved,
    whole_number,
)
from bsprof.workloads.workload import Workload

ATTENTION = {"sdpa": True, "eager": False}
AUX_WEIGHT = 0.4
"""Share of an auxiliary classifier's loss: TF-Slim's `train_image_classifier.py`, Inception v3."""

_WEIGHTS = "the weights are random; leave it out"
RESERVED = {
    "pretrained": _WEIGHTS,
    "pretrained_cfg": _WEIGHTS,
    "pretrained_cfg_overlay": _WEIGHTS,
    "checkpoint_path": _WEIGHTS,
    "cache_dir": _WEIGHTS,
    "device": "use --device",
    "dtype": "use --precision",
    "features_only": "features have no loss; leave it out, the model is measured as a classifier",
}
"""Arguments of `timm.create_model` that are no option here, and why."""


def workload(spec: WorkloadSpec, name: str) -> Workload:
    """The workload of `--model timm:NAME`.

    The images have the size that timm's configuration of the model names, or `--image-size`; the
    loss is the mean cross entropy over the model's classes, with an auxiliary classifier's added
    where the model has one. The two heads of a distilled model are averaged, as timm does it
    without a teacher. `--model-option`s are keyword arguments of `timm.create_model`.

    Raises:
        UsageError: no such model (near ones are named), an option that it does not take, or a
            model without a classifier.
        WorkloadError: timm is not installed.
    """
    timm = import_package("timm", spec.model)
    refuse_reserved(spec.model, spec.model_options, RESERVED)
    published = _published(timm, name)
    settings: dict[str, Any] = dict(spec.model_options)
    shape = _shape(spec, published, settings)
    classes = whole_number(settings, "num_classes", published.num_classes, least=0)
    if not classes:
        raise UsageError(
            f"{spec.model} has no classifier, so there is no loss",
            next_step="give it one, --model-option num_classes=1000",
        )
    return Workload(
        model=lambda: _build(timm, spec, name, settings),
        batch=image_batches(shape, classes, spec.seed),
        loss=loss,
        uses_image_size=True,
        uses_attention=True,
        checkpoint_blocks=blocks,
    )


def loss(model: nn.Module, batch: Images) -> Tensor:
    """Mean cross entropy; of several outputs those after the first are auxiliary classifiers.

    Raises:
        WorkloadError: the output is no logits, (b, classes).
    """
    images, labels = batch
    outputs = model(images)
    main, *others = outputs if isinstance(outputs, tuple | list) else (outputs,)
    total = F.cross_entropy(_logits(main), labels)
    for other in others:
        total = total + AUX_WEIGHT * F.cross_entropy(_logits(other), labels)
    return total


def _published(timm: ModuleType, name: str) -> Any:
    """timm's configuration of a model: input size, classes.

    Raises:
        UsageError: no such model, or no such variant of it.
    """
    architecture = name.partition(".")[0]
    if not timm.is_model(architecture):
        raise UsageError(
            f"timm {timm.__version__} has no model {name!r}",
            found=find_name(architecture, timm.list_models()),
            next_step="timm.list_models() lists them",
        )
    variants: list[str] = timm.list_models(f"{architecture}.*", pretrained=True)
    if "." in name and name not in variants:
        raise UsageError(
            f"timm {timm.__version__} has no {name!r}",
            found=f"its variants: {', '.join(variants)}" if variants else "",
            next_step=f"name one of them, or {architecture} alone: the weights are random",
        )
    published = timm.get_pretrained_cfg(name)
    if published is None:
        raise UsageError(
            f"timm {timm.__version__} has no configuration of {name!r}",
            found=f"it is now called {timm.models.get_deprecated_models().get(name)}",
            next_step="use the name that it has now",
        )
    return published


def _shape(spec: WorkloadSpec, published: Any, settings: dict[str, Any]) -> tuple[int, int, int]:
    """Channels, height and width of an image; a model built for one size is told it.

    Raises:
        UsageError: two sizes.
    """
    channels, height, width = published.input_size
    if spec.image_size is not None:
        if "img_size" in settings:
            raise UsageError(
                f"--image-size and --model-option img_size both set the images of {spec.model}",
                next_step="leave the option out",
            )
        height = width = spec.image_size
        if published.fixed_input_size:
            settings["img_size"] = spec.image_size
    elif "img_size" in settings:
        height = width = whole_number(settings, "img_size", height)
    return whole_number(settings, "in_chans", channels), height, width


def _build(timm: ModuleType, spec: WorkloadSpec, name: str, settings: dict[str, Any]) -> nn.Module:
    """The model, its attention as asked for.

    Raises:
        UsageError: an option, or a kind of attention, that the model does not have.
    """
    with _attention(timm, spec), checked_options(spec.model, spec.model_options):
        model: nn.Module = timm.create_model(name, pretrained=False, **settings)
    if spec.attention is not None:
        _check_attention(model, spec)
    return model


@contextmanager
def _attention(timm: ModuleType, spec: WorkloadSpec) -> Iterator[None]:
    """timm's switch for fused attention, which models read when they are built.

    Raises:
        UsageError: a kind of attention that timm does not have.
    """
    if spec.attention is None:
        yield
        return
    if spec.attention not in ATTENTION:
        raise UsageError(
            f"timm has no attention {spec.attention!r}",
            next_step=f"use one of {', '.join(ATTENTION)}",
        )
    layers = timm.layers
    fused, experimental = layers.use_fused_attn(), layers.use_fused_attn(experimental=True)
    layers.set_fused_attn(ATTENTION[spec.attention])
    try:
        yield
    finally:
        layers.set_fused_attn(fused, experimental=experimental)


def _check_attention(model: nn.Module, spec: WorkloadSpec) -> None:
    """Refuse `--attention` where no module of the model followed timm's switch."""
    switches = {m.fused_attn for m in model.modules() if hasattr(m, "fused_attn")}
    assert spec.attention is not None
    if ATTENTION[spec.attention] not in switches:
        raise UsageError(
            f"--attention {spec.attention} has no effect on {spec.model}",
            found="no module in it that follows timm's switch for fused attention",
            next_step="leave it out",
        )


def blocks(model: nn.Module) -> list[nn.Module]:
    """The layers that a model counts as its own, by its `group_matcher`; else what it repeats."""
    matcher = getattr(model, "group_matcher", None)
    groups = matcher(coarse=False) if matcher is not None else None
    if not isinstance(groups, dict):
        return repeated_blocks(model)
    patterns = [re.compile(pattern) for pattern in _patterns(groups.values())]
    matched = {
        name: module
        for name, module in model.named_modules()
        if _has_parts(module) and any(_names_layer(pattern, name) for pattern in patterns)
    }
    return [
        module
        for name, module in matched.items()
        if not any(other.startswith(f"{name}.") for other in matched)
    ]


def _has_parts(module: nn.Module) -> bool:
    """Whether a module has parameters and modules of its own: more than one layer."""
    parts = next(module.children(), None) is not None
    return parts and next(module.parameters(), None) is not None


def _patterns(groups: Any) -> Iterator[str]:
    """The regular expressions in the values of timm's dictionary: one, or pairs with a suffix."""
    for group in groups:
        if isinstance(group, str):
            yield group
        elif group is not None:
            yield from (pattern for pattern, _ in group)


def _names_layer(pattern: re.Pattern[str], name: str) -> bool:
    """Whether a pattern names a numbered layer, and exactly this one."""
    match = pattern.match(name)
    return match is not None and match.end() == len(name) and bool(match.groups())


def _logits(output: Any) -> Tensor:
    if isinstance(output, Tensor) and output.dim() == 2:
        return output
    shape = f"a tensor of shape {tuple(output.shape)}" if isinstance(output, Tensor) else ""
    raise WorkloadError(
        "the model gives no logits to compute a loss from",
        found=shape or f"a {type(output).__name__}",
        next_step="measure it through a factory of your own, file.py:factory, with its loss",
    )
