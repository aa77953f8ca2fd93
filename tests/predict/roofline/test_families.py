"""Families of devices and who stands in for whom."""

import pytest

from bsprof.hardware.catalogue import devices, find_device
from bsprof.predict.roofline.families import RELATIVES, ROOT, family_of, line_of


@pytest.mark.parametrize(
    ("device", "family"),
    [
        ("a100-80gb-sxm", "ampere"),
        ("rtx-3090", "ampere 8.6"),
        ("a30", "ampere"),
        ("rtx-4090", "ada"),
        ("b200", "blackwell"),
        ("rtx-5090", "blackwell 12.0"),
        ("t4", "turing"),
    ],
)
def test_families(device, family):
    assert family_of(find_device(device)) == family


def test_every_device_of_the_catalogue_has_a_family():
    assert all(family_of(device) != ROOT for device in devices())


@pytest.mark.parametrize("family", sorted(RELATIVES))
def test_every_line_ends_at_the_root(family):
    line = line_of(family)
    assert line[0] == family
    assert line[-1] == ROOT
    assert len(set(line)) == len(line)


def test_an_unknown_family_is_the_root_s():
    assert line_of("nothing known") == ("nothing known", ROOT)
