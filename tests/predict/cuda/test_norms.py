"""Norms keep what CUDA's kernels keep."""

import pytest
import torch

from bsprof.predict.cuda.semantics import cuda_semantics
from bsprof.predict.target import Software, TraceTarget

ROWS, WIDTH = 64, 512
NEW, OLD = Software(torch=(2, 13)), Software(torch=(2, 6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rms_norm_keeps_its_input_and_one_number_a_row(live, held, dtype):
    norm = torch.nn.RMSNorm(WIDTH, dtype=dtype)
    tensor = torch.ones(ROWS, WIDTH, dtype=dtype, requires_grad=True)
    with cuda_semantics(TraceTarget(software=NEW)):
        size = held(lambda: norm(tensor), tensor, norm.weight)
        norm(tensor).sum().backward()
    assert size == ROWS * WIDTH * dtype.itemsize + 4 * ROWS
    assert tensor.grad.dtype == dtype
    assert {"_fused_rms_norm", "_fused_rms_norm_backward"} <= set(live.names)


def test_before_torch_2_9_it_is_written_out(live):
    with cuda_semantics(TraceTarget(software=OLD)):
        torch.nn.RMSNorm(WIDTH)(torch.ones(ROWS, WIDTH)).sum().backward()
    assert "_fused_rms_norm" not in live.names
    assert "rsqrt" in live.names


def test_channels_last_is_written_out_too(live):
    tensor = torch.ones(2, 4, 6, 8).to(memory_format=torch.channels_last)
    with cuda_semantics(TraceTarget(software=NEW)):
        torch.nn.RMSNorm(8)(tensor).sum().backward()
    assert "_fused_rms_norm" not in live.names


def test_autocast_runs_rms_norm_in_fp32(live):
    tensor = torch.ones(ROWS, WIDTH, dtype=torch.bfloat16)
    with cuda_semantics(TraceTarget(software=NEW)), torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.nn.RMSNorm(WIDTH)(tensor).dtype == torch.float32
    assert "_fused_rms_norm" in live.names


@pytest.mark.parametrize(
    ("memory_format", "copies"), [(torch.contiguous_format, 0), (torch.channels_last, 1)]
)
def test_group_norm_copies_channels_last(live, memory_format, copies):
    tensor = torch.ones(2, 16, 32, 32).to(memory_format=memory_format).requires_grad_()
    with cuda_semantics(TraceTarget()):
        before = live.now
        live.restart()
        out = torch.nn.GroupNorm(4, 16)(tensor)
        assert live.peak - before == pytest.approx(out.nbytes * (1 + copies), abs=1024)
        out.sum().backward()
    assert out.is_contiguous()
    assert tensor.grad.shape == tensor.shape


def test_afterwards_the_cpu_writes_rms_norm_out_again(live):
    with cuda_semantics(TraceTarget()):
        pass
    torch.nn.RMSNorm(WIDTH)(torch.ones(ROWS, WIDTH))
    assert "_fused_rms_norm" not in live.names
