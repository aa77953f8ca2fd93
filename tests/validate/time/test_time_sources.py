"""Rows of published times as cases: what is taken from a row, and what is left out and why."""

from __future__ import annotations

import csv

import pytest

from bsprof.errors import UsageError
from bsprof.records import Mode, Precision
from bsprof.validate.cases import Skipped
from bsprof.validate.rows import Row
from bsprof.validate.time.cases import TimeCase, TimeQuantity
from bsprof.validate.time.collect import SOURCES, collect
from bsprof.validate.time.halves import fits
from bsprof.validate.time.sources import (
    cs336,
    fine_tuning,
    gpt2,
    kai,
    lambda_bert,
    left_out,
    litgpt,
    llmfoundry,
    lucid,
    resnet_runs,
    timm_inference,
    timm_training,
    torchao,
    torchtune,
    torchvision_bs12,
    zyr17,
)
from bsprof.validate.time.sources.common import seconds_of
from bsprof.validate.time.sources.published_gmacs import architecture

TIMM = {
    "model": "resnet50",
    "micro_batch": "192",
    "image_size": "224",
    "framework": "pytorch+timm (NHWC)",
    "framework_version": "1.12 cu11.3",
    "step_ms": "200",
    "judge": "T1",
}
INFERENCE = {
    "gpu": "RTX 4090",
    "model": "resnet50.a1_in1k",
    "micro_batch": "1024",
    "image_size": "224",
    "compile": "False",
    "framework": "timm NCHW",
    "framework_version": "2.91 cu12.8",
    "step_ms": "250",
    "fwd_gmacs": "4.11",
}
GPT2 = {
    "gpu": "H100",
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
    "step_ms": "1147",
    "source": "a trainer",
    "judge": "T1+M1",
}
FOUNDRY = {
    "gpu": "A100",
    "gpu_mem_gb": "40",
    "n_gpus": "8",
    "model": "mpt-7b",
    "precision": "bf16",
    "micro_batch": "12",
    "grad_accum": "4",
    "seq_len": "2048",
    "act_ckpt": "True",
    "step_ms": "26716.7",
    "judge": "TN",
}
FMS = {
    "kind": "train_lora",
    "model": "mistralai/Mistral-7B-v0.1",
    "n_gpus": "1",
    "precision": "bfloat16 pure",
    "micro_batch": "4",
    "seq_len": "4096",
    "peak_mem_gib": "24.9",
    "step_ms": "4900",
    "notes": "framework_config=none; peft=lora r=16.0 targets=q_proj v_proj",
    "judge": "T1+M1",
}


def read(module, row, folder=None):
    [found] = module.read([Row("f.csv:2", row)], folder)
    return found


def case_of(module, row, folder=None) -> TimeCase:
    found = read(module, row, folder)
    assert isinstance(found, TimeCase), found
    return found


def write(folder, name, rows):
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with (folder / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def test_seconds_are_of_an_update_whatever_is_published():
    assert seconds_of(Row("f", {"step_ms": "500"})) == 0.5
    rate = {"samples_per_s_per_gpu": "64", "micro_batch": "16", "grad_accum": "8"}
    assert seconds_of(Row("f", rate)) == 2.0
    assert seconds_of(Row("f", {"step_ms": ""})) is None


def test_timm_trains_in_its_layout_with_the_published_multiplications(tmp_path):
    write(tmp_path, timm_inference.FILE, [INFERENCE])
    case = case_of(timm_training, TIMM, tmp_path)
    assert (case.set_name, case.grouped_apart) == ("timm-3090-nhwc", True)
    assert case.spec.channels_last
    assert case.published_gmacs == (4.11,)
    assert case.training_row is fits("resnet50")
    assert case.seconds == 0.2


def test_names_of_one_network_fall_into_one_half(tmp_path):
    cases = [
        case_of(timm_training, {**TIMM, "model": name}, tmp_path)
        for name in ("inception_v3", "adv_inception_v3", "tv_resnet34", "resnet34")
    ]
    assert cases[0].training_row is cases[1].training_row
    assert cases[2].training_row is cases[3].training_row
    assert architecture("resnet50.a1_in1k") == "resnet50"


def test_another_network_of_timm_is_left_out_without_counting(tmp_path):
    found = read(timm_training, {**TIMM, "model": "ecaresnext50t_32x4d"}, tmp_path)
    assert isinstance(found, Skipped)
    assert not found.counts


@pytest.mark.parametrize("model", ["tresnet_l_448", "cspdarknet53_iabn"])
def test_models_whose_norms_ran_in_place_count_as_missing(tmp_path, model):
    found = read(timm_training, {**TIMM, "model": model}, tmp_path)
    assert isinstance(found, Skipped)
    assert found.counts


def test_inference_runs_without_gradients_and_compiled_rows_are_apart(tmp_path):
    write(tmp_path, timm_inference.FILE, [INFERENCE])
    eager = case_of(timm_inference, INFERENCE, tmp_path)
    compiled = case_of(timm_inference, {**INFERENCE, "compile": "True"}, tmp_path)
    assert eager.spec.mode is Mode.INFER
    assert eager.quantity is TimeQuantity.FORWARD
    assert (eager.software.torch, eager.software.cuda) == ((2, 9), (12, 8))
    assert (eager.set_name, compiled.set_name) == ("timm-4090-infer", "timm-4090-infer-compiled")
    assert compiled.spec.compile


def test_gpt2_is_compiled_as_a_whole_and_accumulates():
    case = case_of(gpt2, GPT2)
    assert case.spec.compile
    assert case.spec.model_options["compiled"] is False  # nothing is fused by hand
    assert (case.accumulation_steps, case.set_name) == (16, "gpt2-compiled")
    assert case.device == "h100-80gb-sxm"


def test_gpt2_on_several_gpus_is_apart_and_rows_of_overhead_are_left_out():
    gollem = {**GPT2, "source": "gollem", "gpu_variant": "H100 80GB HBM3"}
    ranks = case_of(gpt2, {**gollem, "n_gpus": "4", "judge": "TN", "micro_batch": "64"})
    assert (ranks.world_size, ranks.parallel, ranks.set_name) == (4, "ddp", "gpt2-compiled-ddp")
    one = read(gpt2, {**gollem, "micro_batch": "1"})
    assert isinstance(one, Skipped)
    assert not one.counts
    throttled = read(gpt2, {**GPT2, "judge": "M1"})
    assert isinstance(throttled, Skipped)


def test_foundry_shards_over_a_node_with_declared_attention():
    case = case_of(llmfoundry, FOUNDRY)
    assert (case.world_size, case.parallel, case.attention_kernel) == (8, "fsdp", "flash1")
    assert case.spec.model_options == {"name": "mpt-7b-foundry"}
    assert case.spec.precision is Precision.BF16
    assert case.spec.activation_checkpointing == "full"
    assert (case.device, case.set_name) == ("a100-40gb-sxm", "llm-foundry-a100")
    amp = case_of(llmfoundry, {**FOUNDRY, "precision": "amp_bf16", "gpu_mem_gb": "80"})
    assert amp.spec.precision is Precision.AMP_BF16


@pytest.mark.parametrize("change", [{"n_gpus": "64"}, {"precision": "amp_fp8"}])
def test_foundry_rows_of_several_machines_or_fp8_are_left_out(change):
    assert isinstance(read(llmfoundry, {**FOUNDRY, **change}), Skipped)


def test_fine_tuning_counts_what_is_quantized_on_loading_and_not_other_checkpoints():
    assert case_of(fine_tuning, FMS).seconds == 4.9
    loaded = read(fine_tuning, {**FMS, "precision": "bfloat16 pure+bnb"})
    other = read(
        fine_tuning, {**FMS, "precision": "float16 pure+autogptq", "model": "TheBloke/M-GPTQ"}
    )
    assert isinstance(loaded, Skipped)
    assert isinstance(other, Skipped)
    assert (loaded.counts, other.counts) == (True, False)


def test_bert_on_many_gpus_has_tf32_where_the_gpu_and_the_container_know_it():
    row = {
        "model": "bert-base",
        "gpu_variant": "A100-SXM-80GB (A100_80GB_SXM4)",
        "precision": "FP32 (TF32 if Ampere+ and NGC default)",
        "micro_batch": "96",
        "seq_len": "384",
        "step_ms": "462",
        "framework_version": "1.9.0a0+df837d0",
        "judge": "T1",
    }
    ampere = case_of(lambda_bert, row)
    turing = case_of(lambda_bert, {**row, "gpu_variant": "Quadro RTX 8000 (QuadroRTX8000)"})
    half = case_of(lambda_bert, {**row, "precision": "FP16 (apex/amp)"})
    assert ampere.spec.precision is Precision.TF32
    assert turing.spec.precision is Precision.FP32
    assert half.spec.precision is Precision.FP16
    assert half.spec.optimizer_options == {"fused": True}
    assert ampere.spec.model_options == {"unfused": True}
    unknown = read(lambda_bert, {**row, "gpu_variant": "Quadro RTX 5000 (x)"})
    assert isinstance(unknown, Skipped)
    assert unknown.counts


VISION = {
    "gpu_variant": "RTX 3090",
    "precision": "fp16",
    "micro_batch": "64",
    "image_size": "224",
    "step_ms": "100",
    "judge": "T1",
}


def test_benchmarks_of_torchvision():
    kai_case = case_of(kai, {**VISION, "model": "vit_b_16", "precision": "tf32", "compile": "True"})
    assert kai_case.spec.compile
    assert kai_case.spec.model == "torchvision:vit_b_16"
    small = case_of(
        torchvision_bs12,
        {**VISION, "model": "wide_resnet50_2", "gpu_variant": "TITAN Xp", "precision": "fp16 pure"},
    )
    assert small.quantity is TimeQuantity.MICRO_STEP
    assert (small.family, small.spec.precision) == ("wide_resnet", Precision.FP16)
    assert not small.protocol.set_to_none
    lstm = case_of(
        zyr17,
        {**VISION, "model": "lstm-1x256", "seq_len": "100", "image_size": "", "micro_batch": "512"},
    )
    assert (lstm.spec.seq_len, lstm.spec.image_size) == (100, None)
    resnet = case_of(zyr17, {**VISION, "model": "resnet152"})
    assert resnet.spec.precision is Precision.FP16


def test_runs_of_resnet_follow_what_their_rows_say():
    row = {
        "model": "resnet50",
        "gpu_variant": "A100-80GB-SXM (DGX A100)",
        "precision": "AMP-FP16 (NHWC)",
        "micro_batch": "256",
        "grad_accum": "8",
        "image_size": "224",
        "step_ms": "829",
        "judge": "T1",
    }
    half = case_of(resnet_runs.nvidia, row)
    full = case_of(resnet_runs.nvidia, {**row, "precision": "TF32"})
    assert half.spec.channels_last
    assert (half.accumulation_steps, half.spec.precision) == (8, Precision.AMP_FP16)
    assert (full.spec.channels_last, full.spec.precision) == (False, Precision.TF32)
    unsupported = read(resnet_runs.nvidia, {**row, "model": "gnmt"})
    unstated = read(resnet_runs.nvidia, {**row, "model": "bart-large"})
    assert isinstance(unsupported, Skipped)
    assert isinstance(unstated, Skipped)
    assert (unsupported.counts, unstated.counts) == (False, True)


def test_small_llamas_have_the_sizes_of_their_notes():
    case = case_of(
        cs336,
        {
            "model": "cs336-small",
            "precision": "fp32",
            "micro_batch": "4",
            "seq_len": "128",
            "optimizer": "none",
            "step_ms": "78",
            "notes": "d_model=768 d_ff=3072 (SwiGLU) layers=12 heads=12 vocab=10000 untied, RoPE",
            "judge": "T1",
        },
    )
    assert case.quantity is TimeQuantity.MICRO_STEP
    assert case.spec.precision is Precision.FP32_STRICT
    assert case.spec.model_options["head_width"] == 64


def test_the_remaining_sources_say_what_they_take_and_leave_out():
    llama = {
        "model": "llama-3.2-3B",
        "kind": "train_full",
        "n_gpus": "1",
        "micro_batch": "2",
        "seq_len": "4096",
        "step_ms": "910",
        "notes": "cumulative flags: Baseline, Packed Dataset, Compile",
        "judge": "T1+M1",
    }
    assert case_of(torchtune, llama).spec.compile
    assert isinstance(read(torchtune, {**llama, "kind": "train_lora"}), Skipped)
    bert = {
        "model": "BERT",
        "precision": "AMP-FP16",
        "micro_batch": "32",
        "step_ms": "267",
        "judge": "T1",
    }
    assert case_of(lucid, bert).spec.seq_len == 384
    vit = {
        "model": "vit_huge_patch14_224",
        "optimizer": "PyTorch (fused)",
        "micro_batch": "8",
        "step_ms": "191",
        "judge": "T1",
    }
    assert case_of(torchao, vit).spec.compile
    assert isinstance(read(torchao, {**vit, "optimizer": "ao 8-bit"}), Skipped)
    tiny = {
        "kind": "train",
        "gpu": "A100",
        "n_gpus": "1",
        "model": "TinyLlama-1.1B",
        "precision": "bf16-true",
        "micro_batch": "4",
        "seq_len": "2048",
        "peak_mem_gib": "30",
        "compile": "Eager / -",
        "step_ms": "447",
        "judge": "T1",
    }
    assert case_of(litgpt, tiny).seconds == pytest.approx(0.447)
    [lost] = left_out.tensorflow.read([Row("f.csv:2", {"model": "resnet50", "judge": "T1"})], None)
    assert isinstance(lost, Skipped)
    assert lost.counts


def test_files_are_found_in_folders_and_judged_rows_are_known(tmp_path):
    folder = tmp_path / "end_to_end"
    folder.mkdir()
    write(folder, timm_training.FILE, [TIMM, {**TIMM, "model": "vit_tiny", "judge": ""}])
    found = collect(tmp_path)
    assert [c.row for c in found.cases] == [f"{timm_training.FILE}:{n}" for n in (2, 3)]
    assert found.judged == {f"{timm_training.FILE}:2"}
    assert set(found.usable.values()) == {"timm-3090"}
    few = collect(tmp_path, source="timm-3090", limit=1)
    assert (len(few.cases), few.sampled_from, len(few.usable)) == (1, 2, 2)


def test_unknown_sources_and_empty_folders_are_refused(tmp_path):
    with pytest.raises(UsageError, match="unknown source"):
        collect(tmp_path, source="nobody")
    with pytest.raises(UsageError, match="no measurements"):
        collect(tmp_path)


def test_every_source_has_a_name_of_its_own():
    names = [source.NAME for source in SOURCES]
    assert len(set(names)) == len(names)
    assert all(isinstance(source.ASSUMPTIONS, tuple) for source in SOURCES)
