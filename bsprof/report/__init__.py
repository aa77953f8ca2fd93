"""Reports: what a profile and a recommendation say, as data, pages, pictures and tables.

Nothing here prints or opens an output file: exporters return bytes, summaries return data.
`summary` and `tables` are pure Python and light; matplotlib, numpy and scipy are loaded only when
`build_report` fits curves or `render` draws them.
"""

from bsprof.report.build import build_report
from bsprof.report.data import Curve, ProfileView, ReportData
from bsprof.report.export import FORMATS, ReportFormat, render
from bsprof.report.summary import Summary, profile_summary, recommendation_summary
from bsprof.report.tables import Column, Emphasis, Row, Table

__all__ = [
    "FORMATS",
    "Column",
    "Curve",
    "Emphasis",
    "ProfileView",
    "ReportData",
    "ReportFormat",
    "Row",
    "Summary",
    "Table",
    "build_report",
    "profile_summary",
    "recommendation_summary",
    "render",
]
