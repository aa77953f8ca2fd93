"""Autocast on fake tensors against CUDA's lists (`ATen/autocast_mode.h`), type by type."""

import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from bsprof.predict.cuda.autocast_lists import (
    APPENDED,
    FP32,
    FP32_OUTPUT,
    LOWER_PRECISION,
    PROMOTED,
)
from bsprof.predict.cuda.semantics import cuda_semantics
from bsprof.predict.target import Semantics, Software, TraceTarget

TARGET = TraceTarget()
LOW = (torch.bfloat16, torch.float16)


def test_the_lists_are_those_of_the_installed_torch():
    """What torch registers for CUDA itself, which says nothing of the policy."""
    names = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    registered = {name.removeprefix("aten::") for name in names if name.startswith("aten::")}
    apart = {
        "binary_cross_entropy",  # refused
        "cudnn_convolution",  # only reached from Python, by name
        "cudnn_convolution_transpose",
        "_cudnn_rnn",  # casts its weights: with the recurrent kernels
        "linalg_matrix_sqrth",
    }
    listed = {*LOWER_PRECISION, *FP32, *FP32_OUTPUT, *APPENDED, *PROMOTED}
    assert registered - apart <= listed
    assert listed - registered == set()


IN_16_BITS = {
    "linear": lambda x: F.linear(x, x),
    "conv1d": lambda x: F.conv1d(x[None], x[..., None]),
    "matmul": lambda x: x @ x,
    "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
    "mv": lambda x: torch.mv(x, x[0]),
    "addmv": lambda x: torch.addmv(x[0], x, x[0]),
    "addr": lambda x: torch.addr(x, x[0], x[0]),
    "chain_matmul": lambda x: torch.linalg.multi_dot([x, x, x]),
    "prelu": lambda x: F.prelu(x, x[0, :1]),
    "lstm_cell": lambda x: torch.lstm_cell(x, (x, x), torch.cat([x] * 4), torch.cat([x] * 4))[0],
}

IN_FP32 = {
    "exp": torch.exp,
    "log1p": torch.log1p,
    "pow": lambda x: x**2,
    "softplus": F.softplus,
    "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "group_norm": lambda x: F.group_norm(x, 2),
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "sum": torch.sum,
    "sum_dim": lambda x: x.sum(1),
    "prod": torch.prod,
    "cumsum": lambda x: x.cumsum(0),
    "norm": torch.norm,
    "norm_dim": lambda x: x.norm(dim=1),
    "logsumexp": lambda x: x.logsumexp(1),
    "cosine_similarity": F.cosine_similarity,
    "mse_loss": F.mse_loss,
    "nll_loss": lambda x: F.nll_loss(x, torch.zeros(8, dtype=torch.long)),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(8, dtype=torch.long)),
    "interpolate": lambda x: F.interpolate(x[None], scale_factor=2),
}

AS_GIVEN = {
    "gelu": F.gelu,
    "relu": F.relu,
    "mean": torch.mean,
    "cat": lambda x: torch.cat([x, x]),
    "avg_pool3d": lambda x: F.avg_pool3d(x[None, None, None], 1),
    "reflection_pad1d": lambda x: F.pad(x, (1, 1), mode="reflect"),
    "trace": torch.trace,
}


def results(functions, dtype, given, software=None):
    target = TARGET if software is None else TraceTarget(software=software)
    with FakeTensorMode(), cuda_semantics(target):
        tensor = torch.ones(8, 8, dtype=given)
        with torch.autocast("cuda", dtype=dtype):
            types = {}
            for name, function in functions.items():
                second = name in ("cosine_similarity", "mse_loss")
                types[name] = (function(tensor, tensor) if second else function(tensor)).dtype
        return types


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_types_are_those_of_cuda(dtype):
    assert set(results(IN_16_BITS, dtype, torch.float32).values()) == {dtype}
    assert set(results(IN_FP32, dtype, dtype).values()) == {torch.float32}
    assert set(results(AS_GIVEN, dtype, dtype).values()) == {dtype}
    assert set(results(AS_GIVEN, dtype, torch.float32).values()) == {torch.float32}


def test_the_widest_type_wins_where_inputs_are_mixed():
    mixed = {"addcmul": lambda x: torch.addcmul(x, x, x.float())}
    alike = {"addcmul": lambda x: torch.addcmul(x, x, x)}
    assert results(mixed, torch.bfloat16, torch.bfloat16) == {"addcmul": torch.float32}
    assert results(alike, torch.bfloat16, torch.bfloat16) == {"addcmul": torch.bfloat16}


def test_double_precision_is_left_alone():
    types = results({**IN_16_BITS, "exp": torch.exp}, torch.bfloat16, torch.float64)
    assert set(types.values()) == {torch.float64}


def test_upsampling_was_not_cast_before_torch_2_4():
    only = {"interpolate": IN_FP32["interpolate"]}
    assert results(only, torch.float16, torch.float16, Software(torch=(2, 3))) == {
        "interpolate": torch.float16
    }


def test_the_unsafe_loss_is_refused_as_on_cuda():
    with FakeTensorMode(), cuda_semantics(TARGET), torch.autocast("cuda"):
        tensor = torch.ones(4)
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(tensor, tensor)


def test_regions_nest_and_user_code_may_name_cuda():
    with FakeTensorMode(), cuda_semantics(TARGET):
        tensor = torch.ones(4, 4)
        assert not torch.is_autocast_enabled()
        with torch.autocast("cuda"):
            assert torch.is_autocast_enabled()
            assert torch.is_autocast_enabled("cuda")
            assert torch.get_autocast_gpu_dtype() == torch.float16
            assert (tensor @ tensor).dtype == torch.float16
            with torch.autocast("cuda", enabled=False):
                assert (tensor @ tensor).dtype == torch.float32
            with torch.autocast("cuda", dtype=torch.bfloat16):
                assert (tensor @ tensor).dtype == torch.bfloat16
            assert (tensor @ tensor).dtype == torch.float16
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            old = torch.cuda.amp.autocast(dtype=torch.bfloat16)
        with old:
            assert (tensor @ tensor).dtype == torch.bfloat16
        assert (tensor @ tensor).dtype == torch.float32


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_runs_under_the_same_autocast(live, reentrant):
    linear = torch.nn.Linear(64, 64)
    types = []

    def part(tensor):
        product = linear(tensor)
        types.append(product.dtype)
        return product.softmax(-1)

    with cuda_semantics(TARGET):
        tensor = torch.ones(4, 64, requires_grad=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = checkpoint(part, tensor, use_reentrant=reentrant)
        out.sum().backward()
    assert types == [torch.bfloat16] * 2
    assert out.dtype == torch.float32
    assert linear.weight.grad.dtype == torch.float32
    assert live.names.count("_softmax") == 2


def test_custom_functions_may_name_cuda():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, tensor):  # noqa: ARG004
            assert not torch.is_autocast_enabled()
            return tensor * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):  # noqa: ARG004
            return grad * 2

    with FakeTensorMode(), cuda_semantics(TARGET), torch.autocast("cuda"):
        tensor = torch.ones(4, requires_grad=True)
        Double.apply(tensor).sum().backward()
        assert tensor.grad.shape == (4,)


def weights_cast(live, function, calls, **options):
    """Bytes of 16-bit copies of a weight of 1000 x 1000 that live at the end of the block."""
    weight = torch.ones(1000, 1000, requires_grad=True)
    vector = torch.ones(1000, dtype=torch.bfloat16)
    before = live.now
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16, **options):
        for _ in range(calls):
            function(weight, vector)
        inside = live.now - before
    return inside, live.now - before


@pytest.mark.parametrize("function", [torch.mv, torch.matmul])  # ours and torch's own cache
def test_a_weight_is_cast_once_in_a_block(live, function):
    with cuda_semantics(TARGET):
        inside, after = weights_cast(live, function, 3)
        assert inside == 2 * 1000 * 1000
        assert after == 0
        assert live.names.count("_to_copy") == 1
        assert weights_cast(live, function, 3, cache_enabled=False) == (0, 0)


def test_only_fp16_skips_the_copy_of_softmax(live):
    kept = {}
    for dtype in LOW:
        with cuda_semantics(TARGET), torch.autocast("cuda", dtype=dtype):
            tensor = torch.ones(1000, 1000, dtype=dtype, requires_grad=True)
            before = live.now
            live.restart()
            out = F.softmax(tensor, -1)
            kept[dtype] = live.peak - before
            out.sum().backward()
        assert tensor.grad.dtype == dtype
    assert kept == {torch.float16: 4_000_000, torch.bfloat16: 8_000_000}


@pytest.mark.usefixtures("live")
def test_the_logits_of_a_language_model_cost_six_bytes(held):
    """bf16 log-probabilities (with the output type of the input) and their fp32 copy."""
    logits = torch.ones(64, 1000, dtype=torch.bfloat16, requires_grad=True)
    target = torch.zeros(64, dtype=torch.long)
    with cuda_semantics(TARGET), torch.autocast("cuda", dtype=torch.bfloat16):
        bytes_held = held(lambda: F.cross_entropy(logits, target), logits, target)
    assert bytes_held == pytest.approx(64 * 1000 * 6, abs=512)


def test_the_cpu_rule_stands_where_it_is_asked_for_and_afterwards():
    target = TraceTarget(semantics=Semantics.CPU)
    with FakeTensorMode():
        tensor = torch.ones(8, 8, dtype=torch.bfloat16)
        with cuda_semantics(target), torch.autocast("cpu"):
            assert torch.exp(tensor).dtype == torch.bfloat16
        with cuda_semantics(TARGET):
            pass
        with torch.autocast("cpu"):
            assert torch.exp(tensor).dtype == torch.bfloat16
            assert F.layer_norm(tensor, (8,)).dtype == torch.bfloat16
