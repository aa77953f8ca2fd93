"""Settings that are a few lines of Python: names to import, with nothing run."""

from __future__ import annotations

import math
from collections.abc import Mapping

from bsprof.frameworks.settings import Job, commented
from bsprof.records import RankPieces

_DIGEST = 'BSPROF_PLAN = "@DIGEST@"\n'


def pytorch(job: Job) -> str:
    """A plain loop, which bsprof.accumulate runs piece by piece."""
    by_rank = " + ".join(_ranks(kind) for kind in job.run.pieces)
    autocast = {
        "bf16": "under torch.autocast(device, torch.bfloat16)",
        "fp16": "under torch.autocast(device, torch.float16); give scaler=torch.amp.GradScaler()",
    }.get(job.autocast)
    says = (
        *job.says,
        (
            "Every piece of n samples counts n over all samples of all ranks, so the "
            "gradient is the "
            "whole batch's, whatever the pieces. weigh='tokens' counts tokens instead."
        ),
        "Optimizer and scheduler step once per update, after clipping once.",
        *((f"The forward pass of the loss runs {autocast}.",) if autocast else ()),
        *_epoch(job),
    )
    return (
        commented((*job.head, *says))
        + "import bsprof\n"
        + "from bsprof.accumulation.plan_file import plan_of_pieces\n\n"
        + _DIGEST
        + f"PLAN = plan_of_pieces({by_rank})\n"
        + "assert PLAN.digest == BSPROF_PLAN\n\n\n"
        + "def make_step(model, optimizer, loss, **more):\n"
        + '    """step(batch) runs an update; the batches of a rank have step.share samples."""\n'
        + "    return bsprof.accumulate(\n"
        + f"        PLAN, model, optimizer, loss=loss, clip_norm={job.workload.clip_norm!r}, "
        + "**more\n    )\n"
    )


def lightning(job: Job) -> str:
    """Arguments of lightning.Trainer and of the loader."""
    run = job.run
    trainer: dict[str, object] = {"accumulate_grad_batches": run.accumulation_steps}
    trainer["gradient_clip_val"] = job.workload.clip_norm
    if job.autocast:
        trainer["precision"] = f"{job.autocast}-mixed" if job.autocast == "bf16" else "16-mixed"
    whole: int | None = None
    if job.epoch is not None and job.epoch.whole_updates:
        whole = _updates(job) * run.accumulation_steps
        trainer["limit_train_batches"] = whole
    says = (
        *job.says,
        (
            "Lightning divides the loss of each piece by accumulate_grad_batches and averages over "
            "ranks: the mean of the means of pieces, exact because they are equal. A loss that "
            "averages over tokens weighs pieces with few tokens too much."
        ),
        "At the end of an epoch it steps on however few pieces there are, still divided by the "
        "full count"
        + (
            f": limit_train_batches={whole} ends the epoch before that."
            if whole
            else "; set limit_train_batches to a multiple of accumulate_grad_batches."
        ),
        'A scheduler with interval "step" counts optimizer steps; trainer.max_steps does too.',
        (
            "SCHEDULE is the same as a callback, for a batch that grows: add {epoch: micro-steps}. "
            "Give it or accumulate_grad_batches, not both."
        ),
        f"devices times num_nodes must be {run.world_size}.",
        *_epoch(job),
    )
    return (
        commented((*job.head, *says))
        + _DIGEST
        + _mapping("LOADER", {"batch_size": run.micro_batch_size, "drop_last": True})
        + _mapping("TRAINER", trainer)
        + f"SCHEDULE = {{0: {run.accumulation_steps}}}\n"
        + "# trainer = lightning.Trainer(**TRAINER)\n"
        + "# callbacks=[lightning.pytorch.callbacks.GradientAccumulationScheduler(SCHEDULE)]\n"
    )


def accelerate(job: Job) -> str:
    """Arguments of accelerate.Accelerator and of the loader."""
    run = job.run
    options: dict[str, object] = {"gradient_accumulation_steps": run.accumulation_steps}
    if job.autocast:
        options["mixed_precision"] = job.autocast
    says = (
        *job.says,
        (
            "accelerator.backward divides the loss of each piece by "
            "gradient_accumulation_steps, and "
            "ranks are averaged: the mean of the means of pieces, exact because they are equal."
        ),
        (
            "A window ends at the end of the loader, still divided by the full count: end "
            "the epoch "
            "after a multiple of gradient_accumulation_steps batches."
        ),
        (
            "batch_size is per process. Where the last batches do not divide by the processes, "
            "samples from the start are repeated (even_batches)."
        ),
        (
            f"A prepared scheduler steps {run.world_size} times per update, once per process: "
            f"make it "
            f"{run.world_size} times as long as the optimizer steps, or do not prepare it."
        ),
        "Clip where accelerator.sync_gradients is true: accelerator.clip_grad_norm_.",
        *_epoch(job),
    )
    return (
        commented((*job.head, *says))
        + _DIGEST
        + _mapping("LOADER", {"batch_size": run.micro_batch_size, "drop_last": True})
        + _mapping("ACCELERATOR", options)
        + f"CLIP_NORM = {job.workload.clip_norm!r}\n"
        + "# accelerator = accelerate.Accelerator(**ACCELERATOR)\n"
        + "# with accelerator.accumulate(model): accelerator.backward(loss); optimizer.step()\n"
    )


def hf(job: Job) -> str:
    """Arguments of transformers.TrainingArguments."""
    run = job.run
    options: dict[str, object] = {
        "per_device_train_batch_size": run.micro_batch_size,
        "gradient_accumulation_steps": run.accumulation_steps,
        "dataloader_drop_last": True,
        "max_grad_norm": job.clip_norm,
    }
    if job.autocast:
        options[job.autocast] = True
    if job.epoch is not None and job.epoch.whole_updates:
        options["max_steps"] = job.epoch.epochs * _updates(job)
        if job.epoch.warmup_share is not None:
            options["warmup_steps"] = _warmup(job)
    says = (
        *job.says,
        (
            "Models whose forward takes num_items_in_batch (most language models) are "
            "averaged over "
            "the tokens of all pieces, and of all ranks with average_tokens_across_devices (the "
            "default). Others get the mean of the means of pieces, exact because they are equal."
        ),
        (
            "The last window of an epoch runs with the pieces there are and is divided by their "
            "number: a smaller update. dataloader_drop_last drops a last batch, not a last window."
        ),
        (
            "max_steps and warmup_steps count optimizer steps, and max_steps ends the run. "
            "max_grad_norm is 1.0 unless set, and 0 clips nothing."
        ),
        (
            f"Start {run.world_size} processes. auto_find_batch_size must stay off: it changes the "
            "batch."
        ),
        *_epoch(job),
    )
    return (
        commented((*job.head, *says))
        + _DIGEST
        + _mapping("TRAINING_ARGUMENTS", options)
        + '# args = transformers.TrainingArguments(output_dir="...", **TRAINING_ARGUMENTS)\n'
    )


def composer(job: Job) -> str:
    """Arguments of composer.Trainer and of the loader."""
    run = job.run
    shares = [kind.samples for kind in run.pieces for _ in range(kind.ranks)]
    even = len(set(shares)) == 1
    options: dict[str, object] = {"device_train_microbatch_size": run.micro_batch_size}
    if job.autocast:
        options["precision"] = f"amp_{job.autocast}"
    says = (
        *job.says,
        (
            "Composer cuts the batch of a rank into pieces of at most device_train_microbatch_size "
            "samples, and weighs each by its samples over the mean samples of a rank: "
            "unequal pieces "
            "and ranks give the gradient of the whole batch."
        ),
        (
            "Durations in batches ('ba') are optimizer steps. The last batch of an epoch is "
            "a smaller "
            "update unless drop_last is set; nothing is carried over."
        ),
        "device_train_microbatch_size='auto' would change the pieces, not the batch."
        if even
        else "Ranks have batches of different sizes, which dist.get_sampler cannot give: use a "
        "batch sampler of your own with BATCH_SIZE_BY_RANK.",
        *(
            (f"Add algorithms=[GradientClipping('norm', {job.clip_norm:g})].",)
            if job.clip_norm
            else ()
        ),
        *_epoch(job),
    )
    loader: object = shares[0]
    text = commented((*job.head, *says)) + _DIGEST
    if even:
        text += _mapping("LOADER", {"batch_size": loader, "drop_last": True})
    else:
        text += f"BATCH_SIZE_BY_RANK = {shares!r}\n"
    return text + _mapping("TRAINER", options) + "# trainer = composer.Trainer(**TRAINER, ...)\n"


def _ranks(kind: RankPieces) -> str:
    runs = " + ".join(f"[{run.size}] * {run.count}" for run in kind.runs)
    return f"[{runs}] * {kind.ranks}"


def _updates(job: Job) -> int:
    """Whole updates of an epoch with the pieces that are run."""
    assert job.epoch is not None
    return max(1, job.epoch.dataset_size // job.run.effective_batch_size)


def _warmup(job: Job) -> int:
    assert job.epoch is not None
    return math.ceil((job.epoch.warmup_share or 0.0) * job.epoch.epochs * _updates(job))


def _epoch(job: Job) -> tuple[str, ...]:
    """Updates of an epoch, where the data set is known."""
    if job.epoch is None:
        return ()
    updates, left = divmod(job.epoch.dataset_size, job.run.effective_batch_size)
    text = (
        f"An epoch of {job.epoch.dataset_size:,} samples: {updates:,} whole updates, {left:,} "
        "samples over."
    )
    return (text,)


def _mapping(name: str, values: Mapping[str, object]) -> str:
    rows = "".join(f'    "{key}": {value!r},\n' for key, value in values.items())
    return f"{name} = {{\n{rows}}}\n"
