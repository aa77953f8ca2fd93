"""Embeddings and other lookups, and their dense gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from bsprof.calibrate.programs.program import Builder, Maker, Program, forward

_aten: Any = torch.ops.aten


def embedding(make: Maker) -> Program:
    """`rows` lookups in a table of `table` vectors of `columns`."""
    table = make.normal(make["table"], make["columns"])
    indices = make.indices(make["table"], make["rows"])
    return forward(lambda: functional.embedding(indices, table))


def embedding_backward(make: Maker) -> Program:
    """The dense gradient of the table."""
    gradient = make.normal(make["rows"], make["columns"])
    indices = make.indices(make["table"], make["rows"])
    count = make["table"]
    return forward(lambda: _aten.embedding_dense_backward(gradient, indices, count, -1, False))


def gather(make: Maker) -> Program:
    """`rows` rows picked from a table."""
    table = make.normal(make["table"], make["columns"])
    indices = make.indices(make["table"], make["rows"])
    return forward(lambda: torch.index_select(table, 0, indices))


PROGRAMS: Mapping[str, Builder] = {
    "lookup.embedding": embedding,
    "lookup.embedding_backward": embedding_backward,
    "lookup.gather": gather,
}
