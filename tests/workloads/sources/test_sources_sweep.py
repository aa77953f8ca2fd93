"""Many models of timm, torchvision and transformers, each at two micro-batch sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bsprof
from bsprof.records import WorkloadSpec
from bsprof.workloads.training import Training

pytestmark = pytest.mark.slow
WriteConfig = Callable[..., Path]
Train = Callable[..., Training]

TIMM: dict[str, int | None] = {
    "cait_xxs24_224": 96,
    "convnext_atto": 64,
    "convnextv2_atto": 64,
    "crossvit_tiny_240": None,
    "deit_tiny_distilled_patch16_224": 96,
    "densenet121": 64,
    "edgenext_xx_small": 64,
    "efficientformer_l1": None,
    "efficientnet_b0": 64,
    "eva02_tiny_patch14_336": 112,
    "fastvit_t8": 64,
    "ghostnet_050": 64,
    "gmlp_ti16_224": 96,
    "hiera_tiny_224": None,
    "hrnet_w18_small": 64,
    "inception_next_atto": 64,
    "inception_v3": 139,
    "levit_128s": None,
    "mixer_s32_224": 96,
    "mobilenetv2_050": 64,
    "mobilenetv3_small_100": 64,
    "mobilevit_xxs": 64,
    "nf_resnet50": 64,
    "pit_ti_224": None,
    "poolformerv2_s12": 64,
    "pvt_v2_b0": 64,
    "regnety_002": 64,
    "repvgg_a0": 64,
    "resnet18": 64,
    "resnetv2_50": 64,
    "swin_tiny_patch4_window7_224": 112,
    "test_coatnet": None,
    "tf_efficientnetv2_b0": 64,
    "vit_tiny_patch16_224": 96,
    "xcit_nano_12_p16_224": 96,
}
"""Models by the pixels of their images here; None is the model's own size."""
FROM_TWO = {"levit_128s"}
"""Models whose last batch norm sees one value an image: they cannot train on a single one."""

TORCHVISION: dict[str, tuple[int | None, tuple[int, int]]] = {
    "googlenet": (96, (2, 3)),
    "mobilenet_v3_small": (64, (1, 2)),
    "resnet18": (64, (1, 2)),
    "swin_t": (64, (1, 2)),
    "vit_b_16": (32, (1, 2)),
    "fasterrcnn_mobilenet_v3_large_320_fpn": (128, (1, 2)),
    "maskrcnn_resnet50_fpn": (64, (1, 2)),
    "retinanet_resnet50_fpn": (128, (1, 2)),
    "ssdlite320_mobilenet_v3_large": (None, (2, 3)),
    "deeplabv3_mobilenet_v3_large": (64, (2, 3)),
    "fcn_resnet50": (64, (1, 2)),
    "lraspp_mobilenet_v3_large": (64, (2, 3)),
    "raft_small": (128, (1, 2)),
    "r3d_18": (32, (1, 2)),
}
"""Models by their images here and their sizes: 2 where a batch norm sees one value an image."""

TEXT: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
LLAMA: dict[str, Any] = {**TEXT, "num_key_value_heads": 2}
BART: dict[str, Any] = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
}
T5: dict[str, Any] = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2}
GPT2: dict[str, Any] = {
    "vocab_size": 99,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
VIT: dict[str, Any] = {**TEXT, "image_size": 32, "patch_size": 8}
SWIN: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}
RESNET: dict[str, Any] = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [2, 2]}
DISTILBERT: dict[str, Any] = {
    "vocab_size": 99,
    "dim": 32,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 64,
    "max_position_embeddings": 64,
}

HUGGING_FACE: dict[str, tuple[str, dict[str, Any], int]] = {
    "GPT2LMHeadModel": ("gpt2", GPT2, 2),
    "LlamaForCausalLM": ("llama", LLAMA, 2),
    "MixtralForCausalLM": ("mixtral", {**LLAMA, "num_local_experts": 4}, 2),
    "BertForMaskedLM": ("bert", TEXT, 2),
    "RobertaForTokenClassification": ("roberta", {**TEXT, "pad_token_id": 1}, 2),
    "DistilBertForQuestionAnswering": ("distilbert", DISTILBERT, 2),
    "DebertaV2ForSequenceClassification": ("deberta-v2", {**TEXT, "num_labels": 1}, 2),
    "Qwen2ForSequenceClassification": ("qwen2", LLAMA, 2),
    "BartForConditionalGeneration": ("bart", BART, 4),
    "BartForSequenceClassification": ("bart", BART, 4),
    "T5ForConditionalGeneration": ("t5", {**T5, "num_heads": 4}, 4),
    "ViTForImageClassification": ("vit", VIT, 2),
    "SwinForImageClassification": ("swin", SWIN, 4),
    "ResNetForImageClassification": ("resnet", {**RESNET, "image_size": 64}, 4),
}
"""Heads with the type of their model, a small configuration and its number of blocks."""


@pytest.mark.parametrize("name", TIMM)
def test_timm(train: Train, name: str) -> None:
    pytest.importorskip("timm")
    sizes = (2, 3) if name in FROM_TWO else (1, 2)
    facts = train(WorkloadSpec(model=f"timm:{name}", image_size=TIMM[name]), sizes).facts
    assert facts.parameter_count == facts.trainable_parameter_count


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision(train: Train, name: str) -> None:
    pytest.importorskip("torchvision")
    image_size, sizes = TORCHVISION[name]
    facts = train(WorkloadSpec(model=f"torchvision:{name}", image_size=image_size), sizes).facts
    assert facts.tokens_per_sample is None


@pytest.mark.parametrize("head", HUGGING_FACE)
def test_hugging_face(train: Train, config_file: WriteConfig, head: str) -> None:
    pytest.importorskip("transformers")
    kind, fields, _ = HUGGING_FACE[head]
    folder = config_file("mine", model_type=kind, architectures=[head], **fields)
    options: dict[str, Any] = {} if "patch_size" in fields or kind == "resnet" else {"seq_len": 32}
    training = train(WorkloadSpec(model=f"hf:{folder}", **options))
    assert type(training.model).__name__ == head
    assert training.facts.tokens_per_sample == options.get("seq_len")


@pytest.mark.parametrize("head", HUGGING_FACE)
def test_recomputing_in_hugging_face_models(
    same_gradients: Callable[..., int], config_file: WriteConfig, head: str
) -> None:
    pytest.importorskip("transformers")
    kind, fields, blocks = HUGGING_FACE[head]
    folder = config_file("mine", model_type=kind, architectures=[head], **fields)
    assert same_gradients(WorkloadSpec(model=f"hf:{folder}")) == blocks


@pytest.mark.parametrize(
    "name",
    [
        "convnext_atto",
        "efficientnet_b0",
        "gmlp_ti16_224",
        "nf_resnet50",
        "regnety_002",
        "resnet18",
        "swin_tiny_patch4_window7_224",
        "vit_tiny_patch16_224",
    ],
)
def test_recomputing_in_timm_models(same_gradients: Callable[..., int], name: str) -> None:
    pytest.importorskip("timm")
    assert same_gradients(WorkloadSpec(model=f"timm:{name}", image_size=TIMM[name])) >= 8


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "resnet18", "swin_t", "fcn_resnet50"])
def test_recomputing_in_torchvision_models(same_gradients: Callable[..., int], name: str) -> None:
    pytest.importorskip("torchvision")
    image_size, _ = TORCHVISION[name]
    assert same_gradients(WorkloadSpec(model=f"torchvision:{name}", image_size=image_size)) >= 8


@pytest.fixture(scope="module")
def sweep(
    tmp_path_factory: pytest.TempPathFactory, program: Callable[..., Any]
) -> Callable[..., Any]:
    """`sweep(model, *words)`: the document of a sweep of two sizes; the device is probed once."""
    folder = tmp_path_factory.mktemp("sources")

    def run(model: str, *words: str) -> Any:
        document = program(folder, model, *words)
        assert document["workload"]["model"] == model
        return document

    return run


def test_program_with_timm(sweep: Callable[..., Any]) -> None:
    timm = pytest.importorskip("timm")
    document = sweep("timm:test_vit", "--attention", "eager", "--model-option", "num_classes=7")
    count = sum(p.numel() for p in timm.create_model("test_vit", num_classes=7).parameters())
    assert document["facts"]["parameter_count"] == count
    assert document["workload"]["model_options"] == {"num_classes": 7}
    document = sweep("timm:resnet18", "--image-size", "64", "--activation-checkpointing", "full")
    assert document["facts"]["batch_norm_modules"] == 20


def test_program_with_torchvision(sweep: Callable[..., Any]) -> None:
    pytest.importorskip("torchvision")
    detector = "torchvision:fasterrcnn_mobilenet_v3_large_320_fpn"
    for model in ("torchvision:resnet18", detector):
        assert sweep(model, "--image-size", "64")["facts"]["parameter_count"] > 10_000_000
    sweep(detector, "--image-size", "64", "--mode", "infer")


def test_program_with_hugging_face(sweep: Callable[..., Any], config_file: WriteConfig) -> None:
    pytest.importorskip("transformers")
    for head in ("GPT2LMHeadModel", "BertForMaskedLM", "T5ForConditionalGeneration"):
        kind, fields, _ = HUGGING_FACE[head]
        folder = config_file(head, model_type=kind, architectures=[head], **fields)
        document = sweep(f"hf:{folder}", "--seq-len", "32")
        assert document["facts"]["tokens_per_sample"] == 32


def test_program_refuses_what_has_no_effect(config_file: WriteConfig, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    folder = config_file("mine", model_type="gpt2", **GPT2)
    done = subprocess.run(
        [sys.executable, "-m", "bsprof", "sweep", "--model", f"hf:{folder}", "--image-size", "8"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(bsprof.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "--image-size has no effect" in done.stderr
