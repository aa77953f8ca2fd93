"""What a renderer is given, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass

from bsprof.frameworks.expressed import Expressed
from bsprof.records import Epoch, Precision, WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """All that settings are made of.

    Attributes:
        run: The pieces that the settings run.
        workload: Precision and clipping are taken from it.
        epoch: Updates of an epoch; None where the size of the data set is not known.
        head: Comment lines without their sign: the plan, its digest, what is verified.
        says: Sentences on what the framework cannot express of this plan.
    """

    run: Expressed
    workload: WorkloadSpec
    epoch: Epoch | None
    head: tuple[str, ...]
    says: tuple[str, ...]

    @property
    def autocast(self) -> str:
        """`bf16` or `fp16` where the workload runs under autocast; empty elsewhere."""
        kinds = {Precision.AMP_BF16: "bf16", Precision.AMP_FP16: "fp16"}
        return kinds.get(self.workload.precision, "")

    @property
    def clip_norm(self) -> float:
        """Largest norm of the whole gradient; 0 for none, as the frameworks write it."""
        return self.workload.clip_norm or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of a framework.

    Attributes:
        framework: Its name on the command line.
        text: The file: a program, or a configuration. Comments say what the framework does.
        suffix: How such a file is called, as `.py`.
        effective_batch_size: Samples per update that these settings train with.
        is_exact: Whether that is the target, with the plan's own gradient.
        micro_batch_size: Samples of the largest piece.
        accumulation_steps: Micro-steps per update.
        digest: Of the plan that they were made from.
    """

    framework: str
    text: str
    suffix: str
    effective_batch_size: int
    is_exact: bool
    micro_batch_size: int
    accumulation_steps: int
    digest: str


def commented(lines: tuple[str, ...], sign: str = "# ", width: int = 98) -> str:
    """Sentences as comment lines, each broken at `width` characters."""
    import textwrap

    found = []
    for line in lines:
        found += textwrap.wrap(
            line,
            width,
            initial_indent=sign,
            subsequent_indent=sign + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(found) + "\n"
