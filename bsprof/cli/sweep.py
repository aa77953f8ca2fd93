"""`bsprof sweep`: measure a model on this machine, or predict it for another device."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from bsprof.cli.options import Color, Debug, Force, Json, Quiet, Verbose, terminal_of
from bsprof.errors import UsageError

EXAMPLE = "bsprof sweep --model gpt-tiny --seq-len 128 --memory-limit 3GiB"


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
        list[str] | None,
        typer.Option(
            metavar="auto|cpu|cuda[:N]|mps|xpu|NAME",
            envvar="BSPROF_DEVICE",
            help="Where to run it; or a NAME of `bsprof devices` to predict for, which may be "
            "repeated.",
            show_default="auto",
        ),
    ] = None,
    predict: Annotated[
        bool,
        typer.Option(
            "--predict", help="Predict for this machine's accelerator, run nothing on it."
        ),
    ] = False,
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
    software: Annotated[
        str | None,
        typer.Option(
            metavar="torch=2.13,cudnn=9,cuda=12.8",
            help="Software whose rules apply to a prediction.",
            show_default="what is installed",
        ),
    ] = None,
    world_size: Annotated[
        int, typer.Option(metavar="W", min=1, help="Data-parallel ranks to predict for.")
    ] = 1,
    parallel: Annotated[
        str | None,
        typer.Option(
            metavar="none|ddp|fsdp|zero1|zero2|zero3",
            help="How the ranks share the work of a prediction.",
            show_default="none, with several ranks ddp",
        ),
    ] = None,
    allocator_conf: Annotated[
        str | None,
        typer.Option(
            metavar="CONF",
            help="Setting of the allocator to predict for, as in PYTORCH_CUDA_ALLOC_CONF.",
        ),
    ] = None,
    other_memory: Annotated[
        str | None,
        typer.Option(
            metavar="1GiB",
            help="What a desktop or others use of the device to predict for.",
            show_default="nothing",
        ),
    ] = None,
    from_profile: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PROFILE",
            help="A measured profile of this model, even of one size, that corrects a prediction.",
        ),
    ] = None,
    link_bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="24GB/s",
            help="Bus bandwidth between the ranks of a prediction, as nccl-tests measure it.",
            show_default="what others reached with the device's link",
        ),
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
    """Measure a model's training step, or predict it.

    Time, memory and FLOPs on this machine, saved after every size; see also `bsprof recommend`.
    With the name of a device that need not be here: which sizes fit there, and how fast they are.
    """
    terminal = terminal_of(ctx, quiet=quiet, verbose=verbose, debug=debug, color=color)
    from bsprof.cli import measuring, parse, predicting
    from bsprof.cli.exclusions import (
        giving_way,
        refuse_contradictions,
        refuse_training_options,
    )
    from bsprof.records import Mode, Precision, SweepPlan, WorkloadSpec
    from bsprof.units import parse_bytes, parse_rate, parse_seconds, parse_share
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
    resume, force = resume and "resume" not in lost, force and "force" not in lost
    wanted = predicting.wanted(device or ["auto"], predict=predict)
    if wanted.is_prediction:
        predicting.refuse_measuring_options(ctx)
        predicting.run(
            terminal,
            wanted,
            spec,
            plan,
            predicting.Setting(
                software=parse.software(software) if software else None,
                world_size=world_size,
                parallel=parallel,
                allocator_conf=allocator_conf,
                other_bytes=parse_bytes(other_memory) if other_memory else 0,
                from_profile=from_profile,
                bus_bytes_per_s=parse_rate(link_bandwidth) if link_bandwidth else None,
            ),
            output=output,
            force=force,
            as_json=as_json,
        )
        return
    predicting.refuse_predicting_options(ctx)
    if loader is not None:
        parse_loader(loader)
    measuring.run(
        terminal,
        spec,
        wanted.here,
        plan,
        output=output,
        resume=resume,
        force=force,
        as_json=as_json,
    )
