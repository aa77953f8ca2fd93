"""Which models of a source may fit coefficients, and which are scored: halves by name alone."""

from __future__ import annotations

from bsprof.validate.scores import half_of


def fits(model: str) -> bool:
    """Whether a model is one of those that coefficients may be fitted on.

    Args:
        model: Its architecture: names that stand for one network must be one.
    """
    return half_of(model) == 0
