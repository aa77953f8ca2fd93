"""Parts of an update from hand-made streams, and from traces against real runs and formulas."""

from __future__ import annotations

import dataclasses

import pytest
from made_operators import operator, tensor
from reduced_workloads import REDUCED

from bsprof.accounting.work import WorkClass
from bsprof.predict.cost import StepCosts, steady_costs
from bsprof.predict.stream import Mark, Stream
from bsprof.predict.target import Protocol, Semantics, Software, TraceTarget, ZeroGrad
from bsprof.predict.trace.scaling import StreamFamily
from bsprof.records import Category, Mode, Phase, Precision, WorkloadSpec

CHECKED = ("gpt-tiny", "convnet", "encoder-tiny", "vit-tiny", "lstm", "gpt2", "llama")
ONE = Protocol(windows=(1,))


def traced(spec, size, protocol=ONE, target=None):
    from bsprof.predict.trace.run import Tracer

    return Tracer(spec, target or TraceTarget()).trace(size, protocol).stream


def costs_of(spec, size, protocol=ONE, target=None) -> StepCosts:
    return steady_costs(traced(spec, size, protocol, target), (8, 0), spec.precision)


def counted(spec, size):
    """What a real step on the CPU counts."""
    from bsprof.accounting.counter import OperatorCounter
    from bsprof.workloads.resolve import resolve
    from bsprof.workloads.training import build_training

    training = build_training(spec, resolve(spec), "cpu")
    batch = training.make_batch(size)
    with OperatorCounter() as counter:
        training.micro_step(batch, 1.0)
    return counter.totals


# --- hand-made streams -----------------------------------------------------------------------


def step(name, phase, position, **fields):
    made = operator(name, [tensor(4, block=0)], position=position, moved=32, **fields)
    return dataclasses.replace(made, phase=phase)


def stream(operators, marks, events=(1,), categories=(Category.GRADIENTS,)):
    return Stream(
        micro_batch_size=1,
        sizes=(16,) * len(categories),
        categories=categories,
        modules=(0,) * len(categories),
        module_names=("", "blocks.0.mlp", "blocks.1.mlp"),
        streams=(0,) * len(categories),
        events=events,
        marks=marks,
        operators=operators,
    )


def mark(position, update, micro_step, phase):
    return Mark(position=position, update=update, micro_step=micro_step, phase=phase)


BOTH, ADDING, END = Phase.FORWARD_BACKWARD, Phase.ACCUMULATION, Phase.OPTIMIZER_STEP
MARKS = (
    mark(1, 0, 0, BOTH),
    mark(1, 0, -1, END),
    mark(1, 0, -1, None),
    # Nothing is allocated anywhere: all positions are the same, and phases tell parts apart.
    mark(1, 1, 0, BOTH),
    mark(1, 1, 1, ADDING),
    mark(1, 1, -1, END),
    mark(1, 1, -1, None),
)


def names(part):
    return sorted(work.name.removeprefix("aten.") for work, count in part for _ in range(count))


def test_the_last_update_in_its_parts():
    found = steady_costs(
        stream(
            (
                step("first", END, 1),
                step("exp", BOTH, 1),
                step("exp_backward", BOTH, 1, backward=True),
                step("exp", ADDING, 1),
                step("exp_backward", ADDING, 1, backward=True),
                step("add_", ADDING, 1, backward=True),
                step("adam", END, 1),
                step("zero_", None, 1),
            ),
            MARKS,
        ),
        (8, 0),
        Precision.FP32,
    )
    assert names(found.forward) == ["exp"]
    assert names(found.backward) == ["exp_backward"]
    assert names(found.accumulation) == ["add_"]
    assert names(found.optimizer) == ["adam", "zero_"]


def test_gradients_zeroed_before_a_forward_belong_to_the_end_of_an_update():
    zeroing = step("_foreach_zero_", BOTH, 1)
    found = steady_costs(
        stream((zeroing, step("exp", BOTH, 1)), (mark(1, 0, 0, BOTH),)), (8, 0), Precision.FP32
    )
    assert (names(found.forward), names(found.optimizer)) == (["exp"], ["_foreach_zero_"])
    other = stream(
        (zeroing, step("exp", BOTH, 1)), (mark(1, 0, 0, BOTH),), categories=(Category.WEIGHTS,)
    )
    assert names(steady_costs(other, (8, 0), Precision.FP32).forward) == ["_foreach_zero_", "exp"]


def test_equal_works_are_counted_and_modules_that_repeat_are_one_group():
    operators = [step("exp", BOTH, 1, module=module) for module in (1, 2, 2, 0)]
    found = steady_costs(stream(tuple(operators), (mark(1, 0, 0, BOTH),)), (8, 0), Precision.FP32)
    ((work, count),) = found.forward
    assert (count, work.bytes) == (4, 32)
    assert {name: counted[0][1] for name, counted in found.forward.groups.items()} == {
        "blocks.*.mlp": 3,
        "": 1,
    }
    assert (found.bytes_moved, found.launches, found.calls) == (128, 4, 4)
    assert not found.backward
    assert not found.optimizer


# --- traces ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in CHECKED else [pytest.mark.slow]) for name in REDUCED],
)
def test_a_trace_counts_the_flops_of_a_real_run(name):
    spec = REDUCED[name]
    found, real = costs_of(spec, 3), counted(spec, 3)
    assert found.model_flops == real.model_flops > 0
    assert found.hardware_flops >= found.model_flops
    assert real.uncounted == ()


def test_every_attention_kernel_has_the_same_flops():
    spec = dataclasses.replace(REDUCED["llama"], activation_checkpointing="none")
    half = dataclasses.replace(spec, precision=Precision.AMP_FP16)
    cudnn = TraceTarget(compute_capability=(9, 0))
    written_out = TraceTarget(software=Software(torch=(1, 13)))
    found = {
        "efficient": costs_of(spec, 4),
        "flash": costs_of(half, 4),
        "cudnn": costs_of(half, 4, target=cudnn),
    }
    for implementation, costs in found.items():
        used = {w.implementation for w, _ in costs.forward if w.implementation}
        assert used == {implementation}
    written = costs_of(spec, 4, target=written_out)
    assert {costs.model_flops for costs in (*found.values(), written)} == {written.model_flops}
    # The whole square of scores is computed, and half of it masked away.
    assert written.forward.hardware_flops > written.forward.model_flops
    assert found["flash"].forward.hardware_flops == written.forward.model_flops


def test_batch_norm_counts_alike_in_cudnn_and_in_torch():
    spec = REDUCED["convnet"]
    on_cuda = costs_of(spec, 4)
    on_cpu = costs_of(spec, 4, target=TraceTarget(semantics=Semantics.CPU))
    assert on_cuda.model_flops == on_cpu.model_flops


@pytest.mark.parametrize("name", ["mlp", "vit", "lstm"])
def test_computed_sizes_cost_what_traced_ones_do(name):
    spec = REDUCED[name]
    family = StreamFamily.of(traced(spec, 3), traced(spec, 7))
    for size in (2, 12):
        computed = steady_costs(family.at(size), (8, 0), spec.precision)
        assert computed == costs_of(spec, size)


def test_gpt2_by_the_formula():
    layers, width, length, vocabulary, size = 12, 768, 1024, 50257, 2
    spec = WorkloadSpec(model="gpt2", precision=Precision.AMP_BF16)
    found = costs_of(spec, size)
    products = 2 * length * (12 * layers * width**2 + width * vocabulary)
    attention = layers * 4 * width * length * (length + 1) // 2
    assert found.forward.model_flops == size * (products + attention)
    assert found.backward.model_flops == 2 * found.forward.model_flops
    # Flash attention computes its scores again: half a forward pass of attention.
    assert found.hardware_flops - found.model_flops == size * attention // 2
    # 12 equal layers are looked at once.
    assert len(found.forward) < 40
    matrices = {(w.m, w.n, w.k): count for w, count in found.forward if w.name == "aten.addmm"}
    assert matrices[size * length, 3 * width, width] == layers
    casts = sum(count for w, count in found.forward if w.work_class is WorkClass.COPY)
    assert casts >= 4 * layers + 1  # every matrix, in every forward


@pytest.mark.parametrize(
    ("model", "gmacs"),
    [
        # docs.pytorch.org/vision/stable/models.html, GFLOPS columns (multiply-adds).
        ("resnet18", 1.81),
        ("resnet50", 4.09),
        ("vit-b-16", 17.56),
        ("convnext-tiny", 4.46),
        ("efficientnet-b0", 0.39),
    ],
)
def test_published_multiply_adds(model, gmacs):
    spec = WorkloadSpec(model=model, mode=Mode.INFER)
    found = costs_of(spec, 2)
    assert found.forward.model_flops / 2 / 2 / 1e9 == pytest.approx(gmacs, abs=0.011)
    assert not found.backward


def test_resnet50_on_tensor_cores_copies_layouts_of_all_but_channels_last():
    spec = WorkloadSpec(model="resnet50", precision=Precision.AMP_FP16, optimizer="sgd")
    found = costs_of(spec, 2)
    copies = sum(
        n for w, n in (*found.forward, *found.backward) if w.work_class is WorkClass.LAYOUT
    )
    # Two a kernel; the first convolution has no gradient of its input.
    assert copies == 2 * (53 * 3 - 1)
    last = costs_of(dataclasses.replace(spec, channels_last=True), 2)
    assert not any(w.work_class is WorkClass.LAYOUT for w, _ in (*last.forward, *last.backward))
    assert last.model_flops == found.model_flops


def test_gradients_are_added_up_in_later_micro_steps():
    spec = dataclasses.replace(REDUCED["mlp"], optimizer="sgd")
    found = costs_of(spec, 4, Protocol())
    assert {work.name for work, _ in found.accumulation} == {"aten.add_"}
    weights = sum(work.bytes * count for work, count in found.accumulation) // 12
    assert found.optimizer.bytes_moved == 12 * weights  # read weight and gradient, write weight


@pytest.mark.parametrize("fresh_batch", [False, True])
def test_batches_are_not_part_of_a_step(fresh_batch):
    found = costs_of(REDUCED["mlp"], 4, Protocol(fresh_batch=fresh_batch))
    works = [w for part in (found.forward, found.backward, found.optimizer) for w, _ in part]
    assert WorkClass.RANDOM not in {work.work_class for work in works}
    assert found == dataclasses.replace(found, forward=costs_of(REDUCED["mlp"], 4).forward)


@pytest.mark.parametrize("zero_grad", list(ZeroGrad))
def test_zeroed_gradients_are_part_of_the_optimizer_step(zero_grad):
    protocol = Protocol(windows=(1, 1), zero_grad=zero_grad, set_to_none=False)
    found = costs_of(dataclasses.replace(REDUCED["mlp"], optimizer="sgd"), 4, protocol)
    assert "aten.zero_" in {work.name for work, _ in found.optimizer}
    assert "aten.zero_" not in {work.name for work, _ in (*found.forward, *found.backward)}


def test_optimizers_for_each_tensor_launch_for_each():
    spec = REDUCED["mlp"]
    foreach = costs_of(spec, 4, Protocol()).optimizer
    options = {"optimizer_options": {"foreach": False}}
    loop = costs_of(dataclasses.replace(spec, **options), 4, Protocol()).optimizer
    fused = costs_of(
        dataclasses.replace(spec, optimizer_options={"fused": True}), 4, Protocol()
    ).optimizer
    assert {w.work_class for w, _ in foreach} == {WorkClass.OPTIMIZER_FOREACH}
    assert {w.work_class for w, _ in loop} == {WorkClass.ELEMENTWISE}
    assert WorkClass.OPTIMIZER_FUSED in {w.work_class for w, _ in fused}
    assert loop.calls > 3 * foreach.calls > 3 * fused.calls
    assert fused.bytes_moved < foreach.bytes_moved


def test_checkpointing_raises_flops_of_the_hardware_alone():
    spec = REDUCED["llama"]
    plain = dataclasses.replace(spec, activation_checkpointing="none")
    again, once = costs_of(spec, 4), costs_of(plain, 4)
    assert again.model_flops == once.model_flops
    blocks = again.hardware_flops - once.hardware_flops
    assert 0.5 * once.forward.hardware_flops < blocks < once.forward.hardware_flops


@pytest.mark.slow
def test_compiled_code_moves_less_and_is_called_less():
    spec = dataclasses.replace(REDUCED["llama"], optimizer_options={"fused": True})
    eager, compiled = costs_of(spec, 4), costs_of(dataclasses.replace(spec, compile=True), 4)
    assert compiled.model_flops == eager.model_flops
    assert compiled.hardware_flops > compiled.model_flops
    assert compiled.bytes_moved < 0.9 * eager.bytes_moved
    assert compiled.calls < 0.1 * eager.calls
    # Rows of the table that are looked up are read, not the table.
    table = 300 * 64 * 4
    smallest = min(w.bytes for w, _ in compiled.forward if w.work_class is WorkClass.FUSED)
    assert smallest < table
