"""Settings that are flags of a command: torchtitan, Megatron-LM."""

from __future__ import annotations

import math

from bsprof.frameworks.settings import Job, commented


def torchtitan(job: Job) -> str:
    """Flags of torchtitan's train; the same names are keys of its configuration."""
    run = job.run
    says = (
        *job.says,
        (
            "torchtitan divides the summed loss by the tokens that count, of all pieces and ranks: "
            "the mean over tokens, whatever the padding."
        ),
        (
            "It refuses to start unless global_batch_size is a multiple of local_batch_size "
            "times the "
            "data-parallel degree; the quotient is the number of micro-steps."
        ),
        (
            "local_batch_size is per data-parallel rank. --training.steps counts optimizer steps. "
            "max_norm is 1.0 unless set, and inf clips nothing."
        ),
    )
    return commented((*job.head, *says)) + _flags(
        [
            ("--training.local_batch_size", run.micro_batch_size),
            ("--training.global_batch_size", run.effective_batch_size),
            ("--training.max_norm", f"{job.clip_norm or math.inf:.17g}"),
        ]
    )


def megatron(job: Job) -> str:
    """Flags of Megatron-LM's pretrain scripts."""
    run = job.run
    says = (
        *job.says,
        (
            "Megatron averages the losses of micro-batches and ranks, exact for equal pieces; "
            "--calculate-per-token-loss averages over tokens instead."
        ),
        (
            "It refuses to start unless global-batch-size is a multiple of micro-batch-size "
            "times the "
            "data-parallel size. --decrease-batch-size-if-needed would train with less, quietly."
        ),
        (
            "--train-iters and --lr-warmup-iters count optimizer steps. --clip-grad is 1.0 "
            "unless set, "
            "and 0 clips nothing."
        ),
    )
    return commented((*job.head, *says)) + _flags(
        [
            ("--micro-batch-size", run.micro_batch_size),
            ("--global-batch-size", run.effective_batch_size),
            ("--clip-grad", f"{job.clip_norm:.17g}"),
        ]
    )


def _flags(pairs: list[tuple[str, object]]) -> str:
    """One flag a line, then the digest, which the command does not take, as a comment."""
    return "".join(f"{name} {value}\n" for name, value in pairs) + "# bsprof plan @DIGEST@\n"
