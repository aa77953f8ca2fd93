"""Counts of real calls against numbers derived by hand."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from bsprof.accounting.counter import OperatorCounter, OperatorTotals
from bsprof.accounting.operators import OperatorClass


def count(step: Callable[[], object]) -> OperatorTotals:
    with OperatorCounter() as counter:
        step()
    return counter.totals


@dataclass(frozen=True)
class Part:
    """What one part of a step added to the totals."""

    model_flops: int
    hardware_flops: int
    bytes_moved: int
    flops_by_class: dict[OperatorClass, int]
    uncounted: tuple[str, ...]


def part(before: OperatorTotals, after: OperatorTotals) -> Part:
    by_class = {
        c: n - before.flops_by_class.get(c, 0)
        for c, n in after.flops_by_class.items()
        if n > before.flops_by_class.get(c, 0)
    }
    return Part(
        model_flops=after.model_flops - before.model_flops,
        hardware_flops=after.hardware_flops - before.hardware_flops,
        bytes_moved=after.bytes_moved - before.bytes_moved,
        flops_by_class=by_class,
        uncounted=after.uncounted,
    )


def count_training(module: nn.Module, *inputs: torch.Tensor) -> tuple[Part, Part]:
    """What the forward adds, and what the backward adds."""
    with OperatorCounter() as counter:
        start = counter.totals
        out = module(*inputs)
        middle = counter.totals
        (out[0] if isinstance(out, tuple) else out).sum().backward()
    return part(start, middle), part(middle, counter.totals)


def grad(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


# --- matrix products -------------------------------------------------------------------------


def test_linear_forward_and_backward() -> None:
    forward, backward = count_training(nn.Linear(30, 50), grad(4, 7, 30))
    assert forward.model_flops == 2 * 28 * 30 * 50
    assert backward.model_flops == 2 * forward.model_flops
    assert forward.flops_by_class == {OperatorClass.MATMUL: 2 * 28 * 30 * 50}
    assert forward.uncounted == backward.uncounted == ()


def test_two_layers_whose_input_needs_no_gradient() -> None:
    # 6 FLOPs per parameter and sample would say 12.6 M; the input gradient of the first layer
    # is never computed.
    model = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 1024, bias=False))
    totals = count(lambda: model(torch.randn(1, 1024)).sum().backward())
    parameters = 2 * 1024**2
    assert totals.model_flops == 5 * parameters == 10_485_760
    assert totals.hardware_flops == totals.model_flops


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize(
    ("call", "flops"),
    [
        (lambda: torch.mm(torch.ones(2, 3), torch.ones(3, 5)), 2 * 2 * 3 * 5),
        (lambda: torch.bmm(torch.ones(4, 2, 3), torch.ones(4, 3, 5)), 2 * 4 * 2 * 3 * 5),
        (lambda: torch.addmm(torch.ones(5), torch.ones(2, 3), torch.ones(3, 5)), 60),
        (
            lambda: torch.baddbmm(torch.ones(4, 2, 5), torch.ones(4, 2, 3), torch.ones(4, 3, 5)),
            240,
        ),
        (lambda: torch.addbmm(torch.ones(2, 5), torch.ones(4, 2, 3), torch.ones(4, 3, 5)), 240),
        (lambda: torch.mv(torch.ones(2, 3), torch.ones(3)), 12),
        (lambda: torch.addmv(torch.ones(2), torch.ones(2, 3), torch.ones(3)), 12),
        (lambda: torch.dot(torch.ones(7), torch.ones(7)), 14),
        (lambda: torch.addr(torch.ones(2, 3), torch.ones(2), torch.ones(3)), 12),
        (
            lambda: torch.einsum("bhqd,bhkd->bhqk", torch.ones(2, 3, 4, 8), torch.ones(2, 3, 5, 8)),
            2 * 6 * 4 * 5 * 8,
        ),
        (lambda: torch.mm(torch.ones(2, 3), torch.ones(3, 5), out=torch.empty(2, 5)), 60),
        (lambda: torch.ones(2, 3) @ torch.eye(3).to_sparse(), 2 * 2 * 3),
        (lambda: torch.sparse.mm(torch.eye(3).to_sparse(), torch.ones(3, 5)), 2 * 3 * 5),
        (lambda: torch.eye(3).to_sparse_csr() @ torch.ones(3, 5), 2 * 3 * 5),
    ],
)
def test_products(call: Callable[[], object], flops: int) -> None:
    assert count(call).model_flops == flops


def test_bilinear_layer() -> None:
    totals = count(lambda: nn.Bilinear(3, 4, 5)(torch.ones(6, 3), torch.ones(6, 4)))
    assert totals.model_flops == 2 * 6 * 3 * 4 * 5


# --- convolutions ----------------------------------------------------------------------------

_CONVOLUTIONS: list[tuple[nn.Module, tuple[int, ...], int]] = [
    # (module, input shape, multiply-adds derived by hand)
    (nn.Conv2d(6, 8, 3), (2, 6, 10, 10), 2 * 8 * 8 * 8 * 6 * 9),
    (nn.Conv2d(6, 8, 3, groups=2), (2, 6, 10, 10), 2 * 8 * 8 * 8 * 3 * 9),
    (nn.Conv2d(64, 64, 3, groups=64, padding=1), (2, 64, 10, 10), 2 * 64 * 10 * 10 * 9),
    (nn.Conv2d(6, 8, 3, stride=2, dilation=2), (2, 6, 11, 11), 2 * 8 * 4 * 4 * 6 * 9),
    (nn.Conv1d(4, 6, 5, bias=False), (3, 4, 20), 3 * 6 * 16 * 4 * 5),
    (nn.Conv3d(2, 4, 3), (1, 2, 6, 6, 6), 4 * 4**3 * 2 * 27),
    # Transposed: every input element meets C_out / groups x kernel weights.
    (nn.ConvTranspose2d(6, 8, 3), (2, 6, 10, 10), 2 * 6 * 10 * 10 * 8 * 9),
    (nn.ConvTranspose2d(6, 8, 3, stride=2, groups=2), (2, 6, 5, 5), 2 * 6 * 5 * 5 * 4 * 9),
]


@pytest.mark.parametrize(("module", "shape", "multiply_adds"), _CONVOLUTIONS)
def test_convolution_forward_and_backward(
    module: nn.Module, shape: tuple[int, ...], multiply_adds: int
) -> None:
    forward, backward = count_training(module, grad(*shape))
    assert forward.model_flops == 2 * multiply_adds
    assert backward.model_flops == 2 * forward.model_flops
    assert forward.flops_by_class.keys() == {OperatorClass.CONVOLUTION}


@pytest.mark.parametrize("groups", [1, 4, 32, 64])
def test_grouped_convolution_backward_is_twice_its_forward(groups: int) -> None:
    forward, backward = count_training(nn.Conv2d(64, 64, 3, groups=groups), grad(2, 64, 8, 8))
    assert backward.model_flops == 2 * forward.model_flops
    assert forward.model_flops == 2 * 2 * 64 * 36 * (64 // groups) * 9


@pytest.mark.parametrize("module", [nn.Conv2d(6, 8, 3), nn.ConvTranspose2d(6, 8, 3)])
def test_convolution_backward_counts_only_the_gradients_asked_for(module: nn.Module) -> None:
    forward, backward = count_training(module, torch.randn(2, 6, 10, 10))
    assert backward.model_flops == forward.model_flops  # no input gradient

    for parameter in module.parameters():
        parameter.requires_grad_(False)
    forward, backward = count_training(module, grad(2, 6, 10, 10))
    assert backward.model_flops == forward.model_flops  # no weight gradient


# --- attention -------------------------------------------------------------------------------


def _attention(causal: bool, dropout: float = 0.0, **options: bool) -> nn.Module:
    class Attention(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=causal, dropout_p=dropout, **options
            )

    return Attention()


def _qkv(length: int = 16) -> list[torch.Tensor]:
    return [grad(2, 4, length, 8) for _ in range(3)]


def test_dense_attention() -> None:
    forward, backward = count_training(_attention(causal=False), *_qkv())
    assert forward.model_flops == 2 * (2 * 4 * 16 * 16) * (8 + 8)
    assert backward.model_flops == 2 * forward.model_flops
    # The fused backward computes the scores once more: half of the forward.
    assert backward.hardware_flops == backward.model_flops + forward.model_flops // 2
    assert forward.flops_by_class.keys() == {OperatorClass.ATTENTION}


def test_causal_attention_counts_the_lower_triangle() -> None:
    forward, backward = count_training(_attention(causal=True), *_qkv())
    assert forward.model_flops == 2 * (2 * 4 * (16 * 17 // 2)) * (8 + 8)
    assert backward.model_flops == 2 * forward.model_flops


def test_unfused_causal_attention_has_the_same_model_flops() -> None:
    # Dropout on the attention weights takes the unfused path on CPU: matrix products of the
    # whole square, which the hardware does compute.
    fused = count_training(_attention(causal=True), *_qkv())
    dense = count_training(_attention(causal=False), *_qkv())
    unfused = count_training(_attention(causal=True, dropout=0.1), *_qkv())
    for kind in (0, 1):
        assert OperatorClass.BATCHED_MATMUL in unfused[kind].flops_by_class
        assert unfused[kind].model_flops == fused[kind].model_flops
        assert unfused[kind].hardware_flops == dense[kind].model_flops


def test_products_after_a_causal_attention_are_not_taken_for_part_of_it() -> None:
    attention = _attention(causal=True, dropout=0.1)

    class Block(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return torch.matmul(attention(q, k, v), v.transpose(-1, -2))

    alone = count_training(attention, *_qkv())
    both = count_training(Block(), *_qkv())
    assert both[0].model_flops - alone[0].model_flops == 2 * 8 * 16 * 16 * 8
    assert both[1].model_flops - alone[1].model_flops == 2 * (2 * 8 * 16 * 16 * 8)


def test_causal_attention_inside_a_torch_module() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.1)
    mask = nn.Transformer.generate_square_subsequent_mask(16)
    x = grad(2, 16, 32)
    totals = count(lambda: layer(x, src_mask=mask, is_causal=True))
    projections = 2 * 32 * (4 * 32 * 32 + 2 * 32 * 64)
    assert totals.model_flops == projections + 2 * (2 * 4 * 136) * 16
    assert totals.hardware_flops == projections + 2 * (2 * 4 * 256) * 16


def test_the_attention_function_is_put_back() -> None:
    before = F.scaled_dot_product_attention
    with OperatorCounter():
        assert F.scaled_dot_product_attention is not before
    assert F.scaled_dot_product_attention is before
    with pytest.raises(RuntimeError), OperatorCounter():
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert F.scaled_dot_product_attention is before


def test_grouped_query_attention_counts_query_heads() -> None:
    q, k, v = grad(2, 4, 16, 8), grad(2, 2, 16, 8), grad(2, 2, 16, 8)
    forward, _ = count_training(_attention(causal=True, enable_gqa=True), q, k, v)
    assert forward.model_flops == 2 * (2 * 4 * 136) * 16


# --- recurrent, pointwise, losses ------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_lstm(layers: int, bidirectional: bool) -> None:
    lstm = nn.LSTM(6, 10, layers, bidirectional=bidirectional)
    forward, backward = count_training(lstm, grad(5, 3, 6))
    directions = 2 if bidirectional else 1
    weights = 4 * 10 * (6 + 10) + (layers - 1) * 4 * 10 * (10 * directions + 10)
    assert forward.model_flops == 2 * 5 * 3 * weights * directions
    assert backward.model_flops == 2 * forward.model_flops
    assert forward.flops_by_class.keys() == {OperatorClass.RNN}


def test_gru_runs_as_products_with_the_same_count() -> None:
    # Bias-free products of input and state at every step: 3 gates.
    forward, _ = count_training(nn.GRU(6, 10), grad(5, 3, 6))
    assert forward.model_flops == 2 * 5 * 3 * 3 * 10 * (6 + 10)


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (nn.Embedding(100, 8), (torch.randint(0, 100, (4, 6)),)),
        (nn.BatchNorm2d(8), (torch.randn(4, 8, 5, 5, requires_grad=True),)),
        (nn.GELU(), (torch.randn(4, 8, requires_grad=True),)),
    ],
)
def test_memory_bound_modules_have_no_flops(
    module: nn.Module, inputs: tuple[torch.Tensor, ...]
) -> None:
    for totals in count_training(module, *inputs):
        assert totals.model_flops == totals.hardware_flops == 0
        assert totals.bytes_moved > 0
        assert totals.uncounted == ()


# --- recomputation ---------------------------------------------------------------------------


def _mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_is_hardware_only(reentrant: bool) -> None:
    model, x = _mlp(), grad(8, 16)
    one = 2 * 8 * 16 * 32
    plain = count(lambda: model(x).sum().backward())
    again = count(lambda: checkpoint(model, x, use_reentrant=reentrant).sum().backward())
    assert plain.model_flops == plain.hardware_flops == 6 * one
    assert again.model_flops == 6 * one
    # Non-reentrant checkpointing stops as soon as everything the backward asks for is there:
    # the second product's result is not, so its product is not repeated.
    assert again.hardware_flops == (8 if reentrant else 7) * one


def test_recomputation_of_every_accumulated_micro_step() -> None:
    model, x = _mlp(), grad(8, 16)

    def window() -> None:
        for _ in range(3):
            checkpoint(model, x, use_reentrant=False).sum().backward()

    one = 2 * 8 * 16 * 32
    totals = count(window)
    assert (totals.model_flops, totals.hardware_flops) == (3 * 6 * one, 3 * 7 * one)


def test_recomputed_causal_attention() -> None:
    attention = _attention(causal=True, dropout=0.1)
    q, k, v = _qkv()
    plain = count(lambda: attention(q, k, v).sum().backward())
    again = count(lambda: checkpoint(attention, q, k, v, use_reentrant=False).sum().backward())
    assert again.model_flops == plain.model_flops
    assert again.hardware_flops > plain.hardware_flops


def test_gradient_of_a_gradient_is_model_flops() -> None:
    model, x = _mlp(), grad(8, 16)

    def penalty() -> None:
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        gradient.square().sum().backward()

    totals = count(penalty)
    assert totals.hardware_flops == totals.model_flops > 0


# --- whole steps -----------------------------------------------------------------------------


def _convnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * 7 * 7, 10),
    )  # fmt: skip


def test_counts_are_affine_in_the_batch_size() -> None:
    model = _convnet()

    def step(size: int) -> OperatorTotals:
        model.zero_grad()
        x, y = torch.randn(size, 3, 16, 16), torch.randint(0, 10, (size,))
        return count(lambda: F.cross_entropy(model(x), y).backward())

    two, four, eight = step(2), step(4), step(8)
    assert two.operators == four.operators == eight.operators
    assert eight.model_flops == 4 * two.model_flops
    assert eight.bytes_moved - four.bytes_moved == 2 * (four.bytes_moved - two.bytes_moved)
    assert eight.kernels == two.kernels


def test_agrees_with_torch_where_torch_is_right() -> None:
    model, x = _convnet(), torch.randn(4, 3, 16, 16)
    ours = count(lambda: model(x).sum().backward())
    with FlopCounterMode(display=False) as theirs:
        model(x).sum().backward()
    assert ours.model_flops == theirs.get_total_flops()


@pytest.mark.parametrize(
    "model",
    [
        _mlp(),
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0),
        nn.MultiheadAttention(16, 2, batch_first=True),
    ],
)
def test_inference_mode_counts_what_no_grad_counts(model: nn.Module) -> None:
    x = torch.randn(2, 8, 16)
    inputs = (x, x, x) if isinstance(model, nn.MultiheadAttention) else (x,)
    model.train()
    with torch.no_grad():
        plain = count(lambda: model(*inputs))
    with torch.inference_mode():
        inference = count(lambda: model(*inputs))
    model.eval()  # torch's own layers run as one operator now
    with torch.inference_mode():
        fast = count(lambda: model(*inputs))
    assert plain.model_flops == inference.model_flops == fast.model_flops > 0
    assert plain.uncounted == inference.uncounted == fast.uncounted == ()


def test_composite_views_that_copy_are_seen_in_inference_mode() -> None:
    x = torch.randn(64, 64)
    with torch.inference_mode():
        totals = count(lambda: x.t().reshape(-1))
    assert totals.bytes_moved == 2 * x.nbytes
    assert totals.kernels == 1


def test_autocast_casts_are_copies() -> None:
    linear, x = nn.Linear(16, 32), torch.randn(4, 16)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            linear(x)

    totals = count(step)
    assert totals.model_flops == 2 * 4 * 16 * 32
    weights = 16 * 32 + 32
    assert totals.bytes_by_class[OperatorClass.COPY] == (4 + 2) * (4 * 16 + weights)


def test_uncounted_operators_are_listed() -> None:
    @torch.library.custom_op("bsprof_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    totals = count(lambda: twice(torch.ones(10)))
    assert totals.uncounted == ("bsprof_test::twice",)
    assert totals.bytes_by_class[OperatorClass.UNCOUNTED] == 80
    assert totals.kernels == 2  # the other is `ones`
    assert totals.model_flops == 0


def test_composite_custom_operator_is_counted_by_its_parts() -> None:
    library = torch.library.Library("bsprof_test", "FRAGMENT")
    library.define("product(Tensor a, Tensor b) -> Tensor")
    library.impl("product", torch.mm, "CompositeImplicitAutograd")
    a = torch.ones(4, 4)
    with torch.inference_mode():
        totals = count(lambda: torch.ops.bsprof_test.product(a, a))
    assert totals.uncounted == ()
    assert totals.model_flops == 2 * 4**3


def test_compiled_part_of_a_model_runs_uncompiled_while_counting() -> None:
    linear = nn.Linear(16, 32)
    part = torch.compile(linear, backend="eager")
    totals = count(lambda: part(torch.ones(4, 16)).sum().backward())
    assert totals.model_flops == 2 * (2 * 4 * 16 * 32)
    assert totals.uncounted == ()


def test_counting_does_not_change_the_result() -> None:
    torch.manual_seed(0)
    model, x = _convnet(), torch.randn(4, 3, 16, 16)
    expected = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    with OperatorCounter():
        counted = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(expected, counted, strict=True))


def test_totals_can_be_read_while_counting_goes_on() -> None:
    with OperatorCounter() as counter:
        torch.ones(2, 3) @ torch.ones(3, 5)
        first = counter.totals
        torch.ones(2, 3) @ torch.ones(3, 5)
    assert counter.totals.model_flops == 2 * first.model_flops == 120
    assert counter.totals.operators[0] == "aten.ones.default"


def test_fake_tensors_give_the_same_counts() -> None:
    def step() -> OperatorTotals:
        model = nn.Sequential(_convnet(), nn.Linear(10, 16))
        attention = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1)
        x = torch.randn(4, 3, 16, 16)
        return count(lambda: attention(model(x)[None], is_causal=False).sum().backward())

    real = step()
    with FakeTensorMode():
        fake = step()
    assert fake.flops_by_class == real.flops_by_class
    assert fake.bytes_moved == real.bytes_moved
    assert fake.operators == real.operators


@pytest.mark.parametrize("causal", [False, True])
def test_attention_kernels_of_accelerators_on_fake_tensors(causal: bool) -> None:
    pairs = 2 * 4 * (128 * 129 // 2 if causal else 128 * 128)
    forward = 2 * pairs * (64 + 64)
    ops = torch.ops.aten
    with FakeTensorMode():
        q, k, v = (
            torch.empty(2, 4, 128, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
        )
        calls: list[Callable[[], tuple[torch.Tensor, ...]]] = [
            lambda: ops._scaled_dot_product_flash_attention(q, k, v, 0.0, causal),
            lambda: ops._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal),
            lambda: ops._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal),
        ]
        for call in calls:
            totals = count(lambda call=call: call()[0].sum().backward())  # type: ignore[misc]
            assert totals.model_flops == 3 * forward
            assert totals.hardware_flops == 3 * forward + 2 * pairs * 64
            assert totals.uncounted == ()


def test_batch_norm_of_accelerators_on_fake_tensors() -> None:
    with FakeTensorMode():
        x = torch.empty(4, 8, 6, 6, requires_grad=True)
        weight, bias = (torch.empty(8, requires_grad=True) for _ in range(2))
        mean, var = torch.empty(8), torch.empty(8)
        totals = count(
            lambda: torch.ops.aten.cudnn_batch_norm(
                x, weight, bias, mean, var, True, 0.1, 1e-5
            )[0].sum().backward()
        )  # fmt: skip
    assert totals.uncounted == ()
    assert totals.bytes_by_class[OperatorClass.NORMALISATION] > 4 * x.nbytes


def test_counting_an_operator_is_cheap() -> None:
    class Bare(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    a, b = torch.ones(4, 4), torch.ones(4, 4)

    def seconds(mode: TorchDispatchMode) -> float:
        best = 1.0
        for _ in range(20):
            with mode:
                start = time.thread_time()
                for _ in range(100):
                    a.add_(b)
                    torch.mm(a, b)
                best = min(best, (time.thread_time() - start) / 200)
        return best

    # About 6 us on a quiet machine; the bound leaves room for a busy one.
    assert seconds(OperatorCounter()) - seconds(Bare()) < 40e-6
