"""All that makes fake CPU tensors behave like CUDA ones, as one context manager.

For the worker that traces, and nothing else: kernels are replaced for the whole process. Enter it
around building the optimizer and running the step, inside or outside the fake mode.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bsprof.predict.cuda import copies, dropout, norms, recurrent, softmax
from bsprof.predict.cuda.attention_kernels import cuda_attention
from bsprof.predict.cuda.autocast import cuda_autocast
from bsprof.predict.cuda.multi_tensor import cuda_multi_tensor
from bsprof.predict.cuda.overrides import COMPOSITE, Kernel, kernels
from bsprof.predict.cuda.scaler import cuda_scaler
from bsprof.predict.target import Semantics, TraceTarget


def kernel_tables(target: TraceTarget) -> dict[str, dict[str, Kernel]]:
    """Kernels by dispatch key, without those of attention and autocast."""
    composite = dropout.KERNELS | softmax.KERNELS | recurrent.LAYERS | copies.COMPOSITE_KERNELS
    return {
        COMPOSITE: composite | norms.composite_kernels(target.software),
        "CPU": norms.cpu_kernels(target.software),
        "Meta": recurrent.SHAPES,
        copies.AUTOGRAD: copies.backward_kernels(),
    }


@contextmanager
def cuda_semantics(target: TraceTarget) -> Iterator[None]:
    """Autocast, attention, dropout, norms, recurrent layers, optimizers, scaling as on the target.

    With the semantics of the CPU nothing is changed, save that a gradient scaler takes every
    step: what it would read is not there.
    """
    with ExitStack() as stack:
        stack.enter_context(cuda_scaler())
        if target.semantics is Semantics.CUDA:
            for key, table in kernel_tables(target).items():
                stack.enter_context(kernels(table, key))
            stack.enter_context(cuda_attention(target))
            stack.enter_context(cuda_autocast(target.software))
            stack.enter_context(cuda_multi_tensor(target.software))
        yield
