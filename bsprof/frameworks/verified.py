"""How far each framework's settings are verified: one table for comments, tests and the README."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What stands behind one framework's settings.

    Attributes:
        how: What the tests do with the emitted settings; a phrase.
        by: The version they ran with; empty for none.
        not_verified: What no test covers.
    """

    how: str
    by: str = ""
    not_verified: str = ""

    @property
    def sentence(self) -> str:
        """The same as a comment."""
        first = f"Verified: {self.how}" + (f" ({self.by})" if self.by else "")
        return first + (f". Not verified: {self.not_verified}." if self.not_verified else ".")


VERIFIED = {
    "pytorch": Verified(
        how="run by bsprof.accumulate in the tests: gradient of the whole batch to 1e-12, any "
        "pieces",
        by="torch 2.13",
    ),
    "lightning": Verified(
        how="run by Trainer.fit in one process: effective batch, updates, gradient to 1e-12",
        by="lightning 2.6.6",
        not_verified="several ranks",
    ),
    "accelerate": Verified(
        how="run in an Accelerator loop in one process: effective batch, updates, gradient to "
        "1e-12",
        by="accelerate 1.15.0",
        not_verified="several ranks",
    ),
    "hf": Verified(
        how="run by Trainer.train in one process: effective batch, updates, gradient to 1e-12",
        by="transformers 5.24.0",
        not_verified="several ranks",
    ),
    "deepspeed": Verified(
        how="read by DeepSpeedConfig for every world size of the tests, and run by "
        "deepspeed.initialize on one process: updates, gradient to 1e-6 (it refuses float64)",
        by="deepspeed 0.19.8 on a CPU",
        not_verified="several ranks, ZeRO",
    ),
    "composer": Verified(
        how="keys held against the signature of composer.Trainer",
        by="mosaicml 0.32.1",
        not_verified="training itself; its weights by piece and rank are read from its source",
    ),
    "axolotl": Verified(
        how="validated by its own schema, AxolotlInputConfig",
        by="axolotl 0.19.0",
        not_verified="training itself, which is Transformers' Trainer",
    ),
    "torchtitan": Verified(
        how="keys held against its TrainingConfig, and its division rule",
        by="torchtitan 0.3.0",
        not_verified="training itself",
    ),
    "megatron": Verified(
        how="sizes accepted by num_microbatches_calculator, with the same number of micro-batches",
        by="megatron-core 0.16.1",
        not_verified="the names of the flags, whose parser is not in the package; training itself",
    ),
}
"""By name on the command line, in the order that help shows."""


def verification_table() -> str:
    """The table as Markdown."""
    rows = [
        f"| `{name}` | {entry.how} | {entry.by or 'nothing'} | {entry.not_verified or '-'} |"
        for name, entry in VERIFIED.items()
    ]
    return "\n".join(
        [
            "| `--for` | what is verified, and how | with | not verified |",
            "|---|---|---|---|",
            *rows,
        ]
    )
