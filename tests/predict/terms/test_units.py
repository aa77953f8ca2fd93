"""Blocks that repeat, found by the names of modules; buckets."""

from __future__ import annotations

from bsprof.predict.terms.collectives import bucket_sizes
from bsprof.predict.terms.units import find_units, unit_of

MIB = 2**20


def test_blocks_of_a_transformer():
    names = ["", "embed", "layers", "head"]
    for n in range(3):
        names += [
            f"layers.{n}",
            f"layers.{n}.attention.q",
            f"layers.{n}.mlp.0",
            f"layers.{n}.mlp.2",
        ]
    assert find_units(names) == ("layers.0", "layers.1", "layers.2")


def test_a_list_of_plain_layers_is_none():
    assert find_units(["", "0", "1", "2", "classifier.0", "classifier.1"]) == ()


def test_blocks_in_stages_differ_by_their_first():
    names = [""]
    for stage in (1, 2):
        names += [f"layer{stage}.{n}.conv" for n in range(3)] + [f"layer{stage}.0.downsample.0"]
    assert find_units(names) == tuple(f"layer{s}.{n}" for s in (1, 2) for n in range(3))


def test_outermost_blocks_win():
    names = [f"layers.{n}.experts.{e}.w1" for n in range(2) for e in range(4)]
    assert find_units(names) == ("layers.0", "layers.1")


def test_a_module_lies_in_the_innermost_unit():
    units = ("layers.1", "layers.1.mlp", "layers.10")
    assert unit_of("layers.1.mlp.0", units) == 1
    assert unit_of("layers.1", units) == 0
    assert unit_of("layers.10.x", units) == 2
    assert unit_of("layers.11", units) == -1


def test_buckets_close_at_their_caps():
    assert bucket_sizes([MIB // 2, MIB, 10 * MIB, 20 * MIB, 5 * MIB]) == [
        3 * MIB // 2,
        30 * MIB,
        5 * MIB,
    ]
    assert bucket_sizes([]) == []
