"""A sweep that measures: where its profile goes, interruption and resumption, the answer."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import typer

from bsprof.cli.exits import Exit
from bsprof.cli.terminal import Terminal
from bsprof.errors import BsprofError, ProfileNotFound, UsageError
from bsprof.records import Profile, SweepPlan, WorkloadSpec

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


def run(
    terminal: Terminal,
    spec: WorkloadSpec,
    device: str,
    plan: SweepPlan,
    *,
    output: str | None,
    resume: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Measure, save and answer.

    Args:
        device: Of this machine, as `bsprof.measure.devices.select` reads it.
        output: File for the profile; `-` for stdout, None for the store.
    """
    job = _prepare(spec, device, output, resume=resume, force=force)
    profile = _run(job, spec, device, plan, terminal)
    _answer(profile, job, terminal, as_json=as_json)


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
