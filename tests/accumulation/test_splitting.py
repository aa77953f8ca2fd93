from __future__ import annotations

import collections
import dataclasses

import pytest
import torch

from bsprof.accumulation.splitting import batch_size, split_batch, to_device
from bsprof.errors import UsageError

Pair = collections.namedtuple("Pair", "x y")


@dataclasses.dataclass(frozen=True)
class Case:
    x: torch.Tensor
    name: str
    parts: dict


class Encoding(collections.UserDict):
    """As tokenisers return: a mapping with attributes of its own."""

    kind = "encoding"


def numbers(samples: int = 5) -> torch.Tensor:
    return torch.arange(samples * 2).reshape(samples, 2)


def parts_of(batch, sizes=(2, 2, 1)):
    return split_batch(batch, sizes, size=batch_size(batch), split=None)


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lambda x: x, lambda part: part),
        (lambda x: (x, x[:, 0]), lambda part: part[0]),
        (lambda x: [x, x[:, 0]], lambda part: part[0]),
        (lambda x: Pair(x, x), lambda part: part.y),
        (lambda x: {"a": {"x": x}, "scale": torch.tensor(2.0)}, lambda part: part["a"]["x"]),
        (lambda x: Encoding(x=x), lambda part: part["x"]),
        (lambda x: Case(x, "n", {"x": x}), lambda part: part.parts["x"]),
    ],
    ids=["tensor", "tuple", "list", "namedtuple", "dict", "mapping", "dataclass"],
)
def test_pieces_put_together_are_the_batch(make, read):
    x = numbers()
    batch = make(x)
    parts = parts_of(batch)
    assert [batch_size(part) for part in parts] == [2, 2, 1]
    assert torch.equal(torch.cat([read(part) for part in parts]), x)
    assert all(type(part) is type(batch) for part in parts)
    assert all(read(part).untyped_storage().data_ptr() == x.data_ptr() for part in parts)


def test_what_is_no_sample_goes_to_every_piece_and_lists_of_samples_are_cut():
    batch = {
        "x": numbers(),
        "names": list("abcde"),
        "scale": torch.tensor(0.5),
        "positions": torch.arange(2)[None],
        "epoch": 3,
    }
    first, _, last = parts_of(batch)
    assert first["names"] == ["a", "b"]
    assert last["names"] == ["e"]
    assert last["positions"] is batch["positions"]
    assert (first["epoch"], first["scale"]) == (3, batch["scale"])


def test_a_pair_of_tensors_is_no_list_of_two_samples():
    parts = split_batch([numbers(2), numbers(2)], (1, 1), size=2, split=None)
    assert [len(part) for part in parts] == [2, 2]


def test_a_tensor_whose_samples_are_elsewhere_is_refused_unless_the_user_splits():
    batch = {"x": numbers(4), "packed": torch.arange(12)}
    with pytest.raises(UsageError, match=r"a tensor of shape \(12,\) in a batch of 4 samples"):
        parts_of(batch, (2, 2))

    def split(batch, start, stop):
        return {"x": batch["x"][start:stop], "packed": batch["packed"][3 * start : 3 * stop]}

    first, second = split_batch(batch, (1, 3), size=4, split=split)
    assert (first["packed"].tolist(), len(second["packed"])) == ([0, 1, 2], 9)
    with pytest.raises(UsageError, match="how many samples"):
        batch_size({"n": 3})


def test_a_piece_that_is_there_already_is_not_moved():
    piece = {"x": numbers()}
    assert to_device(piece, torch.device("cpu")) is piece
    assert to_device(piece, torch.device("meta"))["x"].device.type == "meta"
