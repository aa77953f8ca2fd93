"""The tables of a profile that follow the table of its points; pure Python, no layout."""

from __future__ import annotations

from bsprof.records import Origin, Profile
from bsprof.report.loading import loader_tables
from bsprof.report.predicted import (
    changes_table,
    drawn_point,
    module_table,
    stage_table,
    terms_table,
)
from bsprof.report.stack import stack_table
from bsprof.report.tables import Table
from bsprof.report.time_classes import class_table, heaviest_table


def further_tables(
    profile: Profile, chosen: int | None, *, drawn: bool = False
) -> tuple[Table, ...]:
    """The measured loader; of a prediction what time and peak are made of, and from where.

    Args:
        profile: Whose tables.
        chosen: The recommended size, whose peak step is shown; None shows the largest that fits.
        drawn: Whether figures show the layers by size, and the modules, already.
    """
    tables = loader_tables(profile)
    if profile.origin is not Origin.PREDICTED:
        return tables
    point = drawn_point(profile, chosen)
    found = (
        class_table(profile, chosen),
        heaviest_table(profile, chosen),
        None if drawn else stack_table(profile, chosen),
        changes_table(profile),
        None if point is None else stage_table(point),
        None if drawn or point is None else module_table(point),
        terms_table(profile, point),
    )
    return (*tables, *(table for table in found if table is not None))
