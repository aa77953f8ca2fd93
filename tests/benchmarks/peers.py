"""One search by one tool, in this process; prints its answer as JSON on the last line.

    python peers.py TOOL WORKLOAD LIMIT_GIB

Tools: `lightning-power`, `lightning-binsearch`, `accelerate`, `exhaustive`, `steady:SIZE`.
"""

import json
import os
import resource
import statistics
import sys
import time

import reference
import torch
from torch.utils._pytree import tree_map

STEPS = 3  # a trial's training steps: the peers' own default
DATA = 1024  # samples in the peers' data set
STEADY_S = 4.0  # seconds of training in one comparison


def training(workload):
    model = workload.model().train()
    return model, torch.optim.AdamW(model.parameters())


def step(workload, model, optimizer, batch):
    loss = workload.loss(model, batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def accelerate(workload):
    from accelerate.utils import find_executable_batch_size

    @find_executable_batch_size(starting_batch_size=128)
    def train(batch_size):
        model, optimizer = training(workload)
        for _ in range(STEPS):
            step(workload, model, optimizer, workload.batch(batch_size, torch.device("cpu")))
        return batch_size

    return train()


def lightning(workload, mode):
    import logging
    import warnings

    import lightning
    from lightning.pytorch.tuner import Tuner

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    data = workload.batch(DATA, torch.device("cpu"))

    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return DATA

        def __getitem__(self, index):
            return tree_map(lambda t: t[index], data)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = workload.model()
            self.batch_size = 2

        def training_step(self, batch, _index):
            batch = tuple(batch) if isinstance(batch, list) else batch
            return workload.loss(self.model, batch)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

        def train_dataloader(self):
            return torch.utils.data.DataLoader(Samples(), batch_size=self.batch_size)

    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    return Tuner(trainer).scale_batch_size(
        Module(), mode=mode, steps_per_trial=STEPS, init_val=2, max_trials=25
    )


def micro_step(workload, model, batch):
    started = time.perf_counter()
    workload.loss(model, batch).backward()
    return time.perf_counter() - started


def exhaustive(workload):
    """Median micro-step seconds by size, until memory is short: 1 to 16, then every fourth."""
    model, optimizer = training(workload)
    found = {}
    first = (
        2
        if any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in model.modules())
        else 1
    )
    size = first
    slower = 0
    while True:
        try:
            batch = workload.batch(size, torch.device("cpu"))
            seconds = []
            for _ in range(4):
                seconds.append(micro_step(workload, model, batch))
                seconds.append(micro_step(workload, model, batch))
                optimizer.step()
                optimizer.zero_grad()
            found[size] = statistics.median(seconds[1:])
        except (RuntimeError, MemoryError):
            break
        # Past twice the best cost per sample for many sizes running nothing better can come.
        best = min(s / b for b, s in found.items())
        slower = slower + 1 if found[size] / size > 1.15 * best else 0
        if size >= int(os.environ.get("BENCH_TOP", "4096")) or slower >= 40:
            break
        size += 1 if size < 16 else 4
    return found


def steady(workload, size):
    """Seconds of a micro-step and of an optimizer step, as a training run at one size sees them.

    In a process of its own: another size's heap would make this one faster or slower.
    """
    model, optimizer = training(workload)
    seconds, steps = [], []
    ends = None
    while ends is None or time.perf_counter() < ends or len(steps) < 3:
        batch = workload.batch(size, torch.device("cpu"))
        seconds.append(micro_step(workload, model, batch))
        if len(seconds) % 4 == 0:
            started = time.perf_counter()
            optimizer.step()
            steps.append(time.perf_counter() - started)
            optimizer.zero_grad()
        if ends is None and len(seconds) == 4:
            seconds, steps, ends = [], [], time.perf_counter() + STEADY_S
    return {"micro_step": statistics.median(seconds), "optimizer_step": statistics.median(steps)}


def main(tool, name, limit_gib):
    torch.set_num_threads(2)
    limit = int(float(limit_gib) * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    workload = getattr(reference, name)()
    if tool.startswith("lightning-"):
        answer = lightning(workload, tool.removeprefix("lightning-"))
    elif tool == "accelerate":
        answer = accelerate(workload)
    elif tool == "exhaustive":
        answer = exhaustive(workload)
    else:
        answer = steady(workload, int(tool.partition(":")[2]))
    print(json.dumps({"answer": answer}))


if __name__ == "__main__":
    main(*sys.argv[1:])
