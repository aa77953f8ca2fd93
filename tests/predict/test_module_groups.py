from __future__ import annotations

from bsprof.predict.module_groups import grouped


def test_repeats_are_added_up_and_others_keep_their_names():
    modules = [("head", 50), ("blocks.0.mlp.up", 30), ("blocks.1.mlp.up", 30), ("stem.0", 7)]
    assert grouped(modules) == [("blocks.*.mlp.up", 60), ("head", 50), ("stem.0", 7)]


def test_numbers_within_a_word_are_part_of_the_name():
    assert grouped([("block1.conv2", 3), ("block2.conv2", 4)]) == [
        ("block2.conv2", 4),
        ("block1.conv2", 3),
    ]


def test_what_no_module_made_is_a_group_of_its_own():
    assert grouped([("", 9), ("head", 2)]) == [("", 9), ("head", 2)]
    assert grouped([]) == []
