"""Every class of work has a law, and the laws of special cases are found."""

import dataclasses

import pytest

from bsprof.accounting.work import Work, WorkClass
from bsprof.calibrate.fit.works import attention, convolution, product
from bsprof.predict.roofline.groups import LAWS, law_name


@pytest.mark.parametrize("kind", list(WorkClass))
@pytest.mark.parametrize("compute", ["fp32", "tf32", "bf16", "fp16", "fp64", "fp8", "int8"])
def test_every_work_has_a_law(kind, compute):
    assert law_name(Work(work_class=kind, compute=compute)) in LAWS


@pytest.mark.parametrize(
    ("compute", "law"),
    [
        ("bf16", "matmul/half"),
        ("fp16", "matmul/half"),
        ("tf32", "matmul/tf32"),
        ("fp32", "matmul/fp32"),
    ],
)
def test_products_by_multipliers(compute, law):
    assert law_name(product(64, 64, 64, compute)) == law


def test_a_batch_of_products_has_a_law_of_its_own():
    assert law_name(product(64, 64, 64, "fp32", batch=8)) == "batched_matmul/fp32"


@pytest.mark.parametrize(
    ("written", "law"),
    [
        ("flash", "flash2"),
        ("flash1", "flash1"),
        ("flash3", "flash3"),
        ("cudnn", "cudnn"),
        ("efficient", "efficient"),
        ("math", "efficient"),
    ],
)
def test_attention_by_implementation(written, law):
    work = attention(
        "flash", "bf16", samples=1, heads=8, queries=128, head_size=64, causal=True, backward=True
    )
    work = dataclasses.replace(work, implementation=written)
    assert law_name(work) == f"attention_backward/{law}"


@pytest.mark.parametrize("way", ["FORWARD", "DATA", "WEIGHT"])
@pytest.mark.parametrize(
    ("groups", "stem"), [(1, "convolution"), (32, "grouped"), (256, "depthwise")]
)
def test_convolutions_by_groups(way, groups, stem):
    work = convolution(
        WorkClass[f"CONVOLUTION_{way}"],
        "fp16",
        samples=8,
        channels_in=256,
        channels_out=256,
        pixels_in=196,
        pixels_out=196,
        area=9,
        groups=groups,
    )
    assert law_name(work) == f"{stem}_{way.lower()}/half"
    last = dataclasses.replace(work, channels_last=True)
    layout = "_last" if groups > 1 else ""
    assert law_name(last) == f"{stem}_{way.lower()}{layout}/half"


@pytest.mark.parametrize(
    ("operator", "over"),
    [
        ("aten.native_layer_norm", "layer"),
        ("aten._fused_rms_norm", "layer"),
        ("aten.native_batch_norm", "batch"),
        ("aten.cudnn_batch_norm", "batch"),
        ("aten.native_group_norm", "group"),
    ],
)
def test_normalisations_by_what_they_normalise_over(operator, over):
    work = Work(work_class=WorkClass.NORMALISATION, compute="fp32", name=operator)
    assert law_name(work) == f"normalisation/{over}"
    last = dataclasses.replace(work, channels_last=True)
    assert law_name(last) == f"normalisation/{over}{'_last' if over == 'batch' else ''}"
