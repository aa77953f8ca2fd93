"""A user's file with data loaders that misbehave, each in its own way."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Data(Dataset):
    """`fault` is called for every sample from number 40 on."""

    def __init__(self, fault=lambda: None, samples=4096):
        self._fault, self._samples = fault, samples

    def __len__(self):
        return self._samples

    def __getitem__(self, index):
        if index >= 40:
            self._fault()
        return torch.randn(16), index


def _loader(fault=lambda: None, **options):
    return DataLoader(Data(fault), batch_size=8, **options)


def _in_a_process(fault):
    def only_there():
        if get_worker_info() is not None:
            fault()

    return only_there


def healthy():
    return _loader()


def short():
    return DataLoader(Data(samples=24), batch_size=8)


def _fine():
    pass


def spawned():
    """Its processes are started anew, and import this file for themselves."""
    return _loader(_fine, num_workers=1, multiprocessing_context="spawn")


def noisy():
    def fault():
        sys.stdout.write("noise " * 1000)
        sys.stdout.flush()
        os.write(1, b'{"v": 1, "type": "reply"}\n')
        time.sleep(0.001)

    return _loader(fault)


def raises():
    def fault():
        raise ValueError("a bad sample")

    return _loader(fault)


def raises_in_a_process():
    def fault():
        raise ValueError("a bad sample")

    return _loader(_in_a_process(fault))


def yields_nothing():
    return DataLoader(Data(samples=5), batch_size=8, drop_last=True)


def out_of_shared_memory():
    """As the kernel ends a process that writes beyond a full /dev/shm."""
    return _loader(_in_a_process(lambda: os.kill(os.getpid(), signal.SIGBUS)))


def is_killed():
    return _loader(_in_a_process(lambda: os.kill(os.getpid(), signal.SIGKILL)))


def hangs():
    return _loader(lambda: time.sleep(3600))


def ends_the_worker():
    return _loader(lambda: os._exit(4))


def leaves_a_grandchild():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    Path(os.environ["GRANDCHILD_FILE"]).write_text(str(child.pid))
    return _loader(_in_a_process(lambda: time.sleep(3600)))
