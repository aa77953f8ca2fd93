"""The kernel of attention by shape, type, device and torch; and that it is the one traced."""

import dataclasses

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from bsprof.predict.cuda.attention import (
    AttentionBackend,
    AttentionCall,
    attention_backend,
    fused_attention_exists,
)
from bsprof.predict.cuda.semantics import cuda_semantics
from bsprof.predict.target import Software, TraceTarget

MIB = 2**20
SHAPE = (4, 12, 1024, 64)
CALL = AttentionCall(query_shape=SHAPE, key_shape=SHAPE, value_shape=SHAPE, dtype="bfloat16")
FLASH, EFFICIENT, CUDNN, MATH = AttentionBackend
T4, V100, A100, RTX4090, H100, RTX5090 = (7, 5), (7, 0), (8, 0), (8, 9), (9, 0), (12, 0)


def changed(**changes):
    if "size" in changes:
        shape = (*SHAPE[:3], changes.pop("size"))
        changes |= {"query_shape": shape, "key_shape": shape, "value_shape": shape}
    if "batch" in changes:
        shape = (*changes.pop("batch"), *SHAPE[1:])
        changes |= {"query_shape": shape, "key_shape": shape, "value_shape": shape}
    return dataclasses.replace(CALL, **changes)


GROUPED = {"key_shape": (4, 3, 1024, 64), "value_shape": (4, 3, 1024, 64)}
MASK = {"mask_shape": (1024, 1024)}


@pytest.mark.parametrize(
    ("changes", "device", "version", "backend"),
    [
        ({}, A100, (2, 6), FLASH),
        ({}, RTX4090, (2, 13), FLASH),
        ({}, H100, (2, 6), FLASH),
        ({}, H100, (2, 13), CUDNN),
        ({}, RTX5090, (2, 13), FLASH),
        ({"dtype": "float32"}, A100, (2, 13), EFFICIENT),
        ({"dtype": "float32"}, H100, (2, 13), EFFICIENT),
        ({"dtype": "float64"}, A100, (2, 13), MATH),
        ({"dtype": "float32", "size": 66}, A100, (2, 13), MATH),  # not a multiple of 4
        ({"dtype": "float32", "size": 66}, V100, (2, 13), EFFICIENT),
        ({"dtype": "float16"}, V100, (2, 13), EFFICIENT),
        ({"dtype": "float16"}, T4, (2, 13), EFFICIENT),
        ({"dtype": "float16"}, T4, (2, 0), FLASH),  # the first FlashAttention ran on Turing
        ({}, V100, (2, 13), MATH),  # no bf16
        (MASK, A100, (2, 13), EFFICIENT),
        (MASK, A100, (2, 0), MATH),
        ({**MASK, "mask_requires_grad": True}, H100, (2, 13), EFFICIENT),
        (MASK, H100, (2, 13), CUDNN),
        ({"batch": (2, 2)}, A100, (2, 13), MATH),  # five dimensions
        ({"size": 36}, A100, (2, 13), FLASH),  # padded to 40
        ({"size": 36, **MASK}, A100, (2, 13), MATH),
        ({"size": 256}, A100, (2, 13), FLASH),
        ({"size": 256}, A100, (2, 0), EFFICIENT),
        ({"size": 256}, RTX4090, (2, 3), EFFICIENT),
        ({"size": 256}, RTX4090, (2, 13), FLASH),
        ({"size": 256, "dropout": 0.1}, RTX4090, (2, 13), EFFICIENT),
        ({"size": 208}, RTX4090, (2, 13), EFFICIENT),
        ({"size": 256, "training": False}, RTX4090, (2, 3), FLASH),
        ({"size": 128}, RTX4090, (2, 0), EFFICIENT),
        ({"size": 512}, A100, (2, 13), EFFICIENT),
        ({"size": 256}, H100, (2, 13), FLASH),  # beyond cuDNN's 128
        ({"dropout": 0.1}, A100, (2, 13), FLASH),
        ({"dropout": 0.1}, H100, (2, 13), FLASH),  # no multiple of 1/16
        ({"dropout": 0.125}, H100, (2, 13), CUDNN),
        ({"dropout": 0.1, **MASK}, A100, (2, 0), MATH),
        ({**GROUPED, "enable_gqa": True}, A100, (2, 13), FLASH),
        ({**GROUPED, "enable_gqa": True, **MASK}, A100, (2, 13), MATH),
        ({**GROUPED, "enable_gqa": True, **MASK}, A100, (2, 14), EFFICIENT),
        ({**GROUPED}, A100, (2, 13), MATH),
        ({"query_shape": (4, 12, 100, 64), "causal": True}, A100, (2, 13), EFFICIENT),
        ({"query_shape": (4, 12, 100, 64)}, A100, (2, 13), FLASH),
        ({"last_stride_one": False}, A100, (2, 13), MATH),
    ],
    ids=str,
)
def test_the_kernel_follows_the_rules_of_the_generation(changes, device, version, backend):
    assert attention_backend(changed(**changes), device, Software(torch=version)) is backend


def test_what_the_program_switches_off_is_not_used():
    allowed = (AttentionBackend.EFFICIENT, AttentionBackend.MATH)
    assert attention_backend(CALL, A100, Software(), allowed=allowed) is EFFICIENT
    assert attention_backend(CALL, A100, Software(), order=(MATH, FLASH)) is MATH


def test_no_kernel_left_is_an_error_as_in_torch():
    with pytest.raises(RuntimeError, match=r"no available attention kernel among flash"):
        attention_backend(changed(dtype="float32"), A100, Software(), allowed=(FLASH,))


def test_before_torch_2_there_is_no_fused_attention():
    assert not fused_attention_exists(Software(torch=(1, 13)))
    assert fused_attention_exists(Software(torch=(2, 0)))


def tensors(shape=SHAPE, dtype=torch.bfloat16):
    return tuple(torch.empty(shape, dtype=dtype, requires_grad=True) for _ in range(3))


@pytest.mark.usefixtures("live")
@pytest.mark.parametrize(
    ("only", "device", "mib", "node"),
    [
        (None, A100, 6.19, "Flash"),
        (None, H100, 6.19, "Cudnn"),
        (SDPBackend.EFFICIENT_ATTENTION, A100, 6.19, "Efficient"),
        (SDPBackend.CUDNN_ATTENTION, A100, 6.19, "Cudnn"),
        (SDPBackend.MATH, A100, 234, "ToCopy"),
    ],
    ids=str,
)
def test_bytes_held_are_those_of_the_table(held, only, device, mib, node):
    """B 4, H 12, S 1024, D 64 in bf16."""
    qkv = tensors()

    def call():
        if only is None:
            return scaled_dot_product_attention(*qkv)
        with sdpa_kernel(only):
            return scaled_dot_product_attention(*qkv)

    with cuda_semantics(TraceTarget(compute_capability=device)):
        assert held(call, *qkv) / MIB == pytest.approx(mib, abs=0.01)
        out = call()
        assert node in out.grad_fn.name()
        out.sum().backward()
    assert [tensor.grad.shape for tensor in qkv] == [SHAPE] * 3


@pytest.mark.usefixtures("live")
def test_torch_before_2_5_keeps_the_math_kernel_in_16_bits(held):
    qkv = tensors()
    scores = 4 * 12 * 1024 * 1024
    sizes = {}
    for version in ((2, 4), (2, 5)):
        with (
            cuda_semantics(TraceTarget(software=Software(torch=version))),
            sdpa_kernel(SDPBackend.MATH),
        ):
            sizes[version] = held(lambda: scaled_dot_product_attention(*qkv), *qkv)
    assert scores * 2 <= sizes[2, 4] < scores * 4 <= sizes[2, 5]


OLD = TraceTarget(software=Software(torch=(1, 13)))


@pytest.mark.parametrize("autocast", [True, False])
def test_before_torch_2_attention_is_written_out(live, held, autocast):
    """Kept: scaled queries, probabilities (fp32 under autocast, with a 16-bit copy), the output."""
    qkv = tensors((2, 3, 64, 32), torch.float16)
    values, scores = 2 * 3 * 64 * 32, 2 * 3 * 64 * 64

    with cuda_semantics(OLD), torch.autocast("cuda", enabled=autocast):
        size = held(lambda: scaled_dot_product_attention(*qkv), *qkv)
    assert size == 2 * 2 * values + (6 if autocast else 2) * scores
    assert not any("attention" in name for name in live.names)


@pytest.mark.parametrize(
    "options",
    [{"is_causal": True}, {"attn_mask": True}, {"enable_gqa": True}, {"dropout_p": 0.1}],
    ids=str,
)
def test_options_of_attention_that_is_written_out(live, options):
    query, key, value = tensors((2, 4, 16, 32))
    if "attn_mask" in options:
        options = {"attn_mask": torch.ones(16, 16, dtype=torch.bool)}
    if "enable_gqa" in options:
        key, value = tensors((2, 2, 16, 32))[1:]
    with cuda_semantics(OLD):
        out = scaled_dot_product_attention(query, key, value, **options)
        out.sum().backward()
    assert out.shape == query.shape
    assert key.grad.shape == key.shape
    assert ("native_dropout" in live.names) == ("dropout_p" in options)


@pytest.mark.usefixtures("live")
def test_head_sizes_are_padded_for_flash():
    qkv = tensors((2, 3, 16, 36))
    with cuda_semantics(TraceTarget()):
        out = scaled_dot_product_attention(*qkv)
        out.sum().backward()
    assert out.shape == (2, 3, 16, 36)
    assert out.untyped_storage().nbytes() == 2 * 3 * 16 * 40 * 2
    assert qkv[0].grad.shape == (2, 3, 16, 36)


@pytest.mark.parametrize("shape", [(100, 100), (2, 1, 1, 100), (1, 3, 100, 100)], ids=str)
@pytest.mark.parametrize("kind", ["bool", "trained"])
def test_masks_go_to_the_efficient_kernel(live, shape, kind):
    qkv = tensors((2, 3, 100, 32), torch.float32)
    trained = kind == "trained"
    dtype = torch.float32 if trained else torch.bool
    mask = torch.ones(shape, dtype=dtype, requires_grad=trained)
    with cuda_semantics(TraceTarget()):
        out = scaled_dot_product_attention(*qkv, attn_mask=mask)
        out.sum().backward()
    assert "_scaled_dot_product_efficient_attention" in live.names
    assert mask.grad is None if not trained else mask.grad.shape == shape


def test_autocast_decides_the_type_first(live):
    qkv = tensors(dtype=torch.float32)
    with cuda_semantics(TraceTarget()), torch.autocast("cuda", dtype=torch.bfloat16):
        assert scaled_dot_product_attention(*qkv).dtype == torch.bfloat16
    assert "_scaled_dot_product_flash_attention" in live.names


@pytest.mark.parametrize(("version", "copies"), [((2, 4), 2), ((2, 5), 0)])
def test_before_torch_2_5_shared_keys_are_repeated(live, version, copies):
    query = tensors((2, 4, 16, 32))[0]
    key, value = tensors((2, 2, 16, 32))[1:]
    with cuda_semantics(TraceTarget(software=Software(torch=version))):
        before = live.now
        out = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        kept = live.now - before
        out.sum().backward()
    assert "_scaled_dot_product_flash_attention" in live.names
    assert kept == pytest.approx(query.nbytes * (1 + copies), abs=2 * 4 * 16 * 4 + 64)
    assert key.grad.shape == key.shape


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inference_runs_the_same_kernels(live, mode):
    with cuda_semantics(TraceTarget()), mode():
        out = scaled_dot_product_attention(*tensors())
    assert out.shape == SHAPE
    assert "_scaled_dot_product_flash_attention" in live.names


def test_modules_of_torch_take_it_too(live):
    layer = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True, dtype=torch.bfloat16)
    with cuda_semantics(TraceTarget()):
        layer(torch.empty(2, 16, 64, dtype=torch.bfloat16)).sum().backward()
    assert "_scaled_dot_product_flash_attention" in live.names
    assert "_scaled_dot_product_flash_attention_backward" in live.names


@pytest.mark.usefixtures("live")
def test_afterwards_the_cpu_has_its_own_kernel_again():
    with cuda_semantics(TraceTarget()):
        pass
    out = scaled_dot_product_attention(*tensors())
    assert "ForCpu" in out.grad_fn.name()
