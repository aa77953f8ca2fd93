"""Tells which dense products belong to a causal attention that ran without a fused kernel.

PyTorch takes the unfused path on some devices and with attention dropout on others. It then
computes the whole square of scores and masks half of it away, operator by operator, and the
operators do not know why. The call does: it is watched while a counter is active, and the
autograd nodes made in it are recognised again in the backward.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Self

import torch
import torch.nn.functional

from bsprof.accounting.formulas import attended_pairs

_sequence_number = torch._C._autograd._get_sequence_nr
_current_node = torch._C._current_autograd_node

Share = tuple[int, int]
"""(pairs that the mask keeps, pairs computed)."""


class CausalRegions:
    """Context manager that watches `torch.nn.functional.scaled_dot_product_attention`.

    The function is replaced while the context is active, because a function mode would not see
    calls from within torch's own modules and would switch their fast paths off. Not seen, and
    counted as dense: a caller that imported the function by name, and a causal mask that is
    given as a tensor.
    """

    def __init__(self) -> None:
        self._running: Share | None = None
        # Regions of autograd sequence numbers, ascending; numbers are per thread, and forwards
        # run on one thread.
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._shares: list[Share] = []

    def __enter__(self) -> Self:
        self._original = original = torch.nn.functional.scaled_dot_product_attention

        def watched(query: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
            # Positions after query and key: value, attn_mask, dropout_p, is_causal.
            if not (args[3] if len(args) > 3 else kwargs.get("is_causal", False)):
                return original(query, key, *args, **kwargs)
            queries, keys = int(query.shape[-2]), int(key.shape[-2])
            return self._run(
                (attended_pairs(queries, keys, causal=True), queries * keys),
                lambda: original(query, key, *args, **kwargs),
            )

        torch.nn.functional.scaled_dot_product_attention = watched
        return self

    def __exit__(self, *error: object) -> None:
        torch.nn.functional.scaled_dot_product_attention = self._original

    def _run(self, share: Share, call: Any) -> Any:
        start = _sequence_number()
        self._running = share
        try:
            return call()
        finally:
            self._running = None
            if _sequence_number() > start:
                self._starts.append(start)
                self._ends.append(_sequence_number())
                self._shares.append(share)

    def share(self) -> Share | None:
        """Of the operator that is running now; None where it is in no causal attention."""
        if self._running is not None:
            return self._running
        if not self._starts:
            return None
        node = _current_node()
        if node is None:
            return None
        number = node._sequence_nr()
        region = bisect_right(self._starts, number) - 1
        if region >= 0 and number < self._ends[region]:
            return self._shares[region]
        return None
