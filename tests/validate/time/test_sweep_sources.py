"""Rows of NeuSight, of single layers and of Sia as cases, and which of them tell about others."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsprof.records import Mode, Precision
from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.time.cases import Calibrates, TimeCase, TimeQuantity
from bsprof.validate.time.sources import layers, neusight, sia

NEUSIGHT = {
    "kind": "train_fwd_bwd",
    "gpu_variant": "H100-80GB-SXM",
    "n_gpus": "1",
    "model": "gpt2_large",
    "model_family": "gpt-decoder",
    "micro_batch": "4",
    "seq_len": "1024",
    "step_ms": "500",
    "notes": "L=36,d=1280,h=20,V=50257; fw_ms=200; bw_ms=300; no optimizer step, CUDA events.",
    "source": "label/H100/gpt2_large-train-1024-4.json",
}
LAYER = {
    "gpu": "H100-SXM5-80GB",
    "env": "torch2.0.0 cu12.1",
    "op": "layer_bert_large",
    "pass": "fwd",
    "dtype": "float16",
    "batch": "2",
    "seq_len": "128",
    "flops": "6576670000",
    "latency_us": "300",
    "source": "someone/transformers-benchmarks micro_bench.ipynb",
}
SIA = {
    "gpu": "V100",
    "gpu_variant": "V100-32GB-SXM2",
    "gpu_mem_gb": "32",
    "n_gpus": "1",
    "model": "bert-base-uncased",
    "precision": "fp32",
    "micro_batch": "4",
    "seq_len": "384",
    "step_ms": "200",
}


def read(source, *rows):
    return source.read([Row(f"f.csv:{n}", row) for n, row in enumerate(rows, 2)], Path())


def only_case(source, row):
    (case,) = read(source, row)
    assert isinstance(case, TimeCase)
    return case


def test_training_without_an_optimizer_is_a_micro_step():
    case = only_case(neusight, NEUSIGHT)
    assert case.quantity is TimeQuantity.MICRO_STEP
    assert case.spec.mode is Mode.TRAIN
    assert case.seconds == pytest.approx(0.5)
    assert case.set_name == "neusight-training"


def test_inference_is_a_forward_pass_without_gradients():
    case = only_case(neusight, {**NEUSIGHT, "kind": "infer_fwd"})
    assert case.quantity is TimeQuantity.FORWARD
    assert case.spec.mode is Mode.INFER
    assert case.set_name == "neusight-inference"


def test_multiplications_follow_from_the_dimensions():
    (gmacs,) = only_case(neusight, NEUSIGHT).published_gmacs
    parameters = 36 * 12 * 1280**2 + 50_257 * 1280
    assert gmacs == pytest.approx((1024 * parameters + 2 * 36 * 1024**2 * 1280) / 1e9)


def test_devices_of_amd_are_told_apart():
    assert only_case(neusight, {**NEUSIGHT, "gpu_variant": "MI210 64GB"}).set_name == ""


def test_a_model_whose_dimensions_are_inferred_is_told_apart():
    case = only_case(neusight, {**NEUSIGHT, "model": "switchxl4"})
    assert case.set_name == "neusight-switch"
    assert case.published_gmacs == ()


def test_the_smallest_forward_pass_of_a_machine_tells_the_hosts_time():
    other = {**LAYER, "gpu": "RTX4090"}
    cases = read(
        layers,
        {**LAYER, "seq_len": "512"},
        {**LAYER, "batch": "4"},
        LAYER,
        {**LAYER, "pass": "fwd+bwd"},
        {**other, "batch": "64"},
        {**other, "batch": "8"},
    )
    told = [case.calibrates is Calibrates.HOST for case in cases]
    assert told == [False, False, True, False, False, True]


def test_a_machine_multiplies_as_fast_as_in_its_own_notebook():
    square = {**LAYER, "op": "matmul_square", "batch": "", "seq_len": "", "tflops": "600"}
    found = read(
        layers,
        square,
        {**square, "tflops": "400"},
        {**square, "dtype": "float32", "tflops": "900"},
        LAYER,
        {**LAYER, "gpu": "RTX4090"},
    )
    cases = [case for case in found if isinstance(case, TimeCase)]
    assert [case.ceilings for case in cases] == [{"fp16": 600e12}, {}]


def test_a_layer_in_half_precision():
    forward, both = read(layers, LAYER, {**LAYER, "pass": "fwd+bwd"})
    assert forward.spec.precision is Precision.FP16
    assert forward.quantity is TimeQuantity.FORWARD
    assert forward.spec.mode is Mode.TRAIN
    assert forward.software.torch == (2, 0)
    assert forward.published_gmacs == pytest.approx((1.6441675,))
    assert both.quantity is TimeQuantity.MICRO_STEP
    assert both.spec.model_options["summed"] is True
    assert forward.sweep != both.sweep
    assert forward.machine == both.machine


def test_the_smallest_size_of_a_sweep_is_its_measured_point():
    cases = read(
        sia,
        {**SIA, "micro_batch": "8"},
        SIA,
        {**SIA, "micro_batch": "2", "n_gpus": "2"},
        {**SIA, "gpu": "T4", "gpu_mem_gb": "16"},
    )
    told = [isinstance(c, TimeCase) and c.calibrates is Calibrates.POINT for c in cases]
    assert told == [False, True, False, True]


@pytest.mark.parametrize(
    ("model", "precision", "expected", "set_name"),
    [
        ("bert-base-uncased", "fp32", Precision.FP32, "sia-bert"),
        ("resnet50", "amp-O1(fp16)", Precision.AMP_FP16, "sia-resnet50"),
        ("neumf", "fp32 (TF32 allowed by torch default)", Precision.TF32, ""),
    ],
)
def test_models_of_sia(model, precision, expected, set_name):
    case = only_case(sia, {**SIA, "model": model, "precision": precision})
    assert case.spec.precision is expected
    assert case.set_name == set_name
    assert case.quantity is TimeQuantity.UPDATE


@pytest.mark.parametrize(
    ("source", "row", "counts"),
    [
        (neusight, {**NEUSIGHT, "source": "gpt2_large-inf-1024-4-fusion.json"}, False),
        (neusight, {**NEUSIGHT, "notes": "distributed label dp4"}, False),
        (neusight, {**NEUSIGHT, "gpu_variant": "A100-PCIe-80GB", "micro_batch": "1"}, False),
        (neusight, {**NEUSIGHT, "gpu_variant": "MI250 (one GCD, 64GB)"}, True),
        (neusight, {**NEUSIGHT, "model": "switch4"}, True),
        (layers, {**LAYER, "op": "matmul_square"}, False),
        (layers, {**LAYER, "op": "layer_of_another"}, True),
        (sia, {**SIA, "n_gpus": "4"}, False),
        (sia, {**SIA, "model": "yolov3"}, False),
        (sia, {**SIA, "gpu": "some card"}, True),
    ],
)
def test_rows_that_are_left_out(source, row, counts):
    (skipped,) = read(source, row)
    assert isinstance(skipped, Skipped)
    assert skipped.reason
    assert skipped.counts is counts
