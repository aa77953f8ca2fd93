"""Rows that known terms make, on made devices."""

import random
from collections.abc import Mapping, Sequence

from bsprof.accounting.work import Work, WorkClass
from bsprof.calibrate.fit.law_fit import DeviceFacts
from bsprof.calibrate.fit.rows import KernelRow
from bsprof.calibrate.fit.works import product, traffic
from bsprof.predict.roofline.groups import LAWS, law_name
from bsprof.predict.roofline.limits import Limits
from bsprof.predict.roofline.shape import shape_of

PRODUCTS = [
    product(m, n, k, "bf16")
    for m in (64, 256, 1024, 4096)
    for n in (256, 1024, 8192)
    for k in (64, 512, 4096)
]
STREAMS = [traffic(WorkClass.ELEMENTWISE, 10**6 * 2**i, "fp32") for i in range(11)]


def facts(family: str, flops_per_s: float = 200e12) -> DeviceFacts:
    return DeviceFacts(
        family=family,
        flops_per_s={"bf16": flops_per_s, "fp32": flops_per_s / 8},
        bytes_per_s=1e12,
        l2_bytes=20 * 2**20,
        units=100.0,
        launch_s=2e-6,
    )


def true_seconds(work: Work, device: DeviceFacts, changed: Mapping[str, float]) -> float:
    law = LAWS[law_name(work)]
    terms = {name: term.default for name, term in law.terms.items()} | dict(changed)
    limits = Limits(
        flops_per_s=device.flops_per_s[work.compute],
        bytes_per_s=device.bytes_per_s,
        l2_bytes=device.l2_bytes,
        units=device.units,
    )
    return float(law.parts(shape_of(work), limits, terms).total_s) + device.launch_s


def made_rows(
    works: Sequence[Work],
    name: str,
    device: DeviceFacts,
    *,
    source: str = "",
    scale: float = 1.0,
    floor_s: float = 0.0,
    noise: float = 0.02,
    **changed: float,
) -> list[KernelRow]:
    """Rows of works on a device whose terms are known, with noise, a scale and a floor."""
    rng = random.Random(f"{name} {source}")
    return [
        KernelRow(
            work=work,
            seconds=(scale * true_seconds(work, device, changed) + floor_s)
            * rng.lognormvariate(0, noise),
            device=name,
            source=source or name,
            has_floor=floor_s > 0,
        )
        for work in works
    ]
