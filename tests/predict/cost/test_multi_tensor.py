"""Launches of operators on lists of tensors, against the loop they come from."""

from __future__ import annotations

import random

import pytest
from made_operators import operator, tensor, works

from bsprof.accounting.work import WorkClass
from bsprof.predict.cost.multi_tensor import CHUNK, MOST_BLOCKS, MOST_TENSORS, launches


def literal(elements, lists):
    """`multi_tensor_apply` of `MultiTensorApply.cuh`, line by line."""
    depth = lists - 1
    launched = 0
    block, tensor_index = 0, 0
    count = len(elements)
    for t in range(count):
        if elements[t] == 0:
            continue
        tensor_index += 1
        chunks = (elements[t] + CHUNK - 1) // CHUNK
        for chunk in range(chunks):
            block += 1
            tensors_full = tensor_index == MOST_TENSORS[depth] and chunk == chunks - 1
            blocks_full = block == MOST_BLOCKS
            if tensors_full or blocks_full:
                launched += 1
                block = 0
                tensor_index = 0 if chunk == chunks - 1 else 1
    return launched + (block != 0)


@pytest.mark.parametrize("seed", range(20))
def test_launches_are_those_of_the_loop(seed):
    made = random.Random(seed)
    elements = [made.choice([0, 1, 70000, 768 * 768, 30_000_000]) for _ in range(200)]
    for lists in range(1, 6):
        assert launches(elements, lists) == literal(elements, lists)


def test_launches_of_a_list_that_just_fits():
    assert launches([1] * 110, 1) == 1
    assert launches([1] * 111, 1) == 2
    assert launches([1] * 37, 4) == 2
    assert launches([CHUNK * MOST_BLOCKS], 2) == 1
    assert launches([CHUNK * MOST_BLOCKS + 1], 2) == 2
    assert launches([], 3) == 0


def test_foreach_operators_are_one_call():
    parameters, grads = [tensor(10)] * 65, [tensor(10)] * 65
    fields = {"operator_class": "elementwise", "lists": 2, "moved": 9}
    (work,) = works(operator("_foreach_add_", [*parameters, *grads], **fields))
    assert work.work_class is WorkClass.OPTIMIZER_FOREACH
    assert (work.launches, work.calls, work.bytes) == (2, 1, 9)


def test_a_fused_optimizer_does_not_count_its_step_counters():
    lists = [tensor(10)] * (4 * 37) + [tensor()] * 37
    fields = {"operator_class": "optimizer", "lists": 5, "moved": 9}
    (work,) = works(operator("_fused_adamw_", lists, **fields))
    assert work.work_class is WorkClass.OPTIMIZER_FUSED
    assert work.launches == 2  # 36 tensors of four lists in a launch


def test_norms_of_a_list_are_summed_by_a_second_kernel():
    fields = {"operator_class": "reduction", "lists": 2, "moved": 9}
    made = operator("_foreach_norm", [tensor(10)] * 20, [tensor()] * 20, **fields)
    (work,) = works(made)
    assert (work.work_class, work.launches) == (WorkClass.OPTIMIZER_FOREACH, 2)
