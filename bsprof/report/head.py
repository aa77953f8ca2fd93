"""What stands at the top of a report, on a page or on paper; pure Python."""

from __future__ import annotations

from bsprof.report.data import ReportData
from bsprof.report.words import device_text, origin_text, provenance_text, workload_text
from bsprof.units import format_bytes


def about_texts(data: ReportData) -> list[str]:
    """What a report is about: what was run where, or the labels of several profiles."""
    if len(data.views) > 1:
        return [view.label for view in data.views]
    [profile] = (view.profile for view in data.views)
    return [
        origin_text(profile),
        workload_text(profile.workload),
        device_text(profile.device),
        f"{format_bytes(profile.device.usable_bytes)} usable",
        f"torch {profile.environment.torch}",
        profile.created_at,
    ]


def provenance_lines(data: ReportData) -> list[str]:
    """A sentence for every predicted profile, labelled where there are several."""
    lines = []
    for view in data.views:
        if text := provenance_text(view.profile):
            label = f"{view.label}: " if len(data.views) > 1 else ""
            lines.append(f"{label}{text}." if label else f"{text[0].upper()}{text[1:]}.")
    return lines
