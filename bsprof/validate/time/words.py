"""How scores are written in tables."""

from __future__ import annotations

from bsprof.validate.scores import Errors

ERROR_COLUMNS = ("rows", "median", "90th", "signed", "covered", "width", "too fast")


def error_cells(errors: Errors) -> tuple[str, ...]:
    """The cells of `ERROR_COLUMNS`."""
    return (
        str(errors.count),
        percent(errors.median),
        percent(errors.ninetieth),
        signed(errors.signed),
        percent(errors.covered),
        percent(errors.width),
        percent(errors.too_low),
    )


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.1f} %"


def signed(share: float) -> str:
    """A share in percent with its sign."""
    return f"{100 * share:+.1f} %"
