"""Which parameters are trained: `--freeze`, by patterns over their names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from bsprof.errors import UsageError
from bsprof.records import Note


def freeze(model: nn.Module, patterns: Sequence[str]) -> tuple[Note, ...]:
    """Stop training the parameters whose qualified names match one of the patterns.

    A tied parameter has several names; any of them freezes it.

    Args:
        model: Changed in place.
        patterns: As `fnmatch` reads them: `*` is anything, dots too.

    Returns:
        A note where a tied parameter was frozen that another name calls too.

    Raises:
        UsageError: a pattern matches no name, or only what is frozen already; or nothing is
            left to train.
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    trained = {name for name, parameter in named.items() if parameter.requires_grad}
    frozen: set[str] = set()
    for pattern in patterns:
        hits = {name for name in named if fnmatchcase(name, pattern)}
        if not hits:
            raise _no_match(pattern, list(named))
        if not hits & trained:
            raise UsageError(
                f"--freeze {pattern} has no effect",
                found="it matches only parameters that are not trained anyway",
                next_step="leave it out",
            )
        frozen |= hits
    for name in frozen:
        named[name].requires_grad_(False)
    if not any(parameter.requires_grad for parameter in named.values()):
        raise UsageError(
            f"--freeze {' --freeze '.join(patterns)} leaves nothing to train",
            next_step="leave some parameters out, or measure with --mode infer",
        )
    also = sorted(name for name in trained - frozen if not named[name].requires_grad)
    if not also:
        return ()
    return (
        Note(
            code="freeze-tied",
            message=f"--freeze also freezes {', '.join(also)}: tied to a parameter that it names",
        ),
    )


def _no_match(pattern: str, names: list[str]) -> UsageError:
    """The error for a pattern that matches nothing: the part of the model that it may mean."""
    below = any(name.startswith(f"{pattern}.") for name in names)
    near = [f"{pattern}.*"] if below else difflib.get_close_matches(pattern, names, cutoff=0.5)
    return UsageError(
        f"--freeze {pattern} matches no parameter",
        found=f"near: {', '.join(near)}" if near else f"parameters: {', '.join(names[:6])}, ...",
        next_step="write a pattern over the names of parameters, like 'blocks.0.*'",
    )
