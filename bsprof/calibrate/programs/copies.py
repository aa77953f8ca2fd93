"""Copies: plain, cast, turned, joined; filling; random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bsprof.calibrate.programs.program import Builder, Maker, Program, forward

_aten: Any = torch.ops.aten


def onto(make: Maker) -> Program:
    """One array onto another that exists: what the memory itself does."""
    x, y = (make.normal(make["rows"], make["columns"]) for _ in range(2))
    return forward(lambda: y.copy_(x))


def cast(make: Maker) -> Program:
    """Into half the bytes, as autocast does."""
    x = make.normal(make["rows"], make["columns"], dtype=torch.float32)
    return forward(lambda: x.to(torch.bfloat16))


def cast_back(make: Maker) -> Program:
    """Into twice the bytes."""
    x = make.normal(make["rows"], make["columns"], dtype=torch.bfloat16)
    return forward(lambda: x.to(torch.float32))


def turned(make: Maker) -> Program:
    """Heads put before positions: (rows, heads, columns / heads) with the first two exchanged."""
    heads = make["heads"]
    x = make.normal(make["rows"], heads, make["columns"] // heads).transpose(0, 1)
    return forward(lambda: x.clone(memory_format=torch.contiguous_format))


def joined(make: Maker) -> Program:
    """Three arrays stacked: the gradient of heads cut from one projection."""
    parts = [make.normal(make["rows"], make["columns"]) for _ in range(3)]
    return forward(lambda: torch.stack(parts))


def concatenated(make: Maker) -> Program:
    """Two arrays one behind the other."""
    parts = [make.normal(make["rows"], make["columns"]) for _ in range(2)]
    return forward(lambda: torch.cat(parts))


def filled(make: Maker) -> Program:
    """Zeros in an array that exists."""
    x = make.normal(make["rows"], make["columns"])
    return forward(lambda: x.zero_())


def made(make: Maker) -> Program:
    """Zeros in a new array: beside `filled`, what the system takes to hand out memory."""
    shape = make["rows"], make["columns"]
    return forward(lambda: torch.empty(shape, device=make.device, dtype=make.dtype).zero_())


def bernoulli(make: Maker) -> Program:
    """A mask of random ones and zeros."""
    x = make.normal(make["rows"], make["columns"])
    return forward(lambda: x.bernoulli_(0.9))


def dropout(make: Maker) -> Program:
    """Dropout as one operator: mask and result."""
    x = make.normal(make["rows"], make["columns"])
    return forward(lambda: torch.native_dropout(x, 0.1, True))


PROGRAMS: Mapping[str, Builder] = {
    "copy.onto": onto,
    "copy.cast": cast,
    "copy.cast_back": cast_back,
    "copy.turned": turned,
    "copy.joined": joined,
    "copy.concatenated": concatenated,
    "copy.filled": filled,
    "copy.made": made,
    "random.bernoulli": bernoulli,
    "random.dropout": dropout,
}
