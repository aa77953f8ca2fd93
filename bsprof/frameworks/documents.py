"""Settings that are a document: DeepSpeed's JSON, axolotl's YAML."""

from __future__ import annotations

import json

from bsprof.frameworks.settings import Job, commented


def deepspeed(job: Job) -> str:
    """DeepSpeed's configuration; JSON has no comments, so they are under a key it ignores."""
    run = job.run
    says = (
        *job.says,
        (
            "DeepSpeed divides the loss of each piece by gradient_accumulation_steps and averages "
            "over ranks: the mean of the means of pieces, exact because they are equal."
        ),
        (
            "It refuses to start unless train_batch_size is micro-batch times accumulation times "
            "world size."
        ),
        (
            "It counts micro-steps on from one epoch to the next: pieces that fill no window "
            "at the "
            "end of an epoch go into the next one's first update. Its scheduler counts optimizer "
            "steps."
        ),
        "gradient_clipping is 1.0 unless set (0.19.8), and 0 clips nothing.",
        (
            "bf16 and fp16 of DeepSpeed store parameters in 16 bit with a master copy in fp32: not "
            "what autocast does, so they are left to you."
        ),
    )
    document: dict[str, object] = {
        "bsprof": {"plan": "@DIGEST@", "says": [*job.head, *says]},
        "train_batch_size": run.effective_batch_size,
        "train_micro_batch_size_per_gpu": run.micro_batch_size,
        "gradient_accumulation_steps": run.accumulation_steps,
        "gradient_clipping": job.clip_norm,
    }
    return json.dumps(document, indent=2) + "\n"


def axolotl(job: Job) -> str:
    """Keys of axolotl's file."""
    run = job.run
    says = (
        *job.says,
        (
            "axolotl trains with micro_batch_size times gradient_accumulation_steps times "
            "the number "
            "of processes. It refuses batch_size beside them; given alone with micro_batch_size, "
            "batch_size is rounded down to whole pieces and multiplied by the processes."
        ),
        (
            "It is Transformers' Trainer: averaged over the tokens of all pieces where the "
            "model takes "
            "num_items_in_batch; the last window of an epoch is a smaller update."
        ),
        (
            "With sample_packing a sample is a packed row of sequence_len tokens, so an update has "
            "more of the data's own samples: make the plan with --target-tokens."
        ),
        f"Start {run.world_size} processes. max_steps and warmup_steps count optimizer steps.",
    )
    lines = [
        f"micro_batch_size: {run.micro_batch_size}",
        f"gradient_accumulation_steps: {run.accumulation_steps}",
        f"max_grad_norm: {job.clip_norm:.17g}",
    ]
    if job.autocast:
        lines.append(f"{job.autocast}: true")
    return commented((*job.head, *says)) + "\n".join(lines) + "\n"
