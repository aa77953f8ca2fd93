"""Updates of an epoch, and what becomes of the samples that fill no whole update.

The last window of an epoch is the partial one: fewer samples than an update takes. Trainers drop
it, divide it by the full count, or let it run into the next epoch, most of them without a word.
All lengths of schedules are in optimizer steps: micro-steps are never counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bsprof.errors import UsageError
from bsprof.recommend.pieces import exact_pieces
from bsprof.recommend.wording import plural
from bsprof.records import Epoch, Note, Profile, RankPieces
from bsprof.units import format_share


def epoch_of(
    dataset_size: int,
    pieces: tuple[RankPieces, ...],
    *,
    epochs: int = 1,
    warmup_share: float | None = None,
    allowed: Callable[[int], bool] = lambda _: True,
) -> Epoch:
    """The updates of an epoch.

    Args:
        dataset_size: Samples of an epoch, at least one.
        pieces: What the ranks run per update.
        epochs: Epochs of the schedule.
        warmup_share: Part of the schedule that warms up, 0 to 1.
        allowed: Whether a piece of that many samples may be run.

    Raises:
        UsageError: fewer than one sample or epoch, or a share above one.
    """
    if dataset_size < 1 or epochs < 1:
        raise UsageError(
            "an epoch needs at least one sample, and a schedule at least one epoch",
            found=f"{dataset_size} samples, {epochs} epochs",
        )
    if warmup_share is not None and not 0 <= warmup_share <= 1:
        raise UsageError(
            f"the warm-up must be a share of the schedule from 0 to 1, not {warmup_share}",
            next_step="write 3 % as 3%",
        )
    batch = sum(kind.ranks * kind.samples for kind in pieces)
    ranks = sum(kind.ranks for kind in pieces)
    size = max(s for kind in pieces for s in kind.sizes)
    updates, left = divmod(dataset_size, batch)
    last = exact_pieces(left, ranks, size, allowed) if left >= ranks else None
    return Epoch(
        dataset_size=dataset_size,
        effective_batch_size=batch,
        whole_updates=updates,
        left_samples=left,
        last_pieces=last or (),
        epochs=epochs,
        warmup_share=warmup_share,
    )


def dataset_size_of(profile: Profile) -> int | None:
    """Samples of the data set that a profile knows of."""
    facts = profile.facts
    return profile.plan.dataset_size or (facts.dataset_size if facts else None)


def epoch_notes(epoch: Epoch) -> Iterator[Note]:
    """What the data set means for a plan."""
    batch, left = epoch.effective_batch_size, epoch.left_samples
    if epoch.whole_updates == 0:
        yield Note(
            code="target-above-dataset",
            message=f"An update of {batch:,} samples is more than the {epoch.dataset_size:,} in "
            "the data set: samples would be repeated within one update, or never make one.",
            hint=f"use a target of at most {epoch.dataset_size}, or carry samples over epochs: "
            f"{epoch.carried_updates:,} whole updates in {epoch.epochs:,} "
            f"{'epoch' if epoch.epochs == 1 else 'epochs'}",
        )
        return
    if left:
        ranks = sum(kind.ranks for kind in epoch.last_pieces)
        run = (
            f"run them as one smaller update, each piece weighted by n / {left}"
            + (f" over {plural(ranks, 'rank')}" if ranks > 1 else "")
            if epoch.last_pieces
            else "they are too few to give every rank a piece, so they cannot be an update"
        )
        yield Note(
            code="partial-window",
            message=f"An epoch of {epoch.dataset_size:,} samples is "
            f"{plural(epoch.whole_updates, 'whole update')} and {plural(left, 'sample')} over: "
            f"drop them ({format_share(left / epoch.dataset_size)} of an epoch; with shuffling "
            f"other ones each time), carry them into the next epoch, or: {run}. Dividing them by "
            f"the {batch:,} of a whole update would shrink that gradient to "
            f"{format_share(left / batch)}.",
            hint="count learning-rate schedule and warm-up in updates, not in micro-steps",
        )
    yield Note(code="schedule-length", message=schedule_sentence(epoch))


def schedule_sentence(epoch: Epoch) -> str:
    """Lengths in optimizer steps."""
    text = f"In optimizer steps: {epoch.whole_updates:,} per epoch"
    if epoch.epochs > 1:
        text += f", {epoch.schedule_updates:,} in {epoch.epochs:,} epochs"
        if epoch.carried_updates != epoch.schedule_updates:
            text += f" ({epoch.carried_updates:,} where samples are carried over)"
    if epoch.warmup_updates is not None:
        text += f", of them {epoch.warmup_updates:,} of warm-up"
    return text + "; schedules that count micro-steps end too early."
