"""Has torch treat fake CPU tensors as it treats CUDA ones where it chooses `foreach` itself.

Covers optimizers that a user's code builds, averaged weights, and gradient clipping.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from torch._subclasses.fake_tensor import FakeTensor

from bsprof.predict.cuda.optimizers import foreach_by_default
from bsprof.predict.cuda.overrides import attribute
from bsprof.predict.target import Software

MODULES = ("torch.optim.optimizer", "torch.optim.swa_utils", "torch.utils._foreach_utils")
"""Those that ask which devices have the kernels; torch.optim hides its submodules."""


@contextmanager
def cuda_multi_tensor(software: Software) -> Iterator[None]:
    """`foreach` is the default on fake tensors where it is on CUDA; else it is not, as on CPU."""
    if not foreach_by_default(software):
        yield
        return
    asks = "_get_foreach_kernels_supported_devices"
    modules = [importlib.import_module(name) for name in MODULES]
    devices = [*getattr(modules[-1], asks)(), "cpu"]
    with ExitStack() as stack:
        for module in modules:
            if hasattr(module, asks):
                stack.enter_context(attribute(module, asks, lambda: list(devices)))
            types = getattr(module, "_foreach_supported_types", None)
            if types is not None:
                stack.enter_context(
                    attribute(module, "_foreach_supported_types", [*types, FakeTensor])
                )
        yield
