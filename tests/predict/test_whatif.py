"""Changes that would make a size fit, on made runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bsprof.errors import UsageError
from bsprof.predict.eight_bit import with_eight_bit_state
from bsprof.predict.memory import predict_memory
from bsprof.predict.room import Conditions
from bsprof.predict.stream import Operand
from bsprof.predict.whatif import changes_for, ideas, together
from bsprof.records import Category, Mode, Precision, WorkloadFacts, WorkloadSpec

MIB = 2**20
GIB = 2**30
SPEC = WorkloadSpec(model="made")
FACTS = WorkloadFacts(
    parameter_count=10,
    trainable_parameter_count=10,
    parameter_bytes=40,
    tokens_per_sample=128,
    optimizer="AdamW",
)


@pytest.fixture
def changed_run(made_run):
    """Made runs of changed workloads: what a trace would find, roughly."""

    def stream(spec, size):
        if spec.optimizer_options.get("fused"):
            raise UsageError("no such option here")
        run = made_run(size)
        scale = {Category.ACTIVATIONS: 1.0}
        if spec.precision is Precision.AMP_BF16:
            scale[Category.ACTIVATIONS] *= 0.5
        if spec.activation_checkpointing == "full":
            scale[Category.ACTIVATIONS] *= 0.25
        if spec.precision is Precision.BF16:
            scale = dict.fromkeys(Category, 0.5)
        if spec.seq_len == 64:
            scale[Category.ACTIVATIONS] *= 0.5
        sizes = zip(run.sizes, run.categories, strict=True)
        return replace(run, sizes=tuple(int(n * scale.get(c, 1.0)) for n, c in sizes))

    return stream


def changes(changed_run, device, size=16, spec=SPEC):
    given = Conditions(device=device, precision=spec.precision)
    before = predict_memory(changed_run(spec, size), given)
    return before, changes_for(spec, FACTS, before, given, changed_run)


def test_every_change_is_predicted_with_its_saving(changed_run, card):
    before, found = changes(changed_run, card(0.77 * GIB))
    by_name = {change.name: change for change in found}
    assert list(by_name) == [
        "mixed precision",
        "full activation checkpointing",
        "an 8-bit optimizer",
        "sharding over 8 ranks",
        "bf16 weights",
        "half the sequence length",
    ]  # the fused optimizer could not be traced
    recomputed = by_name["full activation checkpointing"]
    assert recomputed.options == ("--activation-checkpointing", "full")
    assert recomputed.micro_batch_size == 16
    saved = before.device_used_bytes.value - recomputed.device_used_bytes.value
    assert recomputed.saved_bytes.value == saved > 60 * MIB
    assert recomputed.fits
    assert not by_name["half the sequence length"].fits
    assert by_name["half the sequence length"].options == ("--seq-len", "64")


def test_where_no_change_suffices_alone_they_are_put_together(changed_run, card):
    _, found = changes(changed_run, card(0.68 * GIB), size=32)
    assert not any(change.fits for change in found[:-1])
    last = found[-1]
    assert last.fits
    assert last.name.startswith("mixed precision")
    assert last.options[:4] == ("--precision", "amp-bf16", "--activation-checkpointing", "full")


def test_of_two_changes_of_one_option_the_last_holds(card):
    given = Conditions(device=card(GIB))
    by_name = {idea.name: idea for idea in ideas(SPEC, FACTS, given)}
    names = ("mixed precision", "sharding over 8 ranks", "bf16 weights")
    both = together([by_name[name] for name in names], SPEC)
    assert both.spec == replace(SPEC, precision=Precision.BF16)
    assert both.options.count("--precision") == 1
    assert both.conditions.world_size == 8
    assert both.conditions.precision is Precision.BF16


def test_an_eight_bit_optimizer_has_no_fused_option(card):
    given = Conditions(device=card(GIB))
    both = together(list(ideas(SPEC, FACTS, given)), SPEC)
    assert both.eight_bit
    assert "--optimizer-option" not in both.options
    assert both.spec.optimizer_options == {}


def test_an_eight_bit_optimizer_says_which_options_it_refuses(card):
    fused = replace(SPEC, optimizer="adamw", optimizer_options={"lr": 0.1, "fused": True})
    found = [idea for idea in ideas(fused, FACTS, Conditions(device=card(GIB))) if idea.eight_bit]
    assert [idea.name for idea in found] == ["an 8-bit optimizer without the option fused"]
    assert found[0].options == ("--optimizer", "adamw8bit")
    assert found[0].spec.optimizer_options == {"lr": 0.1}


def test_where_nothing_suffices_all_together_are_shown(changed_run, card):
    _, found = changes(changed_run, card(0.45 * GIB), size=32)
    assert not any(change.fits for change in found)
    assert "half the sequence length" in found[-1].name
    assert found[-1].device_used_bytes.value == min(c.device_used_bytes.value for c in found)


def test_what_is_done_already_or_cannot_be_is_not_proposed(card):
    done = replace(
        SPEC,
        precision=Precision.BF16,
        activation_checkpointing="full",
        optimizer="sgd",
        optimizer_options={"fused": True},
    )
    facts = replace(FACTS, optimizer="SGD", tokens_per_sample=None)
    given = Conditions(device=card(GIB), world_size=2, parallel="ddp")
    assert list(ideas(done, facts, given)) == []
    inferring = replace(SPEC, mode=Mode.INFER)
    names = [idea.name for idea in ideas(inferring, FACTS, Conditions(device=card(GIB)))]
    assert names == ["mixed precision", "bf16 weights", "half the sequence length"]
    old = Conditions(device=card(GIB, compute_capability=(7, 0)))
    mixed = next(idea for idea in ideas(SPEC, FACTS, old) if idea.name == "mixed precision")
    assert mixed.spec.precision is Precision.AMP_FP16


def test_state_in_eight_bits(made_run):
    stream = with_eight_bit_state(made_run(4))
    state = [
        size
        for size, category in zip(stream.sizes, stream.categories, strict=True)
        if category is Category.OPTIMIZER_STATE
    ]
    elements = 40 * MIB // 4
    assert state == [elements + 4 * elements // 256] * 4
    others = [
        size
        for size, category in zip(stream.sizes, stream.categories, strict=True)
        if category is not Category.OPTIMIZER_STATE
    ]
    assert set(others) == {20 * MIB, 8 * MIB}


def test_state_of_16_bit_weights_has_as_many_elements_as_they(made_run):
    run = made_run(4)
    state = [i for i, c in enumerate(run.categories) if c is Category.OPTIMIZER_STATE]
    small = state[-1]
    sizes = tuple(8190 if i == small else size for i, size in enumerate(run.sizes))
    step = replace(
        run.operators[-1],
        inputs=tuple(Operand(shape=(sizes[i] // 2,), dtype="bfloat16", block=i) for i in state),
    )
    made = with_eight_bit_state(replace(run, sizes=sizes, operators=(*run.operators, step)))
    elements = 40 * MIB // 2
    assert [made.sizes[i] for i in state[:-1]] == [elements + 4 * elements // 256] * 3
    assert made.sizes[small] == 4 * 4095  # too small for 8 bits: in 32 then
