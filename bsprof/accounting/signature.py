"""Counts one call of an operator: its FLOPs by the table, and the bytes at its border.

The one place where arguments are looked at; a counting pass over real tensors and a trace over
fake ones both call it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from bsprof.accounting.causal import Share
from bsprof.accounting.operators import Operator, OperatorClass
from bsprof.accounting.table import TABLE, base_name, lookup
from bsprof.accounting.traffic import tensors_in, value_bytes


class Counts(NamedTuple):
    """What one call computes and moves.

    Attributes:
        flops: Of the mathematics.
        hardware_flops: The same plus what the kernel computes on top: scores that a fused
            attention backward computes again, pairs that an unfused one masks away.
        moved: Bytes read and written.
    """

    flops: int
    hardware_flops: int
    moved: int


_DENSE_PRODUCTS = (OperatorClass.BATCHED_MATMUL, OperatorClass.MATMUL)


class Signature:
    """What can be known about an operator before it runs, read once from its schema.

    Attributes:
        entry: How it is counted.
        decomposes: It arrives whole (inference mode), and what it is made of says more.
        is_remark: A question about a tensor or a mark for a profiler: not part of the run.
        is_silent: It runs no kernel.
        name: With overload.
    """

    __slots__ = (
        "_defaults",
        "_is_plain",
        "_out_names",
        "_returns_fresh",
        "_written_names",
        "_written_positions",
        "decomposes",
        "entry",
        "is_remark",
        "is_silent",
        "name",
    )

    def __init__(self, func: torch._ops.OpOverload) -> None:
        schema = func._schema
        self.name = str(func)
        self.entry: Operator = lookup(
            schema.name, is_view=func.is_view, is_pointwise=torch.Tag.pointwise in func.tags
        )
        # Under inference mode composite operators arrive whole. What they are made of says more
        # than their schema: `reshape` looks like a view and may copy.
        in_table = base_name(schema.name) in TABLE
        self.decomposes = not in_table and torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(),  # type: ignore[no-untyped-call]
            "CompositeImplicitAutograd",
        )
        # Questions about a tensor and marks for a profiler: not part of what is computed, and
        # asked more often of fake tensors.
        self.is_remark = func.namespace in ("prim", "profiler")
        self.is_silent = not self.entry.operator_class.runs_kernel
        self._is_plain = self.entry.flops is None and self.entry.moved is None
        self._defaults = {
            argument.name: argument.default_value if argument.has_default_value() else None
            for argument in schema.arguments
        }
        written = [
            (position, argument)
            for position, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        self._out_names = frozenset(argument.name for _, argument in written if argument.is_out)
        self._written_names = tuple(a.name for _, a in written if a.kwarg_only)
        self._written_positions = tuple(p for p, a in written if not a.kwarg_only)
        self._returns_fresh = all(result.alias_info is None for result in schema.returns)

    def count(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        result: Any,
        causal_share: Callable[[], Share | None],
    ) -> Counts:
        """What a call computes and moves.

        Args:
            args, kwargs: It was called with.
            result: It returned.
            causal_share: Asked of dense products: of which causal attention the running one is.
        """
        if self._is_plain:
            return Counts(0, 0, self._bytes_moved(args, kwargs, result))
        entry = self.entry
        arguments = {**self._defaults, **dict(zip(self._defaults, args, strict=False)), **kwargs}
        outputs = list(tensors_in(result))
        moved = (
            self._bytes_moved(args, kwargs, result)
            if entry.moved is None
            else entry.moved(arguments, outputs)
        )
        if entry.flops is None:
            return Counts(0, 0, moved)
        flops = hardware = entry.flops(arguments, outputs)
        if entry.recomputed_flops is not None:
            hardware += entry.recomputed_flops(arguments, outputs)
        elif entry.operator_class in _DENSE_PRODUCTS:
            share = causal_share()
            if share is not None:
                flops = flops * share[0] // share[1]
        return Counts(flops, hardware, moved)

    def _bytes_moved(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
        """Every input read once, every output and every changed input written once."""
        total = 0
        for value in args:
            total += value_bytes(value)
        for name, value in kwargs.items():
            if name not in self._out_names:
                total += value_bytes(value)
        for position in self._written_positions:
            if position < len(args):
                total += value_bytes(args[position])
        for name in self._written_names:
            total += value_bytes(kwargs.get(name))
        if self._returns_fresh:
            total += value_bytes(result)
        return total
