"""A user's file whose workloads misbehave from micro-batch size LIMIT on, each in its own way."""

import os
import signal
import subprocess
import sys
import time

import torch
from torch import nn

from bsprof import Workload
from bsprof.measure import wire

LIMIT = 3


def _workload(fault, **more):
    def loss(model, batch):
        if batch.shape[0] >= LIMIT:
            fault()
        return model(batch).square().mean()

    return Workload(
        model=lambda: nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)),
        batch=lambda size, device: torch.randn(size, 16, device=device),
        loss=loss,
        **more,
    )


def healthy():
    return _workload(lambda: None)


def raises():
    def fault():
        raise ValueError("a bug in the user's loss")

    return _workload(fault)


def raises_always():
    def loss(model, batch):
        raise ValueError("a bug in the user's loss")

    workload = _workload(lambda: None)
    return Workload(model=workload.model, batch=workload.batch, loss=loss)


def exits():
    return _workload(lambda: os._exit(7))


def segfaults():
    return _workload(lambda: os.kill(os.getpid(), signal.SIGSEGV))


def is_killed():
    return _workload(lambda: os.kill(os.getpid(), signal.SIGKILL))


def hangs():
    return _workload(lambda: time.sleep(3600))


def prints():
    def fault():
        print("noise on stdout " * 1000, flush=True)
        print('{"v": 1, "type": "reply"}', flush=True)
        os.write(2, b"noise on stderr\n" * 1000)

    return _workload(fault)


def leaves_a_grandchild():
    """The grandchild outlives the worker, holds its stdout, and would live for an hour."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    with open(os.environ["GRANDCHILD_FILE"], "w") as file:
        file.write(str(child.pid))
    return _workload(lambda: os._exit(9))


def out_of_memory_forward():
    return _workload(lambda: torch.empty(2**46, dtype=torch.uint8))


class _BigBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if gradient.shape[0] >= LIMIT:
            torch.empty(2**46, dtype=torch.uint8)
        return gradient


def out_of_memory_backward():
    workload = _workload(lambda: None)
    return Workload(
        model=workload.model,
        batch=workload.batch,
        loss=lambda model, batch: _BigBackward.apply(model(batch)).square().mean(),
    )


class _BigStep(torch.optim.SGD):
    """Runs out of memory in its third step: after the first point, in the optimizer."""

    steps = 0

    def step(self, closure=None):
        _BigStep.steps += 1
        if _BigStep.steps >= 3:
            torch.empty(2**46, dtype=torch.uint8)
        return super().step(closure)


def out_of_memory_step():
    return _workload(lambda: None, optimizer=lambda params: _BigStep(params, lr=0.1))


def wrong_size():
    workload = _workload(lambda: None)
    return Workload(
        model=workload.model,
        batch=lambda size, device: torch.randn(size + 1, 16, device=device),
        loss=workload.loss,
    )


def looks_like_memory():
    """A message of a library that is often, not always, about memory; here it always comes."""

    def loss(model, batch):
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`")

    workload = _workload(lambda: None)
    return Workload(model=workload.model, batch=workload.batch, loss=loss)


def looks_like_memory_when_large():
    def fault():
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`")

    return _workload(fault)


def hungry():
    """About 32 MiB a sample, so that a limit of 1 GiB is reached soon."""
    return Workload(
        model=lambda: nn.Linear(1, 1),
        batch=lambda size, device: torch.randn(size, 1024, 1024, 1, device=device),
        loss=lambda model, batch: torch.tanh(torch.sigmoid(model(batch))).mean(),
    )


def small_data():
    return _workload(lambda: None, dataset_size=3)


def dies_after_its_result():
    """Delivers every measurement, and is gone before it can be asked for anything else."""
    send = wire.write_all

    def send_and_die(descriptor, data):
        send(descriptor, data)
        if b'"raw"' in data:
            os._exit(5)

    wire.write_all = send_and_die
    return _workload(lambda: None)


def _fails_when_first(fault):
    """From LIMIT on runs only in a process in which a smaller size ran before; as quick at all."""
    ran = []

    def loss(model, batch):
        if batch.shape[0] >= LIMIT and not ran:
            fault()
        if batch.shape[0] < LIMIT:
            ran.append(True)
        time.sleep(0.005)
        return model(batch).square().mean()

    workload = _workload(lambda: None)
    return Workload(model=workload.model, batch=workload.batch, loss=loss)


def does_not_fit_a_fresh_process():
    return _fails_when_first(lambda: torch.empty(2**46, dtype=torch.uint8))


def raises_in_a_fresh_process():
    def fault():
        raise ValueError("nothing was prepared")

    return _fails_when_first(fault)
