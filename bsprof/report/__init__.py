"""Reports: what a profile and a recommendation say, as data, pages, pictures and tables.

Nothing here prints or opens an output file: exporters return bytes, summaries return data.
`summary` and `tables` are pure Python and light; matplotlib, numpy and scipy are loaded only when
`build_report` fits curves or `render` draws them. A module is loaded when its name is first used,
because `bsprof recommend` needs the summary alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bsprof.report.build import build_report
    from bsprof.report.data import ProfileView, ReportData, SampledCurve
    from bsprof.report.export import FORMATS, ReportFormat, render
    from bsprof.report.summary import Summary, profile_summary, recommendation_summary
    from bsprof.report.tables import Column, Emphasis, Row, Table

_HOMES = {
    "FORMATS": "export",
    "Column": "tables",
    "Emphasis": "tables",
    "ProfileView": "data",
    "ReportData": "data",
    "ReportFormat": "export",
    "Row": "tables",
    "SampledCurve": "data",
    "Summary": "summary",
    "Table": "tables",
    "build_report": "build",
    "profile_summary": "summary",
    "recommendation_summary": "summary",
    "render": "export",
}

__all__ = [
    "FORMATS",
    "Column",
    "Emphasis",
    "ProfileView",
    "ReportData",
    "ReportFormat",
    "Row",
    "SampledCurve",
    "Summary",
    "Table",
    "build_report",
    "profile_summary",
    "recommendation_summary",
    "render",
]


def __getattr__(name: str) -> object:
    """Load a name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bsprof.report' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"bsprof.report.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
