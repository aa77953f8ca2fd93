"""Which nodes of a compiled graph become buffers, and how long each lives. An approximation.

Inductor computes chains of elementwise operators where they are read, and writes a result to memory
only where it has to (`torch/_inductor/graph.py`, `run_node`; `ir.py`, `mark_reuse`; thresholds from
`torch/_inductor/config.py`). Here, in the order of the graph:

- products, convolutions, attention and all that is not known are kernels of their own: what they
  read and what they return are buffers;
- what a reduction returns is a buffer (mostly a number a row);
- an elementwise result is a buffer where a kernel of its own reads it, where it is returned, or
  where it is read twice and reads more than four buffers itself, or reads more than eight. Else
  each reader computes it again, so what it reads lives until its last reader has run;
- such a result, read often but by nothing behind a later kernel of its own, is no buffer after all:
  all its readers of the same size are one kernel.

A buffer ends after its last reader. An elementwise kernel writes over a buffer that ends there, of
the same type and size.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

READS_IF_SHARED = 4
"""`realize_reads_threshold`."""

READS = 8
"""`realize_acc_reads_threshold`."""

ELEMENTWISE = frozenset(
    (
        "convert_element_type", "clone", "_to_copy", "copy", "full", "full_like", "zeros",
        "zeros_like", "ones", "ones_like", "new_zeros", "new_full", "new_ones", "new_empty",
        "empty", "empty_like", "empty_strided", "arange", "iota", "scalar_tensor", "where",
        "index", "gather", "embedding", "cat", "constant_pad_nd", "slice_scatter",
        "select_scatter", "diagonal_scatter", "as_strided_scatter", "inductor_random",
        "inductor_randint", "inductor_lookup_seed", "flip", "repeat", "fill", "rev",
        "_unsafe_index", "_unsafe_masked_index", "lift_fresh_copy", "masked_fill", "bucketize",
        "triu", "tril", "pow", "_low_memory_max_pool_offsets_to_indices", "index_select", "fma",
        "device_put", "div", "mul", "add", "sub",
    )
)  # fmt: skip
"""Computed where they are read, beside those that torch tags as elementwise."""

REDUCTIONS = frozenset(
    (
        "sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "std", "prod", "any",
        "all", "argmax", "argmin", "norm", "linalg_vector_norm", "cumsum", "cumprod",
        "logcumsumexp", "prepare_softmax_online", "logsumexp",
        "_low_memory_max_pool_with_offsets", "avg_pool2d", "_adaptive_avg_pool2d",
        "avg_pool2d_backward", "_adaptive_avg_pool2d_backward", "upsample_bilinear2d",
    )
)  # fmt: skip
"""Fused with what they read; what they return is written."""

WRITTEN = frozenset(
    (
        "inductor_seeds", "inductor_seed", "index_put", "_unsafe_index_put",
        "_unsafe_masked_index_put_accumulate", "scatter", "scatter_add", "scatter_reduce",
        "index_add",
    )
)  # fmt: skip
"""Fused with what they read; what they return is always written."""

SAVES_STATE, HAS_STATE = "run_and_save_rng_state", "run_with_rng_state"
RANDOM_STATE = frozenset((SAVES_STATE, HAS_STATE))
"""Around operators that draw random numbers and are computed again in the backward pass."""

GATHERS = frozenset(
    ("index", "_unsafe_index", "_unsafe_masked_index", "index_select", "gather", "embedding")
)
"""Read of their first argument as many elements as they return."""

VIEWS = frozenset(("_unsafe_view", "reshape", "view_as", "alias", "detach", "lift_fresh"))


_PARTS = ("view", "item")


class Unsupported(Exception):
    """The graph has something in it that cannot be traced this way."""


@dataclass(slots=True)
class Step:
    """One kernel.

    Attributes:
        node: What it computes.
        own: Whether it is an operator with a kernel of its own, not a fused one.
        reads: Buffers it reads: placeholders, constants, and results of steps before.
        ends: Those that nothing reads later.
        fused: How many operators it computes.
        reduces: Whether it sums up, along rows or columns.
        elements: Of what it reads: how many elements, where that is less than all (slices, rows
            of a table).
    """

    node: fx.Node
    own: bool
    reads: tuple[fx.Node, ...]
    ends: tuple[fx.Node, ...] = ()
    fused: int = 1
    reduces: bool = False
    elements: Mapping[fx.Node, int] = field(default_factory=dict)


@dataclass(slots=True)
class Schedule:
    """Steps in order; `unread` are inputs that none reads."""

    steps: list[Step] = field(default_factory=list)
    unread: tuple[fx.Node, ...] = ()


def kind_of(node: fx.Node) -> str:
    """`input`, `view`, `element`, `reduction`, `written` or `own`."""
    if node.op in ("placeholder", "get_attr"):
        return "input"
    target: Any = node.target
    if node.op != "call_function" or target is operator.getitem:
        if node.op == "call_function":
            return "item"
        raise Unsupported(f"{node.op} {target}")
    if getattr(target, "_name", "") in RANDOM_STATE:
        return "own"
    if not isinstance(target, torch._ops.OpOverload):
        raise Unsupported(f"{target}")
    name = target._schema.name.partition("::")[2]
    if any(r.alias_info is not None and r.alias_info.is_write for r in target._schema.returns):
        raise Unsupported(f"{name}, in place")
    if target.is_view or name in VIEWS:
        return "view"
    if name in WRITTEN:
        return "written"
    if name in REDUCTIONS:
        return "reduction"
    if torch.Tag.pointwise in target.tags or name in ELEMENTWISE:
        return "element"
    return "own"


class _Planner:
    def __init__(self, graph: fx.Graph) -> None:
        self._nodes = [n for n in graph.nodes if n.op != "output"]
        self._output = next(n for n in graph.nodes if n.op == "output")
        self._kinds: dict[fx.Node, str] = {}
        for node in self._nodes:
            kind = kind_of(node)
            if kind == "item" and self._kinds[node.all_input_nodes[0]] in _PARTS:
                kind = "view"  # of a split, or of an item that is a tuple
            self._kinds[node] = kind
        self._bases: dict[fx.Node, fx.Node] = {}
        self._depths: dict[fx.Node, int] = {}
        self._reads: dict[fx.Node, frozenset[fx.Node]] = {}
        # Buffers that a result is computed from, each with the view of it that is read.
        self._shown: dict[fx.Node, frozenset[tuple[fx.Node, fx.Node]]] = {}
        self._chain: dict[fx.Node, int] = {}
        self._buffers: set[fx.Node] = set()

    def schedule(self) -> Schedule:
        """See the module."""
        for node in self._nodes:
            self._bases[node] = self._base(node)
            self._depths[node] = max(
                (self._depths[a] + (self._kinds[a] == "own") for a in node.all_input_nodes),
                default=0,
            )
        returned = {self._bases[n] for n in self._output.all_input_nodes}
        steps = []
        for node in self._nodes:
            step = self._step(node, node in returned)
            if step is not None:
                steps.append(step)
        return self._with_ends(steps, returned)

    def _base(self, node: fx.Node) -> fx.Node:
        """The node whose result a view shows."""
        if self._kinds[node] == "view":
            return self._bases[node.all_input_nodes[0]]
        return node

    def _step(self, node: fx.Node, is_returned: bool) -> Step | None:
        kind = self._kinds[node]
        if kind in ("input", "item"):
            self._reads[node] = frozenset((node,))
            self._shown[node] = frozenset(((node, node),))
            return None
        if kind == "view":
            self._reads[node] = self._reads[node.all_input_nodes[0]]
            base = self._bases[node]
            in_memory = base in self._buffers or self._kinds[base] in ("input", "item")
            self._shown[node] = frozenset(((base, node),)) if in_memory else self._shown[base]
            return None
        below = [self._bases[a] for a in node.all_input_nodes]
        reads: frozenset[fx.Node] = frozenset().union(*(self._reads[a] for a in below))
        shown = self._shown_by(node)
        inlined = {a for a in below if a not in self._buffers}
        chain = 1 + sum(self._chain.get(a, 0) for a in inlined)
        if kind == "element" and not is_returned and not self._is_buffer(node, len(reads)):
            self._reads[node] = reads
            self._shown[node] = shown
            self._chain[node] = chain
            return None
        self._buffers.add(node)
        self._reads[node] = frozenset((node,))
        self._shown[node] = frozenset(((node, node),))
        return Step(
            node=node,
            own=kind == "own",
            reads=tuple(sorted(reads, key=_name)),
            fused=chain,
            reduces=kind == "reduction",
            elements=_elements_read(shown),
        )

    def _shown_by(self, node: fx.Node) -> frozenset[tuple[fx.Node, fx.Node]]:
        """What of which buffers a node's result is computed from."""
        inputs = node.all_input_nodes
        found = [self._shown[a] for a in inputs]
        target: Any = node.target
        schema = getattr(target, "_schema", None)
        if schema is not None and schema.name.partition("::")[2] in GATHERS and inputs:
            # As many elements of the table as are returned.
            found[0] = frozenset((base, node) for base, _ in found[0])
        return frozenset().union(*found)

    def _is_buffer(self, node: fx.Node, reads: int) -> bool:
        users = list(self._users(node))
        if any(self._kinds[user] == "own" for user in users):
            return True
        shared = len(node.users) > 1 and reads > READS_IF_SHARED
        return (shared or reads > READS) and not self._in_one_kernel(node, users)

    def _in_one_kernel(self, node: fx.Node, users: list[fx.Node]) -> bool:
        size = _elements(node)
        for user in users:
            if self._depths[user] != self._depths[node]:
                return False
            if self._kinds[user] == "element" and _elements(user) != size:
                return False
        return True

    def _users(self, node: fx.Node) -> Iterable[fx.Node]:
        """What computes with a node's result, through views."""
        for user in node.users:
            if user.op == "output":
                continue
            if self._kinds[user] == "view":
                yield from self._users(user)
            else:
                yield user

    def _with_ends(self, steps: list[Step], returned: set[fx.Node]) -> Schedule:
        last: dict[fx.Node, Step] = {}
        for step in steps:
            items = [u for u in step.node.users if self._kinds.get(u) == "item"]
            for made in items or [step.node]:
                last[made] = step
            for read in step.reads:
                last[read] = step
        ends: dict[int, list[fx.Node]] = {}
        for node, step in last.items():
            if node not in returned:
                ends.setdefault(id(step), []).append(node)
        for step in steps:
            step.ends = tuple(ends.get(id(step), ()))
        unread = [
            n for n in self._nodes if n.op == "placeholder" and n not in last and n not in returned
        ]
        return Schedule(steps, tuple(unread))


def _name(node: fx.Node) -> str:
    return node.name


def _elements(node: fx.Node) -> int:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, Tensor) else 0


def _elements_read(shown: Iterable[tuple[fx.Node, fx.Node]]) -> dict[fx.Node, int]:
    """Elements read of each buffer of which not all are: the sum of the views of it."""
    sums: dict[fx.Node, int] = {}
    for base, view in shown:
        sums[base] = sums.get(base, 0) + _elements(view)
    return {base: count for base, count in sums.items() if 0 < count < _elements(base)}


def base_of(node: fx.Node) -> fx.Node:
    """The node in whose memory a result lies, through views and items."""
    while kind_of(node) in ("view", "item"):
        node = node.all_input_nodes[0]
    return node


def schedule_of(graph: fx.Graph) -> Schedule:
    """The kernels of a graph, in order.

    Raises:
        Unsupported: a node that is not an operator of torch's.
    """
    return _Planner(graph).schedule()
