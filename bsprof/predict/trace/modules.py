"""Which module an operator belongs to: whose forward runs, or made what is now run backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

ROOT = 0
"""Index of the model itself, and of what belongs to no module inside it."""

_NEAR = 16
"""Heuristic: how many autograd nodes back the forward of a node is looked for."""

_sequence_number = torch._C._autograd._get_sequence_nr


class ModuleStack:
    """Follows the modules of a model through forward passes, recomputation and backward.

    Args:
        model: Modules are named as in it; the model itself is the empty name.
    """

    def __init__(self, model: nn.Module) -> None:
        self.names: list[str] = []
        self._index: dict[int, int] = {}
        self._parameters: dict[int, int] = {}
        self._stack = [ROOT]
        # Autograd numbers its nodes in the order in which the forward makes them.
        self._makers: dict[int, int] = {}
        self.add(model)

    def add(self, model: nn.Module) -> None:
        """Know the modules that the model has got since, adapters for instance."""
        for name, module in model.named_modules():
            index = self._index.get(id(module))
            if index is None:
                index = self._index[id(module)] = len(self.names)
                self.names.append(name)
            for parameter in module._parameters.values():
                if parameter is not None:
                    self._parameters.setdefault(id(parameter), index)

    @property
    def running(self) -> int:
        """The module whose forward runs."""
        return self._stack[-1]

    def note_node(self) -> int:
        """The running module, noted as the maker of the autograd node made last."""
        module = self._stack[-1]
        self._makers[_sequence_number() - 1] = module
        return module

    def of_node(self, node: Any) -> int:
        """The module whose forward made a node that runs backward."""
        number = node._sequence_nr()
        found = self._makers.get(number)
        if found is None:
            variable = getattr(node, "variable", None)  # of an AccumulateGrad
            if variable is not None:
                return self._parameters.get(id(variable), ROOT)
            for near in range(number - 1, number - _NEAR, -1):
                if near in self._makers:
                    found = self._makers[near]
                    break
            self._makers[number] = found = ROOT if found is None else found
        return found

    def forget_nodes(self) -> None:
        """The graphs made so far are gone."""
        self._makers.clear()

    @contextmanager
    def following(self) -> Iterator[None]:
        """While inside, calls of modules are followed."""
        original = nn.Module.__call__
        stack, known = self._stack, self._index

        def call(module: nn.Module, *arguments: Any, **named: Any) -> Any:
            index = known.get(id(module))
            if index is None:
                return original(module, *arguments, **named)
            stack.append(index)
            try:
                return original(module, *arguments, **named)
            finally:
                stack.pop()

        nn.Module.__call__ = call  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.__call__ = original  # type: ignore[method-assign]
