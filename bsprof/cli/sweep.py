"""`bsprof sweep`: measure a model on this machine."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bsprof.cli.exits import Exit
from bsprof.cli.options import Color, Debug, Force, Json, Quiet, Verbose, terminal_of
from bsprof.cli.terminal import Terminal
from bsprof.errors import BsprofError, ProfileNotFound, UsageError

if TYPE_CHECKING:
    from bsprof.records import Profile, SweepPlan, WorkloadSpec

EXAMPLE = "bsprof sweep --model gpt-tiny --seq-len 128 --memory-limit 3GiB"

_POINT_COLUMNS = frozenset(
    {
        "micro_batch_size",
        "status",
        "samples_per_s",
        "micro_step_s",
        "optimizer_step_s",
        "device_used_bytes",
        "mfu",
        "regime",
        "reason",
    }
)
"""What a terminal shows of each point; `-v` shows all, as do pipes and `--json`."""


def command(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="Name (see `bsprof models`), timm:NAME, torchvision:NAME, hf:FOLDER-or-id, "
            "file.py:factory or package.module:factory.",
        ),
    ],
    device: Annotated[
        str,
        typer.Option(
            metavar="auto|cpu|cuda[:N]|mps|xpu", envvar="BSPROF_DEVICE", help="Where to run it."
        ),
    ] = "auto",
    micro_batch_sizes: Annotated[
        str | None,
        typer.Option(metavar="1,2,4", help="Measure just these sizes, not the adaptive schedule."),
    ] = None,
    max_micro_batch_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Try no size above this one.")
    ] = None,
    model_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Setting the model is built with; may be repeated."),
    ] = None,
    seq_len: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tokens per sample.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Pixels per side.")
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            metavar="fp32|fp32-strict|tf32|amp-bf16|amp-fp16|bf16|fp16",
            help="How numbers are held and multiplied; fp32 is PyTorch's default.",
        ),
    ] = "fp32",
    optimizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Optimizer of torch.optim or bitsandbytes.", show_default="adamw"
        ),
    ] = None,
    optimizer_option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Option of the optimizer; may be repeated."),
    ] = None,
    clip_norm: Annotated[
        float | None, typer.Option(metavar="X", min=0, help="Clip the gradient to this norm.")
    ] = None,
    activation_checkpointing: Annotated[
        str,
        typer.Option(metavar="none|full|N", help="Recompute all blocks, or every Nth."),
    ] = "none",
    attention: Annotated[
        str | None,
        typer.Option(
            metavar="sdpa|eager", help="How attention is run.", show_default="the model's own"
        ),
    ] = None,
    lora: Annotated[
        str | None,
        typer.Option(
            metavar="r=16,targets=q_proj+v_proj",
            help="Train low-rank adapters of these layers, in place of the weights.",
        ),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Do not train parameters of this name; may be repeated."
        ),
    ] = None,
    ema: Annotated[
        bool, typer.Option("--ema", help="Keep a moving average of the weights.")
    ] = False,
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Let code that comes with an hf: model run."),
    ] = False,
    compile_model: Annotated[
        bool, typer.Option("--compile", help="Compile with torch.compile, once per size.")
    ] = False,
    channels_last: Annotated[
        bool, typer.Option("--channels-last", help="Hold images channels last.")
    ] = False,
    cudnn_benchmark: Annotated[
        bool, typer.Option("--cudnn-benchmark", help="Let cuDNN pick algorithms by trying them.")
    ] = False,
    mode: Annotated[
        str,
        typer.Option(
            metavar="train|infer", help="Whole updates, or evaluation forward passes only."
        ),
    ] = "train",
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seeds weights and data.")] = 0,
    memory_limit: Annotated[
        str | None,
        typer.Option(metavar="20GiB", help="Use no more memory.", show_default="what is free"),
    ] = None,
    time_budget: Annotated[
        str | None, typer.Option(metavar="2m", help="Stop adding sizes after this time.")
    ] = None,
    relative_error: Annotated[
        str, typer.Option(metavar="2%", help="Wanted half width of a time's 90 % interval.")
    ] = "2%",
    dataset_size: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Samples in the data set; no batch is larger."),
    ] = None,
    find_max: Annotated[
        bool, typer.Option("--find-max", help="Run sizes around the largest that fits, to 5 %.")
    ] = False,
    loader: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:FN",
            help="Measure this data loader too, and say whether training would wait for it.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on with the newest partial profile of this model, or with -o FILE."
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Profile to write; - for stdout.",
            show_default="a new file in the store",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    debug: Debug = False,
    color: Color = "auto",
) -> None:
    """Measure a model's training step, size by size.

    Time, memory and FLOPs on this machine, saved after every size; see also `bsprof recommend`.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.cli import parse
    from bsprof.cli.exclusions import (
        giving_way,
        refuse_contradictions,
        refuse_training_options,
    )
    from bsprof.records import Mode, Precision, SweepPlan, WorkloadSpec
    from bsprof.units import parse_bytes, parse_seconds, parse_share
    from bsprof.workloads.blocks import parse_checkpointing
    from bsprof.workloads.loaders import parse_loader

    lost = giving_way(ctx)
    mode = "train" if "mode" in lost else mode
    optimizer = None if "optimizer" in lost else optimizer
    optimizer_option = None if "optimizer_option" in lost else optimizer_option
    clip_norm = None if "clip_norm" in lost else clip_norm
    if "activation_checkpointing" in lost:
        activation_checkpointing = "none"
    lora = None if "lora" in lost else lora
    freeze = None if "freeze" in lost else freeze
    ema = ema and "ema" not in lost
    parse_checkpointing(activation_checkpointing)
    lora_rank, lora_targets = parse.lora(lora) if lora else (None, ())
    if clip_norm is not None and not math.isfinite(clip_norm):
        raise UsageError(
            f"the gradient cannot be clipped to a norm of {clip_norm}",
            next_step="write a finite number, or leave --clip-norm out",
        )
    spec = WorkloadSpec(
        model=model,
        model_options=parse.key_values("--model-option", model_option or ()),
        seq_len=seq_len,
        image_size=image_size,
        precision=Precision(parse.one_of("precision", precision, Precision)),
        optimizer=optimizer or "adamw",
        optimizer_options=parse.key_values("--optimizer-option", optimizer_option or ()),
        clip_norm=clip_norm,
        activation_checkpointing=activation_checkpointing,
        attention=attention and parse.one_of("attention", attention, ("sdpa", "eager")),
        lora_rank=lora_rank,
        lora_targets=lora_targets,
        freeze=tuple(freeze or ()),
        ema=ema,
        trust_remote_code=trust_remote_code,
        compile=compile_model,
        channels_last=channels_last,
        cudnn_benchmark=cudnn_benchmark,
        mode=Mode(parse.one_of("mode", mode, Mode)),
        seed=seed,
    )
    if spec.mode is Mode.INFER:
        refuse_training_options(spec, optimizer)
    plan = SweepPlan(
        micro_batch_sizes=parse.sizes(micro_batch_sizes)
        if micro_batch_sizes and "micro_batch_sizes" not in lost
        else (),
        max_micro_batch_size=None if "max_micro_batch_size" in lost else max_micro_batch_size,
        memory_limit_bytes=parse_bytes(memory_limit) if memory_limit else None,
        time_budget_s=parse_seconds(time_budget) if time_budget else None,
        dataset_size=dataset_size,
        find_max=find_max and "find_max" not in lost,
        relative_error=parse_share(relative_error),
        loader=loader,
    )
    refuse_contradictions(plan)
    if loader is not None:
        parse_loader(loader)
    resume, force = resume and "resume" not in lost, force and "force" not in lost
    job = _prepare(spec, device, output, resume=resume, force=force)
    profile = _run(job, spec, device, plan, terminal)
    _answer(profile, job, terminal, as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """Where the profile goes, and what it goes on from.

    Attributes:
        store: The store's folder.
        held: Files that were in the store before.
        file: The file to write; None for a new one in the store.
        to_stdout: Whether the user wants the profile on stdout (the store keeps it as well).
        earlier: The partial profile to go on with.
    """

    store: Path
    held: Collection[Path]
    file: Path | None
    to_stdout: bool
    earlier: Profile | None


def _prepare(
    spec: WorkloadSpec, device: str, output: str | None, *, resume: bool, force: bool
) -> _Job:
    """Everything that can go wrong before a worker starts, goes wrong here."""
    from bsprof.cli.output import STDOUT, check_folder, check_output
    from bsprof.measure.devices.select import parse_device_name
    from bsprof.store import files, load, store_folder
    from bsprof.workloads.names import check_model

    check_model(spec.model)
    parse_device_name(device)
    store = store_folder()
    held = [path for _, path in files(store)]
    file = Path(output) if output not in (None, STDOUT) else None
    earlier = None
    if resume and force:
        raise UsageError(
            "--resume and --force exclude each other",
            next_step="go on with the file, or overwrite it",
        )
    if resume and file is None:
        file, earlier = _newest_partial(spec, device, store)
    elif resume and file is not None:
        earlier = load(file)
    else:
        check_output(output, force=force)
    if file is None:
        check_folder(store, f"cannot write to the store {store}")
    return _Job(store=store, held=held, file=file, to_stdout=output == STDOUT, earlier=earlier)


def _newest_partial(spec: WorkloadSpec, device: str, store: Path) -> tuple[Path, Profile]:
    """The newest partial profile of that model and device, one with the same options first."""
    from bsprof.store import listing, matches

    partial = [
        (entry.path, entry.profile)
        for entry in listing(store, reference=store / "reference")
        if entry.profile is not None
        and not entry.profile.complete
        and not entry.name.startswith("reference/")
        and matches(entry.profile, spec.model, device)
    ]
    if not partial:
        raise ProfileNotFound(
            f"nothing to resume: no partial profile of {spec.model} in the store {store}",
            next_step="leave --resume out to begin anew, or name a partial profile with -o FILE",
        )
    same = [found for found in partial if found[1].workload == spec]
    return (same or partial)[0]


def _run(
    job: _Job, spec: WorkloadSpec, device: str, plan: SweepPlan, terminal: Terminal
) -> Profile:
    from bsprof.cli.progress import progress
    from bsprof.measure.sweep import run_sweep

    try:
        with progress(terminal) as listener:
            return run_sweep(
                spec,
                device=device,
                plan=plan,
                output=job.file,
                resume=job.earlier,
                store=job.store,
                on_event=listener,
            )
    except KeyboardInterrupt:
        _tell_interruption(job, terminal)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BsprofError:
        kept = _kept(job)
        if kept is not None:
            terminal.note(f"what happened at each size is kept in {kept}")
        raise


def _kept(job: _Job) -> Path | None:
    """The file of the sweep that has just ended early; None when it saved nothing."""
    from bsprof.store import files

    if job.file is not None:
        return job.file if job.file.exists() else None
    new = [path for _, path in files(job.store) if path not in job.held]
    return new[0] if new else None


def _tell_interruption(job: _Job, terminal: Terminal) -> None:
    kept = _kept(job)
    if kept is None:
        terminal.urgent("interrupted before the first point was finished; nothing to keep")
        return
    words = [word for word in terminal.arguments if word not in ("--force", "--resume")]
    terminal.urgent(f"interrupted; finished points are kept in {kept}")
    terminal.urgent(f"go on with: bsprof {shlex.join(words)} --resume")


def _answer(profile: Profile, job: _Job, terminal: Terminal, *, as_json: bool) -> None:
    from bsprof.store import dumps, profile_path

    path = job.file or profile_path(profile, job.store)
    terminal.status(f"wrote {path}")
    if as_json or job.to_stdout:
        terminal.answer(dumps(profile))
    else:
        from bsprof.cli.show import show_summary
        from bsprof.report.summary import profile_summary

        columns = () if terminal.verbosity else _POINT_COLUMNS
        show_summary(terminal, profile_summary(str(path), profile), columns=columns)
    profile.raise_for_status()
