"""Models of timm: what their names mean today, which ones are other networks now, and families."""

from __future__ import annotations

import re

OTHER_NETWORKS = {
    "ecaresnext50t_32x4d": "4.44 GMAC today, 2.7 as published",
}
"""Names that stand for another network in today's timm than when they were measured."""

_RENAMED = {
    "adv_inception_v3": "inception_v3",
    "efficientnet_b2a": "efficientnet_b2",
    "efficientnet_b3a": "efficientnet_b3",
    "ens_adv_inception_resnet_v2": "inception_resnet_v2",
    "mnasnet_a1": "semnasnet_100",
    "mnasnet_b1": "mnasnet_100",
    "seresnext26tn_32x4d": "seresnext26t_32x4d",
    "tf_inception_v3": "inception_v3",
    "vit_base_resnet50_384": "vit_base_r50_s16_384",
    "xception": "legacy_xception",
}
"""Networks that have another name today."""

_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"_(ap|ns|ns_475|sam|in2[12]ft1k|384_in22ft1k)$", ""),  # what weights were trained on
        (r"^(gluon|ssl|swsl|tv|ig)_", ""),
        (r"^(resnet\d+)_v1b$", r"\1"),
        (r"^(resnet\d+)_v1([cds])$", r"\1\2"),
        (r"^(resmlp_.*)_distilled_224$", r"\1_224"),
        (r"^(resnetv2_.*_bit)(m|_teacher|_teacher_384|_distilled)$", r"\1"),
        (r"^jx_nest_(\w+)$", r"nest_\1_jx"),
        (r"^(tresnet_\w+)_448$", r"\1"),
    )
)
"""Names that said how weights were trained, which is now behind a dot and costs no memory."""

_LETTERS = re.compile(r"[a-z]+")


def name_today(model: str) -> str:
    """The architecture as today's timm calls it."""
    for pattern, replacement in _RULES:
        model = pattern.sub(replacement, model)
    return _RENAMED.get(model, model)


def family_of(model: str) -> str:
    """The first word of a model's name without digits: `resnet`, `vit`, `efficientnet`."""
    found = _LETTERS.match(model.lower())
    return found[0] if found else model


def other_network(model: str) -> str | None:
    """Why a name is not compared; None where it is."""
    reason = OTHER_NETWORKS.get(model)
    return None if reason is None else f"another network today: {reason}"
