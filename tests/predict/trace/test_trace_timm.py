"""Models of timm: traced, they take the memory of a real run, and two sizes give the others."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from trace_ground_truth import check

from bsprof.predict.target import TraceTarget
from bsprof.predict.trace.run import Tracer
from bsprof.predict.trace.scaling import StreamFamily
from bsprof.records import WorkloadSpec

pytest.importorskip("timm")

SIZED = {"image_size": 64}
MODELS = {
    "resnet18": SIZED,
    "regnety_002": SIZED,
    "efficientnet_b0": SIZED,
    "mobilenetv3_small_100": SIZED,
    "convnext_atto": SIZED,
    "densenet121": SIZED,
    "nf_resnet50": SIZED,
    "mobilevit_xxs": SIZED,
    "vit_tiny_patch16_224": {},
    "swin_tiny_patch4_window7_224": {},
    "beit_base_patch16_224": {},
    "mixer_s32_224": {},
}
BUILT_FOR_REAL = ("vit_base_mci_224", "swinv2_cr_tiny_224")


@pytest.fixture(autouse=True)
def _packages_may_warn() -> Iterator[None]:
    """Installed packages warn about each other; only bsprof's own warnings are errors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=Warning)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_step_takes_what_a_real_one_takes(name):
    check(WorkloadSpec(model=f"timm:{name}", **MODELS[name]), kernels_own_share=None, size=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_two_sizes_give_the_others(name):
    tracer = Tracer(WorkloadSpec(model=f"timm:{name}", **MODELS[name]), TraceTarget())
    family = StreamFamily.of(tracer.trace(3).stream, tracer.trace(7).stream)
    assert family.at(12) == tracer.trace(12).stream


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_FOR_REAL)
def test_constructors_that_need_their_weights_are_built_all_the_same(name):
    traced = Tracer(WorkloadSpec(model=f"timm:{name}"), TraceTarget()).trace(2)
    assert [note.code for note in traced.notes] == ["built-otherwise"]
    assert sum(traced.stream.sizes) > traced.facts.parameter_bytes
