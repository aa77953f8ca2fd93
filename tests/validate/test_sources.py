"""Rows of each source as settings: what is taken from a row, and what is left out and why."""

from __future__ import annotations

import pytest

from bsprof.records import Precision
from bsprof.validate.cases import Case, Kind, Skipped
from bsprof.validate.rows import Row
from bsprof.validate.sources import fms, gpt2, gpu_insights, litgpt, torchtune

FMS = {
    "kind": "train_lora",
    "model": "mistralai/Mistral-7B-v0.1",
    "n_gpus": "1",
    "precision": "bfloat16 pure",
    "micro_batch": "4",
    "seq_len": "4096",
    "peak_mem_gib": "24.9",
    "oom": "0",
    "notes": "framework_config=none; peft=lora r=16.0 targets=q_proj v_proj; nvidia_reserved_MiB=1",
}
LITGPT = {
    "kind": "train_lora",
    "gpu": "A100",
    "n_gpus": "1",
    "model": "Llama 2 7B",
    "precision": "bf16-true",
    "micro_batch": "2",
    "seq_len": "1304",
    "peak_mem_gib": "27.1",
    "oom": "0",
}
GPT2 = {
    "gpu_variant": "H100 SXM",
    "n_gpus": "1",
    "model": "gpt2-124m",
    "precision": "amp_bf16 (tf32 matmul allowed)",
    "micro_batch": "32",
    "grad_accum": "16",
    "seq_len": "1024",
    "optimizer": "adamw fused",
    "compile": "True",
    "attention": "sdpa causal (flash)",
    "peak_mem_gib": "24.2",
    "mem_method": "nvidia-smi used",
    "source": "a trainer",
}
TORCHTUNE = {
    "kind": "train_full",
    "n_gpus": "1",
    "model": "llama-3.2-3B",
    "micro_batch": "2",
    "seq_len": "4096",
    "peak_mem_gib": "42.9",
    "notes": "cumulative flags: Baseline, Packed Dataset, Compile, Chunked Cross Entropy",
}
INSIGHTS = {
    "gpu": "A100",
    "model": "vit-b-16",
    "precision": "amp_fp16",
    "micro_batch": "32",
    "image_size": "224",
    "peak_mem_gib": "4.2",
    "notes": "all inputs preloaded on the GPU: 480 samples = 0.269 GiB included",
}


def test_a_trainer_with_adapters_is_built_in_bf16_by_its_factory():
    case = fms.read(Row("f.csv:2", FMS))
    assert isinstance(case, Case)
    assert case.spec.model_options["rank"] == 16
    assert case.spec.model_options["targets"] == "q_proj v_proj"
    assert case.spec.precision is Precision.FP32
    assert case.spec.activation_checkpointing == "full"
    assert case.measured is not None
    assert case.measured.kind is Kind.ALLOCATED


def test_adapters_of_the_tutorials_and_of_the_hub():
    tutorial = litgpt.read(Row("f.csv:2", LITGPT))
    hub = litgpt.read(Row("f.csv:3", {**LITGPT, "gpu": "A10G", "model": "phi-2"}))
    assert isinstance(tutorial, Case)
    assert isinstance(hub, Case)
    assert (tutorial.spec.model_options["rank"], tutorial.device) == (8, "a100-40gb-sxm")
    assert (hub.spec.model_options["feed"], hub.device) == (True, "a10g")


def test_a_failed_run_is_a_size_that_does_not_fit():
    case = litgpt.read(Row("f.csv:2", {**LITGPT, "peak_mem_gib": "", "oom": "1"}))
    assert isinstance(case, Case)
    assert case.measured is None
    assert case.bracket is not None
    assert (case.bracket.fits, case.bracket.fails) == (0, 2)


def test_accumulation_and_the_quantity_of_the_device():
    case = gpt2.read(Row("f.csv:2", GPT2))
    assert isinstance(case, Case)
    assert case.protocol.windows == (1, 2)
    assert case.spec.optimizer_options == {"fused": True}
    assert case.measured is not None
    assert case.measured.kind is Kind.DEVICE


def test_savings_that_are_switched_on():
    case = torchtune.read(Row("f.csv:2", TORCHTUNE))
    assert isinstance(case, Case)
    assert case.spec.model_options == {"compiled": True, "chunked": True, "in_backward": False}
    assert case.spec.activation_checkpointing == "none"


def test_what_lies_on_the_device_from_the_start_is_added_but_for_one_batch():
    case = gpu_insights.read(Row("f.csv:2", INSIGHTS))
    assert isinstance(case, Case)
    assert case.resident_bytes == (480 - 32) * 3 * 224 * 224 * 4
    assert not case.spec.channels_last


@pytest.mark.parametrize(
    ("source", "row", "counts"),
    [
        (fms, {**FMS, "n_gpus": "2"}, False),
        (fms, {**FMS, "precision": "bfloat16 pure+bnb"}, False),
        (fms, {**FMS, "model": "an/other"}, True),
        (litgpt, {**LITGPT, "precision": "bf16-true+bnb.nf4"}, False),
        (litgpt, {**LITGPT, "kind": "infer_generate"}, False),
        (litgpt, {**LITGPT, "kind": "train_adapter"}, True),
        (litgpt, {**LITGPT, "kind": "train", "compile": "Thunder / sdpa"}, True),
        (gpt2, {**GPT2, "gpu_variant": "some card"}, True),
        (gpt2, {**GPT2, "peak_mem_gib": ""}, False),
        (torchtune, {**TORCHTUNE, "seq_len": ""}, True),
        (torchtune, {**TORCHTUNE, "notes": "packed, activation offloading"}, True),
        (gpu_insights, {**INSIGHTS, "notes": "NEAR CAPACITY; preloaded"}, True),
    ],
)
def test_rows_that_are_left_out(source, row, counts):
    skipped = source.read(Row("f.csv:2", row))
    assert isinstance(skipped, Skipped)
    assert skipped.reason
    assert skipped.counts is counts
