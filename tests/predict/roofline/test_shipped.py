"""The coefficients that travel with bsprof: plausible, and near single published figures."""

import pytest

from bsprof.accounting.work import WorkClass
from bsprof.calibrate.fit.works import attention, product, traffic
from bsprof.hardware.calibration import packaged_calibration
from bsprof.hardware.catalogue import devices, find_device
from bsprof.predict.roofline import Roofline
from bsprof.predict.roofline.families import RELATIVES
from bsprof.predict.roofline.groups import LAWS

CALIBRATION = packaged_calibration()
NVIDIA = [device for device in devices() if device.kind == "cuda"]


def roofline(name: str) -> Roofline:
    return Roofline.of(find_device(name), CALIBRATION)


def test_every_family_and_law_is_there():
    assert set(CALIBRATION.families) == {"", *RELATIVES} - {"cpu"} | {"cpu"}
    known = {law for family in CALIBRATION.families.values() for law in family.laws}
    assert known <= set(LAWS)
    for device in NVIDIA:
        assert all(roofline(device.name).resolved(law) for law in LAWS)


def test_terms_lie_within_the_bounds_that_physics_sets():
    for name, family in CALIBRATION.families.items():
        for law, fitted in family.laws.items():
            assert set(fitted.terms) == set(LAWS[law].terms), (name, law)
            for key, coefficient in fitted.terms.items():
                term = LAWS[law].terms[key]
                assert 0.999 * term.low <= coefficient.value <= 1.001 * term.high, (law, key)
                assert coefficient.error > 0, (name, law, key)


@pytest.mark.parametrize("device", NVIDIA, ids=lambda device: device.name)
def test_nothing_is_a_tenth_faster_than_a_ceiling(device):
    known = roofline(device.name)
    for compute in device.flops_per_s:
        if compute not in ("fp32", "tf32", "bf16", "fp16"):
            continue
        work = product(16384, 16384, 16384, compute)
        rate = work.flops / known.seconds(work)
        assert 0.5 * known.ceiling(compute).value < rate < 1.1 * known.ceiling(compute).value
        assert rate < 1.2 * device.flops_per_s[compute]
    work = traffic(WorkClass.ELEMENTWISE, 10**10, "fp32")
    rate = work.bytes / known.seconds(work)
    assert 0.5 * device.bandwidth_bytes_per_s < rate < 1.05 * device.bandwidth_bytes_per_s


PUBLISHED = [
    # FlagOpen/FlagPerf toolkits and benchmarks (Apache-2.0): 8 GPUs, sustained
    ("a100-40gb-sxm", product(8192, 8192, 8192, "bf16"), 259.2e12),
    ("a100-40gb-sxm", product(8192, 8192, 8192, "fp32"), 19.05e12),
    # mli/transformers-benchmarks (Apache-2.0)
    ("rtx-4090", product(8192, 8192, 8192, "fp16"), 172e12),
    ("rtx-3090-ti", product(8192, 8192, 8192, "fp16"), 81e12),
    ("v100-16gb-sxm", product(8192, 8192, 8192, "fp32"), 14e12),
    # thu-ml/SageAttention (Apache-2.0): FlashAttention-2, 4 samples, 32 heads of 128
    (
        "rtx-4090",
        attention("flash", "fp16", samples=4, heads=32, queries=8192, head_size=128, causal=False),
        164e12,
    ),
]


@pytest.mark.parametrize(("device", "work", "rate"), PUBLISHED)
def test_single_published_figures(device, work, rate):
    assert work.flops / roofline(device).seconds(work) == pytest.approx(rate, rel=0.15)


def test_backward_attention_takes_three_to_four_times_forward_on_a_4090():
    # apache/tvm's table of FlashAttention-2 on this card: 3.4 to 3.8
    times = [
        roofline("rtx-4090").seconds(
            attention(
                "flash",
                "fp16",
                samples=8,
                heads=16,
                queries=2048,
                head_size=128,
                causal=False,
                backward=backward,
            )
        )
        for backward in (False, True)
    ]
    assert 2.8 < times[1] / times[0] < 4.2


def test_measured_devices_are_surer_than_others():
    measured, cousin = roofline("a100-80gb-sxm"), roofline("rtx-5080")
    for kind in (WorkClass.MATMUL, WorkClass.ELEMENTWISE, WorkClass.SOFTMAX):
        assert 0.03 < measured.spread(kind, "fp32") <= cousin.spread(kind, "fp32") < 0.6


def test_where_the_numbers_come_from_is_said():
    known = roofline("rtx-5080").provenance
    assert any("data sheet times" in sentence for sentence in known)
    assert any("are taken from" in sentence for sentence in known)
    assert all(len(file.sha256) == 64 for file in CALIBRATION.files)
