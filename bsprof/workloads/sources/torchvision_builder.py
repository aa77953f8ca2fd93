"""A function of torchvision that builds a model, and what its published weights say of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch import nn

from bsprof.records import Scalar
from bsprof.workloads.sources.packages import checked_options, whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A model of torchvision that is not built yet.

    Attributes:
        model: The `--model`, for messages.
        name: Its name in torchvision.
        options: The `--model-option`s: keyword arguments of the function.
        models: The module `torchvision.models`.
    """

    model: str
    name: str
    options: Mapping[str, Scalar]
    models: ModuleType

    @property
    def package(self) -> str:
        """Where it stands in `torchvision.models`: `resnet`, `detection.faster_rcnn`."""
        function = self.models.get_model_builder(self.name)
        return str(function.__module__).removeprefix("torchvision.models.")

    def crop_size(self) -> int:
        """Pixels per side of the images that its first published weights were made for."""
        first = next(iter(self.models.get_model_weights(self.name)))
        size = first.transforms.keywords["crop_size"]
        return int(size if isinstance(size, int) else size[0])

    def setting(self, key: str, default: int) -> int:
        """A whole number among the options, or its default.

        Raises:
            UsageError: the option is none.
        """
        return whole_number(self.options, key, default)

    def build(self, **settings: Any) -> nn.Module:
        """The model with random weights; options of the user's are over the settings.

        Raises:
            UsageError: an option that the model does not take.
        """
        function = self.models.get_model_builder(self.name)
        unloaded = {"weights": None, "weights_backbone": None}
        takes = inspect.signature(function).parameters
        weights = {key: value for key, value in unloaded.items() if key in takes}
        with checked_options(self.model, self.options):
            model: nn.Module = function(**weights | settings | dict(self.options))
        return model
