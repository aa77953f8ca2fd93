"""Runs a validation: rows, predictions, answer. Resumable: traces are kept in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bsprof.validate.answer import Validation
from bsprof.validate.collect import Collected
from bsprof.validate.kept import KeptTraces
from bsprof.validate.outcomes import Outcome, Unpredicted
from bsprof.validate.predict import Group, grouped, predict


def validate(
    collected: Collected,
    cache: Path,
    on_group: Callable[[int, int, Group], None] = lambda _number, _count, _group: None,
) -> Validation:
    """Predict all cases; what is done when it is interrupted is the answer.

    Args:
        collected: From `collect`.
        cache: Folder of kept traces.
        on_group: Called before each group of cases, with its number from 0 and how many there are.
    """
    groups = grouped(collected.cases)
    outcomes: list[Outcome] = []
    failed: list[Unpredicted] = []
    stopped = False
    with KeptTraces(cache) as worker:
        try:
            for result in predict(groups, worker, lambda n, g: on_group(n, len(groups), g)):
                if isinstance(result, Outcome):
                    outcomes.append(result)
                else:
                    failed.append(result)
        except KeyboardInterrupt:
            stopped = True
    return Validation(
        collected=collected, outcomes=tuple(outcomes), failed=tuple(failed), stopped=stopped
    )
