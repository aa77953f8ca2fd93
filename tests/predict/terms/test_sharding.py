"""One rank's share against the arithmetic of ZeRO (arXiv 1910.02054) and FSDP's rules."""

from __future__ import annotations

import dataclasses

import pytest
from made_runs import MIB, training

from bsprof.predict.allocator.replay import replay
from bsprof.predict.allocator.rules import AllocatorRules
from bsprof.predict.terms import parallelise
from bsprof.predict.terms.sharding import FULL_GRADIENTS, GATHERED, GATHERING, REDUCING
from bsprof.predict.terms.spans import micro_steps, unit_spans
from bsprof.records import Category, Phase

LAYERS, LAYER, ROOT = 4, 64 * MIB, 16 * MIB
MODEL = LAYERS * LAYER + ROOT
UNITS = tuple(f"layers.{n}" for n in range(LAYERS))


def peak(strategy, world_size, *, phase=None, update=1, layers=LAYERS, **options):
    """Live bytes of the steady update of a model without activations."""
    made, insertions = parallelise(training(layers), strategy, world_size, **options)
    result = replay(made, insertions, AllocatorRules(), None)
    parts = [p for p in result.parts if p.update == update and phase in (None, p.phase)]
    return max(part.allocated_bytes for part in parts)


@pytest.mark.parametrize(
    ("strategy", "held"),
    [  # weights, gradients, 2 x Adam, and one more set of gradients while it steps
        ("zero1", lambda n: MODEL + MODEL + (2 * MODEL + MODEL) / n),
        ("zero2", lambda n: MODEL + (MODEL + 2 * MODEL + MODEL) / n),
        ("zero3", lambda n: (MODEL + MODEL + 2 * MODEL + MODEL) / n),
        ("fsdp", lambda n: (MODEL + MODEL + 2 * MODEL + MODEL) / n),
    ],
)
@pytest.mark.parametrize("world_size", [2, 4, 16])
def test_the_optimizer_step_is_zeros_arithmetic(strategy, held, world_size):
    found = peak(strategy, world_size, phase=Phase.OPTIMIZER_STEP)
    assert found == pytest.approx(held(world_size), abs=MIB)


def test_one_rank_changes_nothing():
    run = training()
    assert parallelise(run, "fsdp", 1) == (run, [])


@pytest.mark.parametrize(("strategy", "world_size"), [("fsdp", 0), ("pipeline", 2)])
def test_what_is_no_strategy_is_refused(strategy, world_size):
    with pytest.raises(ValueError, match=r"not 0|pipeline"):
        parallelise(training(), strategy, world_size)


def test_fsdp_forward_holds_two_units_and_the_root():
    """Between the steps only shares are there; a unit, the next one's buffer and the root."""
    world_size = 4
    run, insertions = parallelise(training(windows=(1, 1)), "fsdp", world_size)
    step = micro_steps(run)[1]
    forward = unit_spans(run, step, UNITS, backward=False)
    held = [
        i
        for i in insertions
        if i.position < forward[1].end and (i.until or 0) >= forward[1].end
        if step.begin <= i.position
    ]
    names = sorted((i.name, i.bytes) for i in held)
    assert names == [(GATHERING, LAYER), (GATHERED, ROOT), (GATHERED, LAYER)]


def test_fsdp_backward_holds_two_units_their_gradients_and_what_is_reduced():
    world_size = 4
    found = peak("fsdp", world_size, phase=Phase.FORWARD_BACKWARD, no_sync=False)
    shares = (MODEL + 2 * MODEL + MODEL) / world_size
    full = ROOT + 2 * LAYER  # root, the unit, the prefetched one
    reducing = 2 * LAYER  # its gradients, and those of the unit before on their way
    # at the hand-over a unit's gradients, the new buffer and the old one are there together
    assert shares + full + reducing - LAYER <= found <= shares + full + reducing + LAYER


def test_no_sync_keeps_full_gradients_through_the_window():
    without = peak("fsdp", 4, phase=Phase.ACCUMULATION, no_sync=False)
    with_them = peak("fsdp", 4, phase=Phase.ACCUMULATION, no_sync=True)
    assert with_them - without > 0.7 * MODEL


@pytest.mark.parametrize(
    ("strategy", "waits"), [("zero2", False), ("zero3", False), ("fsdp", True)]
)
def test_where_gradients_are_partitioned_zero_reduces_them_in_each_micro_step(strategy, waits):
    found = peak(strategy, 4, phase=Phase.ACCUMULATION)
    window = Phase.ACCUMULATION
    told = {kept: peak(strategy, 4, phase=window, no_sync=kept) for kept in (True, False)}
    assert told[True] > told[False]
    assert found == told[waits]


def test_not_resharding_keeps_all_parameters_until_backward():
    settings = {"phase": Phase.FORWARD_BACKWARD, "no_sync": False, "layers": 8}
    resharded = peak("fsdp", 4, **settings)
    kept = peak("fsdp", 4, **settings, reshard_after_forward=False)
    assert kept == pytest.approx(resharded + 4 * LAYER, abs=LAYER)


def test_parameters_are_gathered_in_both_passes():
    _, insertions = parallelise(training(windows=(1,)), "zero3", 4)
    layers = [i for i in insertions if i.name == GATHERED and i.bytes == LAYER]
    assert len(layers) == 2 * LAYERS
    assert all(i.category is Category.WEIGHTS for i in layers)
    assert {i.stream for i in insertions if i.name == GATHERING} == {1}
    assert {i.stream for i in insertions if i.name == REDUCING} == {2}


def test_an_average_of_the_weights_is_sharded_and_not_gathered():
    run = training(windows=(1,))
    averaged = dataclasses.replace(
        run,
        sizes=(*run.sizes, MODEL),
        categories=(*run.categories, Category.WEIGHTS),
        modules=(*run.modules, 0),
        streams=(*run.streams, 0),
        events=(*run.events, len(run.sizes) + 1),
    )
    made, insertions = parallelise(averaged, "fsdp", 4)
    assert made.sizes[-1] == MODEL // 4
    assert insertions == parallelise(run, "fsdp", 4)[1]


def test_zero2_keeps_parameters_and_reduces_gradients():
    _, insertions = parallelise(training(windows=(1,)), "zero2", 4)
    assert {i.name for i in insertions} == {FULL_GRADIENTS, REDUCING}


def test_ddp_has_a_copy_of_all_gradients_unless_they_are_views():
    plain = peak("ddp", 2, phase=Phase.OPTIMIZER_STEP)
    views = peak("ddp", 2, phase=Phase.OPTIMIZER_STEP, gradient_as_bucket_view=True)
    alone = peak("ddp", 1, phase=Phase.OPTIMIZER_STEP)
    assert plain == pytest.approx(alone + MODEL, abs=MIB)
    assert views == pytest.approx(alone, abs=MIB)


def test_ddp_views_stay_between_updates():
    run, insertions = parallelise(training(), "ddp", 2, gradient_as_bucket_view=True)
    assert sum(i.bytes for i in insertions if i.until is None) == MODEL
    gradients = [
        size
        for size, category in zip(run.sizes, run.categories, strict=True)
        if category is Category.GRADIENTS
    ]
    assert gradients
    assert not any(gradients)


def test_a_larger_unit_needs_more():
    halves = ("layers",)
    assert peak("fsdp", 4, units=halves, no_sync=False) > peak("fsdp", 4, no_sync=False)
