"""Models of timm: what their names mean today, which ones are other networks now, and families."""

from __future__ import annotations

import re

OTHER_NETWORKS = {
    "ecaresnext50t_32x4d": "4.44 GMAC today, 2.7 as published",
}
"""Names that stand for another network in today's timm than when they were measured."""

NO_LONGER = "today's timm has no such model"

_LETTERS = re.compile(r"[a-z]+")


def family_of(model: str) -> str:
    """The first word of a model's name without digits: `resnet`, `vit`, `efficientnet`."""
    found = _LETTERS.match(model.lower())
    return found[0] if found else model


def other_network(model: str) -> str | None:
    """Why a name is not compared; None where it is."""
    reason = OTHER_NETWORKS.get(model)
    return None if reason is None else f"another network today: {reason}"
