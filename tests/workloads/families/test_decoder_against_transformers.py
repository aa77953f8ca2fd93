"""The same weights give the same logits and loss as the models of Hugging Face's transformers."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

transformers = pytest.importorskip("transformers", minversion="5")
pytestmark = pytest.mark.slow

HEADS, WIDTH, FEATURES, VOCABULARY, SEQ_LEN = 4, 32, 48, 61, 14
SIZES = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "vocab_size": VOCABULARY,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "intermediate_size": FEATURES}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}

NAMES = (
    (r"^(model|transformer|gpt_neox)\.(decoder\.)?", ""),
    (r"^(layers|h)\.", "blocks."),
    (r"^(embed_tokens|wte|embed_in)\.", "tokens."),
    (r"^(embed_positions|wpe)\.", "positions."),
    (r"^project_in\.", "into."),
    (r"^project_out\.", "back."),
    (r"^(lm_head|embed_out)\.", "head."),
    (r"^(ln_f|norm_f|final_layer_norm)\.", "norm."),
    (r"\.(self_attn|attn)\.", ".attention."),
    (r"\.(ln_1|norm_1|input_layernorm|self_attn_layer_norm)\.", ".norm1."),
    (r"\.(ln_2|norm_2|post_attention_layernorm|final_layer_norm)\.", ".norm2."),
    (r"\.q_proj\.", ".query."),
    (r"\.k_proj\.", ".key."),
    (r"\.v_proj\.", ".value."),
    (r"\.(c_attn|Wqkv|qkv_proj|query_key_value)\.", ".qkv."),
    (r"\.q_norm\.", ".query_norm."),
    (r"\.k_norm\.", ".key_norm."),
    (r"\.attention\.(c_proj|o_proj|out_proj|dense)\.", ".attention.out."),
    (r"\.ffn\.", ".mlp."),
    (r"\.(fc1|c_fc|dense_h_to_4h)\.", ".up."),
    (r"\.(fc2|c_proj|dense_4h_to_h)\.", ".down."),
    (r"(blocks\.\d)\.(up|down)\.", r"\1.mlp.\2."),
    (r"\.mlp\.gate\.", ".mlp.router."),
    (r"\.shared_expert\.", ".shared."),
    (r"\.shared_expert_gate\.", ".shared_gate."),
    (r"\.(gate|up|down|gate_up)_proj\.", r".\1."),
)
"""Their names as ours, applied in order."""
GEMMA_NAMES = (
    (r"\.post_attention_layernorm\.", ".norm1_after."),
    (r"\.pre_feedforward_layernorm\.", ".norm2."),
    (r"\.post_feedforward_layernorm\.", ".norm2_after."),
    *NAMES,
)

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "gpt2": (
        lambda: transformers.GPT2Config(
            vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=2, n_head=HEADS, n_inner=FEATURES
        ),
        {"positions": 1024, **NO_DROPOUT, "embedding_dropout": 0.0},
    ),
    "llama-2-7b": (
        lambda: transformers.LlamaConfig(**GROUPED, rms_norm_eps=1e-5),
        {"key_heads": 2},
    ),
    "qwen2.5-0.5b": (
        lambda: transformers.Qwen2Config(
            **GROUPED, tie_word_embeddings=True, rope_parameters=_rope(1e6)
        ),
        {"key_heads": 2},
    ),
    "mistral-7b": (
        lambda: transformers.MistralConfig(**GROUPED, rms_norm_eps=1e-5, sliding_window=5),
        {"key_heads": 2, "window": 5},
    ),
    "gemma-2-2b": (
        lambda: transformers.Gemma2Config(
            **GROUPED,
            head_dim=WIDTH // HEADS,
            query_pre_attn_scalar=WIDTH // HEADS,
            sliding_window=5,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
        ),
        {"key_heads": 2, "window": 5, "attention_cap": 2.0, "logit_cap": 3.0},
    ),
    "phi-3-mini": (
        lambda: transformers.Phi3Config(
            **SIZES, intermediate_size=FEATURES, rms_norm_eps=1e-5, sliding_window=5
        ),
        {"window": 5},
    ),
    "mpt-7b": (
        lambda: transformers.MptConfig(
            d_model=WIDTH, n_heads=HEADS, n_layers=2, vocab_size=VOCABULARY, expansion_ratio=4
        ),
        {"feed_forward": 4 * WIDTH},
    ),
    "opt-125m": (lambda: _opt_config(), {"positions": 2050, **NO_DROPOUT}),
    "opt-350m": (
        lambda: _opt_config(word_embed_proj_dim=16, do_layer_norm_before=False),
        {"positions": 2050, "embedding_width": 16, **NO_DROPOUT},
    ),
    "pythia-1b": (
        lambda: transformers.GPTNeoXConfig(
            **SIZES, intermediate_size=FEATURES, rope_parameters={**_rope(1e4), **_QUARTER}
        ),
        {"rotary_width": 2},
    ),
    "mixtral-8x7b": (
        lambda: transformers.MixtralConfig(
            **GROUPED, num_local_experts=4, rope_parameters=_rope(1e6)
        ),
        {"key_heads": 2, "experts": 4, "capacity_factor": 2.0},
    ),
    "olmoe-1b-7b": (
        lambda: transformers.OlmoeConfig(
            **SIZES, intermediate_size=FEATURES, num_experts=6, num_experts_per_tok=3
        ),
        {"experts": 6, "chosen": 3, "capacity_factor": 2.0},
    ),
    "qwen1.5-moe-a2.7b": (
        lambda: transformers.Qwen2MoeConfig(
            **GROUPED,
            moe_intermediate_size=FEATURES,
            shared_expert_intermediate_size=20,
            num_experts=6,
            num_experts_per_tok=3,
            rope_parameters=_rope(1e6),
        ),
        {
            "experts": 6,
            "chosen": 3,
            "capacity_factor": 2.0,
            "shared_feed_forward": 20,
            "key_heads": 2,
        },
    ),
}
"""Their configuration, and the settings that make ours the same."""
_QUARTER = {"partial_rotary_factor": 0.25}


def _rope(base: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": base}


def _opt_config(**more: Any) -> Any:
    return transformers.OPTConfig(**SIZES, ffn_dim=FEATURES, **({"word_embed_proj_dim": 32} | more))


def renamed(model: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their weights under our names and in our layouts."""
    ours: dict[str, Tensor] = {}
    for name, weight in state.items():
        for pattern, replacement in GEMMA_NAMES if model.startswith("gemma") else NAMES:
            name = re.sub(pattern, replacement, name)
        if model == "gpt2" and re.search(r"(qkv|out|up|down)\.weight", name):
            weight = weight.T  # their layers are written the other way round
        if model == "pythia-1b" and ".qkv." in name:
            # Theirs runs through heads, then query, key, value; ours the other way.
            split = weight.unflatten(0, (HEADS, 3, -1))
            weight = split.transpose(0, 1).flatten(0, 2)
        if name.endswith("experts.gate_up_proj"):
            gate, up = weight.transpose(1, 2).chunk(2, dim=2)
            ours[name.replace("gate_up_proj", "gate")] = gate
            ours[name.replace("gate_up_proj", "up")] = up
        elif name.endswith("experts.down_proj"):
            ours[name.replace("down_proj", "down")] = weight.transpose(1, 2)
        else:
            ours[name] = weight
    return ours


@pytest.mark.filterwarnings("ignore")  # transformers' own
@pytest.mark.parametrize("model", CASES)
def test_same_logits_and_loss(model: str) -> None:
    config, settings = CASES[model]
    torch.manual_seed(0)
    theirs = transformers.AutoModelForCausalLM.from_config(config()).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
    sizes = {
        "layers": 2,
        "width": WIDTH,
        "heads": HEADS,
        "key_heads": HEADS,
        "head_width": WIDTH // HEADS,
        "feed_forward": FEATURES,
        "vocabulary": VOCABULARY,
        "rotary_width": WIDTH // HEADS,
    }
    options = {k: v for k, v in sizes.items() if k in entries()[model].config} | settings
    spec = WorkloadSpec(model=model, model_options=options, seq_len=SEQ_LEN, mode=Mode.INFER)
    training = build_training(spec, resolve(spec), "cpu")
    training.model.load_state_dict(renamed(model, theirs.state_dict()), strict=True)
    text = torch.randint(VOCABULARY, (2, SEQ_LEN + 1))
    with torch.no_grad():
        expected = theirs(text, labels=text)
        logits = training.model(text[:, :-1])
        loss = training.workload.loss(training.model, (text[:, :-1], text[:, 1:]))
    assert logits.std() > 0.3
    assert torch.allclose(logits, expected.logits[:, :-1], rtol=1e-4, atol=1e-4)
    assert torch.allclose(loss, expected.loss, rtol=1e-5)
