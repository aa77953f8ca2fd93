"""Runs a compiled graph on fake tensors, kernel by kernel, so that a tracker sees its buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from bsprof.predict.trace.compiled_plan import HAS_STATE, SAVES_STATE, Step, schedule_of
from bsprof.predict.trace.compiled_tracker import CompiledTracker

STACK = "nn_module_stack"
"""Key in a node's `meta`; here it holds one entry, whose text is the index of the node's module."""

PARTITION, FORWARD_PART = "partitioner_tag", "is_forward"
"""Key in a node's `meta`, and its value where the joint graph had the node in its forward part."""

STATE_BYTES = 16
"""Of CUDA's random numbers: a seed and an offset."""

SAVED_PREFIXES = ("primals", "tangents")
"""How AOTAutograd names what a graph is given from outside; other names are kept activations."""


class GraphRunner:
    """Called as AOTAutograd calls a compiled graph: with a list of inputs, which it empties.

    Args:
        graph_module: From the partitioner.
        tracker: That watches.
        is_backward: Which of the two graphs it is.
        kept: Names of nodes that the forward graph returns to its caller: not to be written over.
            The forward's runner adds to them.
    """

    _boxed_call = True

    def __init__(
        self,
        graph_module: fx.GraphModule,
        tracker: CompiledTracker,
        *,
        is_backward: bool,
        kept: set[str],
    ) -> None:
        self._module = graph_module
        self._tracker = tracker
        self._is_backward = is_backward
        graph = graph_module.graph
        self._schedule = schedule_of(graph)
        self._inputs = [n for n in graph.nodes if n.op == "placeholder"]
        self._constants = [n for n in graph.nodes if n.op == "get_attr"]
        self._output = next(n for n in graph.nodes if n.op == "output")
        self._makers = _modules_of(graph)
        self._fixed: set[fx.Node] = set()
        for node in self._inputs:
            outside = node.name.startswith(SAVED_PREFIXES) or not is_backward
            if outside or node.name in kept:
                self._fixed.add(node)
        self._fixed.update(self._constants)

    def __call__(self, arguments: list[Any]) -> Any:
        values: dict[fx.Node, Any] = dict(zip(self._inputs, arguments, strict=True))
        arguments.clear()
        for node in self._constants:
            values[node] = getattr(self._module, str(node.target))
        for node in self._schedule.unread:
            values.pop(node, None)
        with torch.no_grad():
            for step in self._schedule.steps:
                self._run(step, values)
            return tuple(_resolved(a, values) for a in _flat(self._output.args[0]))

    def _run(self, step: Step, values: dict[fx.Node, Any]) -> None:
        node = step.node
        with self._tracker.as_node(self._makers.get(node), recomputes=self._recomputes(node)):
            if step.own:
                args = fx.map_arg(node.args, lambda n: _value(n, values))
                kwargs = fx.map_arg(node.kwargs, lambda n: _value(n, values))
                result = _called(node.target, args, kwargs)
                del args, kwargs
            else:
                result = self._fused(step, values)
        if isinstance(result, list | tuple):
            for user in node.users:
                place: Any = user.args[1]
                values[user] = result[place]
        else:
            values[node] = result
        del result
        for ended in step.ends:
            values.pop(ended, None)

    def _recomputes(self, node: fx.Node) -> bool:
        """Whether a node of the backward graph computes again what the forward did."""
        restored = getattr(node.target, "_name", "") == HAS_STATE
        return self._is_backward and (restored or node.meta.get(PARTITION) == FORWARD_PART)

    def _fused(self, step: Step, values: dict[fx.Node, Any]) -> Any:
        """Buffers for what a fused kernel returns."""
        shown = step.node.meta["val"]
        reads = [
            (values[n], step.elements.get(n, values[n].numel()))
            for n in step.reads
            if isinstance(values.get(n), Tensor)
        ]
        if isinstance(shown, Tensor):
            free = [n for n in step.ends if n in step.reads and n not in self._fixed]
            made: Any = _over(shown, [values[n] for n in free])
            if made is None:
                made = _empty(shown)
        else:
            made = tuple(_empty(v) if isinstance(v, Tensor) else v for v in shown)
        target: Any = step.node.target
        name = f"aten.{target._schema.name.partition('::')[2]}"
        self._tracker.note_fused(name, reads, made, step.fused, reduces=step.reduces)
        return made


def _called(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator's result; what stands around random ones keeps a state of few bytes."""
    name = getattr(target, "_name", "")
    if name == SAVES_STATE:
        return torch.empty(STATE_BYTES, dtype=torch.uint8), args[0](*args[1:], **kwargs)
    if name == HAS_STATE:
        return args[1](*args[2:], **kwargs)
    return target(*args, **kwargs)


def _empty(shown: Tensor) -> Tensor:
    return torch.empty_strided(
        shown.shape, shown.stride(), dtype=shown.dtype, device=torch.device("cpu")
    )


def _over(shown: Tensor, ending: Sequence[Any]) -> Tensor | None:
    """A tensor in the storage of one that ends, of the same type and size."""
    for old in ending:
        if not isinstance(old, Tensor) or old.dtype != shown.dtype:
            continue
        size = shown.numel() * shown.element_size()
        if old.numel() == shown.numel() and old.untyped_storage().nbytes() == size:
            return old.as_strided(shown.shape, shown.stride(), 0)
    return None


def _value(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    """A buffer, or a view of one, made now."""
    if node in values:
        return values[node]
    args = fx.map_arg(node.args, lambda n: _value(n, values))
    kwargs = fx.map_arg(node.kwargs, lambda n: _value(n, values))
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _resolved(argument: Any, values: dict[fx.Node, Any]) -> Any:
    return _value(argument, values) if isinstance(argument, fx.Node) else argument


def _flat(output: Any) -> Sequence[Any]:
    return output if isinstance(output, list | tuple) else (output,)


def _modules_of(graph: fx.Graph) -> dict[fx.Node, int]:
    """By node: its module's index; of a backward node, that of the forward node it belongs to."""
    found = {}
    for node in graph.nodes:
        stack = node.meta.get(f"fwd_{STACK}") or node.meta.get(STACK)
        if stack:
            found[node] = int(next(iter(stack.values()))[0])
    return found
