"""The families against Hugging Face's transformers: the same sizes, and the same logits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.families.t5 import relative_buckets
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
META = torch.device("meta")
Renamings = list[tuple[str, str]]
"""Patterns of their names, each with ours."""

NAMES = {
    "encoder": ("BertConfig", "BertForMaskedLM"),
    "roberta": ("RobertaConfig", "RobertaForMaskedLM"),
    "t5": ("T5Config", "T5ForConditionalGeneration"),
    "speech": ("WhisperConfig", "WhisperForConditionalGeneration"),
}


def theirs(model: str, **options: Any) -> Any:
    """Their model with an entry's settings, with options of ours over them."""
    entry = entries()[model]
    translated = TRANSLATIONS[entry.family](entry.configured(options))
    config_name, model_name = NAMES["roberta" if "roberta" in model else entry.family]
    return getattr(transformers, model_name)(getattr(transformers, config_name)(**translated))


def encoder_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "num_hidden_layers": settings["layers"],
        "hidden_size": settings["width"],
        "num_attention_heads": settings["heads"],
        "intermediate_size": settings["feed_forward"],
        "vocab_size": settings["vocabulary"],
        "max_position_embeddings": settings["positions"],
        "type_vocab_size": settings["segments"],
        "layer_norm_eps": settings["norm_epsilon"],
    }


def t5_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    encoder_depth, decoder_depth = settings["depths"]
    return {
        "num_layers": encoder_depth,
        "num_decoder_layers": decoder_depth,
        "d_model": settings["width"],
        "num_heads": settings["heads"],
        "d_kv": settings["head_width"],
        "d_ff": settings["feed_forward"],
        "feed_forward_proj": "gated-gelu" if settings["gated"] else "relu",
        "tie_word_embeddings": settings["tied"],
        "vocab_size": settings["vocabulary"],
        "relative_attention_num_buckets": settings["buckets"],
        "relative_attention_max_distance": settings["max_distance"],
        "layer_norm_epsilon": settings["norm_epsilon"],
    }


def speech_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    width, heads = settings["width"], settings["heads"]
    encoder_depth, decoder_depth = settings["depths"]
    return {
        "encoder_layers": encoder_depth,
        "decoder_layers": decoder_depth,
        "d_model": width,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": 4 * width,
        "decoder_ffn_dim": 4 * width,
        "vocab_size": settings["vocabulary"],
        "num_mel_bins": settings["mels"],
        "max_source_positions": settings["frames"] // 2,
        "max_target_positions": settings["positions"],
        "pad_token_id": 0,
    }


TRANSLATIONS = {"encoder": encoder_options, "t5": t5_options, "speech": speech_options}


@pytest.mark.parametrize(
    "model",
    [name for name, entry in entries().items() if entry.family in ("encoder", "speech", "t5")],
)
def test_counts_are_theirs(model: str) -> None:
    with META:
        built, other = resolve(WorkloadSpec(model=model)).model(), theirs(model)
    ours, found = ({id(p): p for p in m.parameters()}.values() for m in (built, other))
    count = sum(p.numel() for p in found)
    if getattr(other.config, "scale_decoder_outputs", True) is False and is_tied(other):
        # transformers 5 always ties the output, which the published weights of 1.1 have apart.
        count += other.shared.weight.numel()
    assert sum(p.numel() for p in ours) == count


def is_tied(model: Any) -> bool:
    return model.lm_head.weight is model.shared.weight


def copied(model: str, renamings: Renamings, **options: Any) -> tuple[nn.Module, Any]:
    """Our model and theirs with their weights, both in evaluation; every weight has a place."""
    torch.manual_seed(0)
    other = theirs(model, **options).eval()
    for parameter in other.parameters():  # biases and norms start alike everywhere
        parameter.data += 0.05 * torch.randn_like(parameter)
    spec = WorkloadSpec(model=model, seq_len=8, mode=Mode.INFER, model_options=options)
    ours = build_training(spec, resolve(spec), "cpu").model
    weights = dict(renamed(other.named_parameters(), renamings))
    weights["head.weight" if hasattr(ours, "head") else "decoder.head.weight"] = (
        other.get_output_embeddings().weight
    )
    ours.load_state_dict(weights)
    return ours, other


def renamed(
    parameters: Iterable[tuple[str, Tensor]], renamings: Renamings
) -> Iterable[tuple[str, Tensor]]:
    for name, value in parameters:
        for pattern, ours in renamings:
            name = re.sub(pattern, ours, name)
        yield name, value


ENCODER: Renamings = [
    (r"^(bert|roberta)\.", ""),
    (r"^embeddings\.word_embeddings", "tokens"),
    (r"^embeddings\.position_embeddings", "positions"),
    (r"^embeddings\.token_type_embeddings", "segments"),
    (r"^embeddings\.LayerNorm", "norm"),
    (r"^encoder\.layer\.", "blocks."),
    (r"attention\.self\.", "attention."),
    (r"attention\.output\.dense", "attention.out"),
    (r"attention\.output\.LayerNorm", "norm1"),
    (r"intermediate\.dense", "mlp.0"),
    (r"output\.dense", "mlp.2"),
    (r"output\.LayerNorm", "norm2"),
    (r"^(cls\.predictions|lm_head)\.bias", "head.bias"),
    (r"^(cls\.predictions\.transform|lm_head)\.dense", "transform.0"),
    (r"^(cls\.predictions\.transform\.LayerNorm|lm_head\.layer_norm)", "transform.2"),
]
T5: Renamings = [
    (r"^shared", "tokens"),
    (r"^lm_head", "head"),
    (r"^(\w+)\.block\.0\.layer\.0\.SelfAttention\.relative_attention_bias", r"\1.bias.table"),
    (r"\.block\.", ".blocks."),
    (r"layer\.0\.layer_norm", "norm1"),
    (r"^(decoder.*)layer\.1\.layer_norm", r"\1cross_norm"),
    (r"layer\.[12]\.layer_norm", "norm2"),
    (r"layer\.0\.SelfAttention", "attention"),
    (r"layer\.1\.EncDecAttention", "cross_attention"),
    (r"layer\.[12]\.DenseReluDense", "mlp"),
    (r"\.q\.", ".query."),
    (r"\.k\.", ".key."),
    (r"\.v\.", ".value."),
    (r"\.o\.", ".out."),
    (r"\.wi_0\.", ".gate."),
    (r"\.wi(_1)?\.", ".up."),
    (r"\.wo\.", ".down."),
    (r"final_layer_norm", "norm"),
]
SPEECH: Renamings = [
    (r"^model\.", ""),
    (r"^encoder\.embed_positions\.weight", "encoder.positions"),
    (r"^decoder\.embed_positions", "decoder.positions"),
    (r"embed_tokens", "tokens"),
    (r"\.layers\.", ".blocks."),
    (r"self_attn_layer_norm", "norm1"),
    (r"encoder_attn_layer_norm", "cross_norm"),
    (r"final_layer_norm", "norm2"),
    (r"layer_norm", "norm"),
    (r"self_attn", "attention"),
    (r"encoder_attn", "cross_attention"),
    (r"\.q_proj", ".query"),
    (r"\.k_proj", ".key"),
    (r"\.v_proj", ".value"),
    (r"\.out_proj", ".out"),
    (r"\.fc1", ".mlp.0"),
    (r"\.fc2", ".mlp.2"),
]


def text(length: int, seed: int) -> Tensor:
    return torch.randint(2, 64, (3, length), generator=torch.Generator().manual_seed(seed))


def close(ours: Tensor, found: Tensor) -> bool:
    assert float(found.std()) > 0.1
    return torch.allclose(ours, found, atol=1e-5 * float(found.abs().max()))


@torch.no_grad()
@pytest.mark.parametrize("model", ["bert-base", "roberta-base"])
def test_logits_of_encoders_are_theirs(model: str) -> None:
    options = {"layers": 3, "width": 48, "heads": 4, "feed_forward": 80, "vocabulary": 64}
    ours, other = copied(model, ENCODER, **options)
    tokens = text(11, seed=1)
    mask = torch.ones(3, 11, dtype=torch.bool)
    assert close(ours(tokens), other(tokens).logits)
    mask[1:, 7:] = False
    assert close(ours(tokens, mask)[mask], other(tokens, attention_mask=mask.long()).logits[mask])
    if model == "bert-base":
        segments = (torch.arange(11) > 5).long().expand(3, 11)
        expected = other(tokens, token_type_ids=segments).logits
        assert close(ours(tokens, segments=segments), expected)


@torch.no_grad()
@pytest.mark.parametrize("model", ["t5-small", "t5-v1.1-small"])
def test_logits_of_t5_are_theirs(model: str) -> None:
    sizes = {"width": 48, "heads": 3, "head_width": 8, "feed_forward": 80, "vocabulary": 64}
    ours, other = copied(model, T5, depths="3,2", **sizes)
    tokens, shifted = text(200, seed=1), text(150, seed=2)
    expected = other(input_ids=tokens, decoder_input_ids=shifted).logits
    assert close(ours(tokens, shifted), expected)


@torch.no_grad()
def test_logits_of_whisper_are_theirs() -> None:
    sizes = {"width": 48, "heads": 4, "vocabulary": 64, "mels": 8, "frames": 60, "positions": 20}
    ours, other = copied("whisper-tiny", SPEECH, depths="3,2", **sizes)
    sound = torch.randn(3, 8, 60, generator=torch.Generator().manual_seed(1))
    tokens = text(13, seed=2)
    expected = other(input_features=sound, decoder_input_ids=tokens).logits
    assert close(ours(sound, tokens), expected)


@torch.no_grad()
def test_positions_of_the_audio_are_theirs() -> None:
    sizes = {"depths": "1,1", "width": 384, "heads": 6, "vocabulary": 64}
    spec = WorkloadSpec(model="whisper-tiny", model_options=sizes)
    ours = dict(resolve(spec).model().named_parameters())["encoder.positions"]
    found = theirs("whisper-tiny", **sizes).model.encoder.embed_positions.weight
    assert torch.allclose(ours, found, atol=1e-3)  # sines of angles up to 1500, in fp32


@pytest.mark.parametrize("both_sides", [False, True])
def test_buckets_are_theirs(both_sides: bool) -> None:
    attention = transformers.models.t5.modeling_t5.T5Attention
    distance = torch.arange(700)[None, :] - torch.arange(700)[:, None]
    expected = attention._relative_position_bucket(distance, bidirectional=both_sides)
    found = relative_buckets(700, 700, buckets=32, max_distance=128, both_sides=both_sides)
    assert torch.equal(found, expected)
