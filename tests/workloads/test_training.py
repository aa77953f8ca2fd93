from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import Category, Mode, Note, Precision, WorkloadSpec
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training
from bsprof.workloads.workload import Workload

CPU = torch.device("cpu")


class Net(nn.Module):
    """Two layers, four inputs, one output."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(torch.relu(self.hidden(x)))
        return y


def net_workload(**changes: Any) -> Workload:
    values: dict[str, Any] = {
        "model": Net,
        "batch": lambda b, device: torch.ones(b, 4, device=device),
        "loss": lambda model, batch: model(batch).square().mean(),
    }
    return Workload(**(values | changes))


def build(workload: Workload | None = None, **options: Any) -> Training:
    spec = WorkloadSpec(model=options.pop("model", "mine"), **options)
    return build_training(spec, workload or net_workload(), "cpu")


def run(training: Training, batch: Any = None, scale: float = 1.0) -> bool:
    training.micro_step(training.make_batch(3) if batch is None else batch, scale)
    return training.optimizer_step()


@pytest.mark.parametrize(
    ("model", "seq_len", "micro_step"),
    [
        ("mlp", None, lambda model, x, y: F.cross_entropy(model(x), y)),
        ("gpt-tiny", 4, lambda model, x, y: F.cross_entropy(model(x).view(-1, 1000), y.view(-1))),
    ],
)
def test_two_updates_equal_a_loop_written_by_hand(
    model: str, seq_len: int | None, micro_step: Any
) -> None:
    spec = WorkloadSpec(
        model=model,
        seq_len=seq_len,
        clip_norm=0.5,
        optimizer_options={"lr": 0.01, "weight_decay": 0.1},
    )
    training = build_training(spec, resolve(spec), "cpu")
    batches = [training.make_batch(size) for size in (3, 1, 3, 1)]
    torch.manual_seed(77)
    for index, (batch, share) in enumerate(zip(batches, (0.75, 0.25, 0.75, 0.25), strict=True)):
        training.micro_step(batch, share)
        if index % 2:
            assert training.optimizer_step()
            training.zero_grad()

    torch.manual_seed(spec.seed)
    theirs = resolve(spec).model()
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.1)
    torch.manual_seed(77)
    for index, ((x, y), share) in enumerate(zip(batches, (0.75, 0.25, 0.75, 0.25), strict=True)):
        (micro_step(theirs, x, y) * share).backward()
        if index % 2:
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
    for ours, other in zip(training.model.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(ours, other)


def test_notes_of_the_workload_are_those_of_what_is_built() -> None:
    note = Note(code="mine", message="batches are small")
    assert note in build(net_workload(notes=(note,))).notes


def test_nothing_of_a_micro_step_outlives_it_but_gradients() -> None:
    alive: list[weakref.ref[Tensor]] = []
    workload = net_workload(
        loss=lambda model, batch: _remember(model(batch), alive).square().mean()
    )
    training = build(workload, precision=Precision.AMP_BF16)
    batch = training.make_batch(5)
    training.model.get_submodule("hidden").register_forward_hook(
        lambda _module, _inputs, output: alive.append(weakref.ref(output)) or None
    )
    gc.collect()
    gc.disable()
    try:
        training.micro_step(batch, 0.5)
        assert len(alive) == 2
        assert [ref() for ref in alive] == [None, None]
    finally:
        gc.enable()
    training.zero_grad()
    assert all(p.grad is None for p in training.model.parameters())


def _remember(output: Tensor, alive: list[weakref.ref[Tensor]]) -> Tensor:
    alive.append(weakref.ref(output))
    return output


def test_an_error_in_a_step_is_not_kept() -> None:
    alive: list[weakref.ref[Tensor]] = []

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        output = _remember(model(batch), alive)
        raise torch.OutOfMemoryError(f"CUDA out of memory. {output.shape}")

    training = build(net_workload(loss=loss))
    batch = training.make_batch(2)
    failed = False
    try:
        training.micro_step(batch, 1.0)
    except torch.OutOfMemoryError:
        failed = True
    gc.collect()
    assert failed
    assert alive[0]() is None


def test_scale_multiplies_gradients() -> None:
    training = build()
    batch = training.make_batch(3)
    training.micro_step(batch, 1.0)
    whole = [p.grad.clone() for p in training.model.parameters() if p.grad is not None]
    training.zero_grad()
    training.micro_step(batch, 0.25)
    for p, grad in zip(training.model.parameters(), whole, strict=True):
        assert torch.allclose(p.grad * 4, grad)  # type: ignore[operator]


def test_clip_norm_bounds_the_gradient() -> None:
    for clip_norm, bounded in ((None, False), (1e-4, True)):
        training = build(clip_norm=clip_norm, optimizer="sgd")
        run(training)
        total = sum(float(p.grad.square().sum()) for p in training.model.parameters())  # type: ignore[union-attr]
        assert (total**0.5 <= 1.01e-4) is bounded


def test_same_seed_same_weights_other_seed_others() -> None:
    one, same, other = build(), build(), build(seed=1)
    weights = [t.model.get_parameter("out.weight") for t in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_facts_count_tied_parameters_once_and_name_the_optimizer() -> None:
    spec = WorkloadSpec(model="gpt-tiny", optimizer="sgd")
    facts = build_training(spec, resolve(spec), "cpu").facts
    block = 4 * 256 + (256 * 768 + 768) + (256 * 256 + 256) + 2 * (256 * 1024) + 1024 + 256
    assert facts.parameter_count == 1000 * 256 + 128 * 256 + 4 * block + 2 * 256
    assert facts.parameter_bytes == 4 * facts.parameter_count
    assert facts.tokens_per_sample == 128
    assert facts.optimizer == "SGD"
    assert facts.batch_norm_modules == 0


def test_facts_of_frozen_parts_and_batch_norm() -> None:
    def model() -> nn.Module:
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        net[0].requires_grad_(False)
        return net

    facts = build(net_workload(model=model, dataset_size=40)).facts
    assert (facts.parameter_count, facts.trainable_parameter_count) == (20 + 8 + 5, 13)
    assert facts.batch_norm_modules == 1
    assert facts.dataset_size == 40
    assert build(net_workload(model=model), mode=Mode.INFER).facts.batch_norm_modules == 0


def test_resident_bytes_by_category_follow_the_update() -> None:
    training = build()
    weights = 4 * training.facts.parameter_count
    assert training.resident_bytes() == {
        Category.WEIGHTS: weights,
        Category.GRADIENTS: 0,
        Category.OPTIMIZER_STATE: 0,
    }
    assert not training.optimizer_state_exists()
    run(training)
    steps = 4 * len(list(training.model.parameters()))
    assert training.optimizer_state_exists()
    assert training.resident_bytes() == {
        Category.WEIGHTS: weights,
        Category.GRADIENTS: weights,
        Category.OPTIMIZER_STATE: 2 * weights + steps,
    }
    training.zero_grad()
    assert training.resident_bytes()[Category.GRADIENTS] == 0


def test_tied_and_viewed_storages_are_counted_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(4, 4, bias=False)
            self.two = nn.Linear(4, 4, bias=False)
            self.two.weight = self.one.weight
            self.register_buffer("view", self.one.weight.detach()[0])
            self.register_buffer("own", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.two(self.one(x))
            return y

    storages = build(net_workload(model=Tied)).storages()[Category.WEIGHTS]
    assert sorted(storage.nbytes() for storage in storages) == [12, 64]


def test_sparse_gradients_are_counted() -> None:
    workload = Workload(
        model=lambda: nn.Embedding(50, 4, sparse=True),
        batch=lambda b, device: torch.arange(b, device=device),
        loss=lambda model, batch: model(batch).mean(),
    )
    training = build(workload, optimizer="sgd")
    run(training)
    assert training.resident_bytes()[Category.GRADIENTS] == 3 * 4 * 4 + 3 * 8


@pytest.mark.parametrize(("momentum", "kept"), [(0.0, 0), (0.9, 1)])
def test_state_exists_after_a_step_even_where_none_is_kept(momentum: float, kept: int) -> None:
    training = build(optimizer="sgd", optimizer_options={"momentum": momentum})
    assert not training.optimizer_state_exists()
    assert run(training)
    assert training.optimizer_state_exists()
    resident = training.resident_bytes()
    assert resident[Category.OPTIMIZER_STATE] == kept * resident[Category.WEIGHTS]


@pytest.mark.parametrize("fused", [False, True])
def test_scaler_that_skips_a_step_is_told(fused: bool) -> None:
    training = build(
        net_workload(loss=lambda model, batch: model(batch[0]).mean() * batch[1]),
        precision=Precision.AMP_FP16,
        optimizer_options={"fused": fused},
        clip_norm=1.0,
    )
    inputs = torch.ones(3, 4)
    before = training.model.get_parameter("out.weight").clone()
    assert not run(training, (inputs, float("inf")))
    assert not training.optimizer_state_exists()
    assert torch.equal(training.model.get_parameter("out.weight"), before)
    training.zero_grad()
    assert run(training, (inputs, 1.0))
    assert training.optimizer_state_exists()
    assert not torch.equal(training.model.get_parameter("out.weight"), before)


def test_clipping_sees_unscaled_gradients() -> None:
    norms = []
    for precision in (Precision.FP32, Precision.AMP_FP16):
        # A loss in fp32, or the scaler's own start of 65536 overflows at once.
        workload = net_workload(loss=lambda model, batch: model(batch).float().square().mean())
        training = build(workload, precision=precision, clip_norm=1e9, optimizer="sgd")
        assert run(training, scale=1e-3)
        norms.append(training.model.get_parameter("out.bias").grad)
    assert torch.allclose(norms[0], norms[1], rtol=1e-2)


@pytest.mark.parametrize(
    ("precision", "weights", "outputs"),
    [
        (Precision.FP32, torch.float32, torch.float32),
        (Precision.AMP_BF16, torch.float32, torch.bfloat16),
        (Precision.AMP_FP16, torch.float32, torch.float16),
        (Precision.BF16, torch.bfloat16, torch.bfloat16),
        (Precision.FP16, torch.float16, torch.float16),
    ],
)
@pytest.mark.parametrize("mode", list(Mode))
def test_precision_sets_weights_and_products(
    precision: Precision, weights: torch.dtype, outputs: torch.dtype, mode: Mode
) -> None:
    seen = []
    training = build(precision=precision, mode=mode)
    training.model.get_submodule("hidden").register_forward_hook(
        lambda _module, _inputs, output: seen.append(output.dtype)
    )
    training.micro_step(training.make_batch(3), 0.5)
    training.optimizer_step()
    assert {p.dtype for p in training.model.parameters()} == {weights}
    assert seen == [outputs]


@pytest.mark.parametrize(
    ("precision", "products", "convolutions"),
    [
        (Precision.FP32, "highest", True),
        (Precision.FP32_STRICT, "highest", False),
        (Precision.TF32, "high", True),
        (Precision.AMP_BF16, "highest", True),
    ],
)
def test_tf32_switches(precision: Precision, products: str, convolutions: bool) -> None:
    training = build(precision=precision)
    assert torch.get_float32_matmul_precision() == products
    assert torch.backends.cudnn.allow_tf32 is convolutions
    assert training.notes == ()


def test_switch_that_cannot_be_set_leaves_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise RuntimeError("mix of the legacy and new APIs\nmore")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "set_float32_matmul_precision", refuse)
        training = build(precision=Precision.FP32_STRICT)
    assert [note.code for note in training.notes] == ["precision-switch"]
    assert "matrix products" in training.notes[0].message
    assert torch.backends.cudnn.allow_tf32 is False


def test_channels_last_lays_out_weights_and_batches() -> None:
    spec = WorkloadSpec(model="convnet", image_size=8, channels_last=True)
    training = build_training(spec, resolve(spec), "cpu")
    images, labels = training.make_batch(2)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert labels.shape == (2,)
    weight = training.model.get_parameter("blocks.1.conv1.weight")
    assert weight.is_contiguous(memory_format=torch.channels_last)
    training.micro_step((images, labels), 1.0)


def test_inference_keeps_nothing_and_steps_nothing() -> None:
    seen: list[tuple[bool, bool]] = []
    training = build(mode=Mode.INFER)
    training.model.register_forward_hook(
        lambda module, _inputs, output: seen.append((module.training, output.is_inference()))
    )
    training.micro_step(training.make_batch(4), 1.0)
    assert seen == [(False, True)]
    assert training.optimizer is None
    assert training.facts.optimizer is None
    assert training.optimizer_step() is False
    assert training.optimizer_state_exists()
    training.zero_grad()
    assert training.resident_bytes()[Category.GRADIENTS] == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"clip_norm": 1.0}, "--clip-norm"),
        ({"optimizer_options": {"lr": 1.0}}, "--optimizer-option"),
        ({"activation_checkpointing": "full"}, "--activation-checkpointing"),
        ({"lora_rank": 4}, "--lora"),
        ({"freeze": ("out.*",)}, "--freeze"),
        ({"ema": True}, "--ema"),
    ],
)
def test_training_options_are_refused_in_inference(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"{named} has no effect in inference"):
        build(mode=Mode.INFER, **options)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"channels_last": True}, "--channels-last has no effect"),
        ({}, {"cudnn_benchmark": True}, "--cudnn-benchmark has no effect on cpu"),
        (
            {"optimizer": lambda p: torch.optim.SGD(p)},
            {"optimizer_options": {"lr": 0.1}},
            "--optimizer-option has no effect",
        ),
        (
            {"micro_step": lambda _model, _batch: None},
            {"precision": Precision.AMP_FP16},
            "--precision amp-fp16 has no effect",
        ),
    ],
)
def test_options_without_effect_are_refused(
    changes: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        build(net_workload(**changes), **options)


def test_own_optimizer_and_own_micro_step() -> None:
    scales = []

    def micro_step(model: nn.Module, batch: Tensor, scale: float) -> None:
        scales.append(scale)
        (model(batch).sum() * scale).backward()

    training = build(
        net_workload(optimizer=lambda p: torch.optim.Adagrad(p, lr=0.5), micro_step=micro_step)
    )
    assert run(training, scale=0.5)
    assert training.facts.optimizer == "Adagrad"
    assert scales == [0.5]

    plain = build(net_workload(micro_step=lambda model, batch: model(batch).sum().backward()))
    assert run(plain, scale=0.5)


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda model, batch: {"loss": model(batch).mean()}, "a dict"),
        (lambda model, batch: model(batch), r"a tensor of shape \(3, 1\)"),
        (lambda model, batch: model(batch).mean().item(), "a float"),
        (lambda model, batch: model(batch).mean().detach(), "does not depend on a trainable"),
    ],
)
def test_loss_that_is_no_number_with_a_gradient(loss: Any, found: str) -> None:
    training = build(net_workload(loss=loss))
    with pytest.raises(WorkloadError, match=found):
        training.micro_step(training.make_batch(3), 1.0)


def test_loss_in_inference_needs_no_gradient_but_must_be_a_number() -> None:
    training = build(net_workload(loss=lambda model, batch: model(batch)), mode=Mode.INFER)
    with pytest.raises(WorkloadError, match="must be one number"):
        training.micro_step(training.make_batch(3), 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": Net()}, "a module itself"),
        ({"model": lambda: 3}, "one that returns a int"),
        ({"optimizer": lambda p: list(p)}, "must return a torch.optim.Optimizer"),
        ({"model": lambda: Net().requires_grad_(False)}, "no trainable parameter"),
    ],
)
def test_wrong_model_or_optimizer(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        build(net_workload(**changes))


@pytest.mark.parametrize("part", ["model", "batch", "optimizer"])
def test_user_callables_that_raise_are_named(part: str) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("their mistake")

    with pytest.raises(WorkloadError) as caught:
        build(net_workload(**{part: fail})).make_batch(2)
    assert "test_training.py" in caught.value.found
    assert "their mistake" in caught.value.found
    assert part in caught.value.doing


def test_memory_error_of_a_batch_passes_through() -> None:
    training = build(net_workload(batch=lambda b, _device: torch.empty(b, 1 << 60)))
    with pytest.raises(RuntimeError, match="allocate memory") as caught:
        training.make_batch(1)
    assert not isinstance(caught.value, WorkloadError)


def test_weights_of_the_users_own_type_are_left_alone() -> None:
    training = build(
        net_workload(
            model=lambda: Net().double(),
            batch=lambda b, device: torch.ones(b, 4, dtype=torch.float64, device=device),
        )
    )
    assert run(training)
    assert {p.dtype for p in training.model.parameters()} == {torch.float64}


def counting(count: Any, **more: Any) -> Workload:
    return Workload(
        model=Net,
        batch=lambda size, device: torch.rand(size, 4, device=device),
        loss=lambda model, batch: model(batch).mean(),
        count=count,
        **more,
    )


@pytest.mark.parametrize(
    ("workload", "tokens"),
    [
        (counting(lambda batch: batch.numel()), 4),
        (counting(lambda batch: batch.numel(), tokens_per_sample=9), 9),
        (counting(len), None),  # it counts samples
        (counting(None), None),
    ],
)
def test_tokens_per_sample_come_from_the_count(workload: Workload, tokens: int | None) -> None:
    assert (
        build_training(WorkloadSpec(model="x"), workload, "cpu").facts.tokens_per_sample == tokens
    )


def test_counting_changes_no_random_number_and_needs_no_batch_of_one() -> None:
    batches = []
    for count in (None, torch.numel):
        training = build_training(WorkloadSpec(model="x"), counting(count), "cpu")
        batches.append(training.make_batch(2))
    assert torch.equal(*batches)

    def at_least_two(size: int, device: torch.device) -> Tensor:
        if size < 2:
            raise ValueError("too few")
        return torch.rand(size, 4, device=device)

    workload = replace(counting(torch.numel), batch=at_least_two)
    assert build_training(WorkloadSpec(model="x"), workload, "cpu").facts.tokens_per_sample is None


def test_a_count_that_fails_is_the_workloads_fault() -> None:
    with pytest.raises(WorkloadError, match="cannot count the tokens"):
        build_training(WorkloadSpec(model="x"), counting(lambda batch: batch["ids"]), "cpu")
