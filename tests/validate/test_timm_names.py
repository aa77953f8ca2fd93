"""Old names of timm's models against timm's own table of what they became."""

from __future__ import annotations

import pytest

from bsprof.validate.sources.timm_names import family_of, name_today

WRONG_IN_TIMM = "ig_resnext101_32x"
"""timm's table sends all of these to the smallest of them."""


@pytest.mark.parametrize(
    ("old", "today"),
    [
        ("tf_efficientnet_b0_ap", "tf_efficientnet_b0"),
        ("gluon_resnet50_v1d", "resnet50d"),
        ("gluon_resnet50_v1b", "resnet50"),
        ("ig_resnext101_32x16d", "resnext101_32x16d"),
        ("jx_nest_tiny", "nest_tiny_jx"),
        ("resnetv2_50x1_bitm", "resnetv2_50x1_bit"),
        ("resnet50", "resnet50"),
        ("deit_base_distilled_patch16_224", "deit_base_distilled_patch16_224"),
    ],
)
def test_old_names(old, today):
    assert name_today(old) == today


def test_families_are_first_words():
    assert family_of("resnetv2_50") == "resnetv"
    assert family_of("vit_base_patch16_224") == "vit"


def test_old_names_mean_what_timm_says():
    timm = pytest.importorskip("timm")
    for old, new in timm.models.get_deprecated_models().items():
        today = name_today(old)
        if today == old or old.startswith(WRONG_IN_TIMM):
            continue
        assert timm.is_model(today), old
        assert today == new.partition(".")[0], old
