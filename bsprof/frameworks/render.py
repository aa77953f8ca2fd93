"""From an answer to the settings of a framework by its name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from bsprof import __version__
from bsprof.errors import UsageError
from bsprof.frameworks import code, command_lines, documents
from bsprof.frameworks.expressed import as_planned, in_equal_pieces
from bsprof.frameworks.settings import Job, Settings
from bsprof.frameworks.verified import VERIFIED
from bsprof.records import Mode, Profile, Recommendation
from bsprof.records.plan_digest import plan_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Framework:
    """One framework.

    Attributes:
        title: What sentences call it.
        suffix: Of its file.
        render: The text of a job.
        any_pieces: Whether it runs unequal pieces with their weights.
    """

    title: str
    suffix: str
    render: Callable[[Job], str]
    any_pieces: bool = False


_FRAMEWORKS = {
    "pytorch": _Framework(title="PyTorch", suffix=".py", render=code.pytorch, any_pieces=True),
    "lightning": _Framework(title="Lightning", suffix=".py", render=code.lightning),
    "accelerate": _Framework(title="Accelerate", suffix=".py", render=code.accelerate),
    "hf": _Framework(title="Transformers' Trainer", suffix=".py", render=code.hf),
    "deepspeed": _Framework(title="DeepSpeed", suffix=".json", render=documents.deepspeed),
    "composer": _Framework(title="Composer", suffix=".py", render=code.composer, any_pieces=True),
    "axolotl": _Framework(title="axolotl", suffix=".yaml", render=documents.axolotl),
    "torchtitan": _Framework(title="torchtitan", suffix=".txt", render=command_lines.torchtitan),
    "megatron": _Framework(title="Megatron-LM", suffix=".txt", render=command_lines.megatron),
}


def framework_names() -> tuple[str, ...]:
    """Names for `--for`."""
    return tuple(_FRAMEWORKS)


def settings_for(
    recommendation: Recommendation,
    profile: Profile,
    framework: str,
) -> Settings:
    """The settings that run an answer in a framework.

    Args:
        recommendation: What to run.
        profile: What it was read from: precision, clipping, safe sizes.
        framework: One of `framework_names`.

    Raises:
        UsageError: an unknown framework, or a plan of inference.
    """
    if framework not in _FRAMEWORKS:
        near = difflib.get_close_matches(framework, _FRAMEWORKS, n=2)
        raise UsageError(
            f"no settings are known for {framework!r}",
            next_step=f"did you mean {' or '.join(near)}?"
            if near
            else f"use one of {', '.join(_FRAMEWORKS)}",
        )
    if profile.workload.mode is Mode.INFER:
        raise UsageError(
            "settings of a trainer mean nothing for inference",
            found="a profile of --mode infer",
            next_step="leave --for out, or name a profile of training",
        )
    kind = _FRAMEWORKS[framework]
    plan = recommendation.plan
    if kind.any_pieces:
        run = as_planned(plan)
    else:
        run = in_equal_pieces(recommendation, profile, kind.title)
    digest = plan_digest(plan.pieces)
    named = f", profile {recommendation.profile}" if recommendation.profile else ""
    head = (
        f"Written by bsprof {__version__} for {kind.title}. Plan {digest}{named}.",
        (
            f"{run.effective_batch_size:,} samples per update: world size {run.world_size:,}, "
            f"micro-batch {run.micro_batch_size:,}, {run.accumulation_steps:,} micro-steps "
            f"per rank."
        ),
        VERIFIED[framework].sentence,
    )
    job = Job(
        run=run, workload=profile.workload, epoch=recommendation.epoch, head=head, says=run.says
    )
    return Settings(
        framework=framework,
        text=kind.render(job).replace("@DIGEST@", digest),
        suffix=kind.suffix,
        effective_batch_size=run.effective_batch_size,
        is_exact=run.is_exact,
        micro_batch_size=run.micro_batch_size,
        accumulation_steps=run.accumulation_steps,
        digest=digest,
    )
