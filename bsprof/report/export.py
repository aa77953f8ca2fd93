"""The formats of a report and the one function that writes them as bytes."""

from __future__ import annotations

from enum import StrEnum

from bsprof.errors import UsageError
from bsprof.report.data import ReportData


class ReportFormat(StrEnum):
    """`html`: one self-contained page. `pdf`: pages of A4. `md`: Markdown. `png`: the figures.

    `csv`: the points.
    """

    HTML = "html"
    PDF = "pdf"
    MD = "md"
    PNG = "png"
    CSV = "csv"


FORMATS: tuple[str, ...] = tuple(ReportFormat)


def render(report_format: ReportFormat | str, data: ReportData) -> bytes:
    """The report in a format; the same data give the same bytes.

    Raises:
        UsageError: not one of `FORMATS`.
    """
    if report_format not in FORMATS:
        raise UsageError(
            f"there is no report format {report_format!r}", next_step="use " + ", ".join(FORMATS)
        )
    match ReportFormat(report_format):
        case ReportFormat.HTML:
            from bsprof.report.page import html_text

            return html_text(data).encode()
        case ReportFormat.PDF:
            from bsprof.report.pdf import pdf

            return pdf(data)
        case ReportFormat.MD:
            from bsprof.report.markdown import markdown_text

            return markdown_text(data).encode()
        case ReportFormat.PNG:
            from bsprof.report.pictures import png

            return png(data)
        case ReportFormat.CSV:
            from bsprof.report.delimited import csv_text

            return csv_text(data).encode()
