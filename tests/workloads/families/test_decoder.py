from __future__ import annotations

import cmath
import math
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.accounting.counter import OperatorCounter, OperatorTotals
from bsprof.errors import UsageError
from bsprof.records import Mode, Precision, WorkloadSpec
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.families.decoder import Decoder
from bsprof.workloads.families.decoder_parts import Attention, Places, rotation, score_bias
from bsprof.workloads.families.decoder_parts import alibi_slopes as slopes_of
from bsprof.workloads.families.decoder_settings import DecoderSettings
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training

DECODERS = [name for name, entry in entries().items() if entry.family == "decoder"]
KINDS = (
    "gpt2",
    "llama-2-7b",
    "llama-3.2-1b",
    "qwen2.5-0.5b",
    "mistral-7b",
    "gemma-2-2b",
    "phi-3-mini",
    "mpt-7b",
    "mpt-1b",
    "opt-125m",
    "opt-350m",
    "pythia-1b",
)
"""One of every architecture in the catalogue."""
SEQ_LEN = 12


def small(model: str, options: dict[str, Any] | None = None, **more: Any) -> WorkloadSpec:
    """A model with all its peculiarities, and few of everything."""
    config = entries()[model].config
    sizes: dict[str, Any] = {
        "layers": 2,
        "width": 32,
        "heads": 4,
        "key_heads": 4 if config["key_heads"] == config["heads"] else 2,
        "head_width": 8,
        "feed_forward": 24,
        "vocabulary": 61,
        "rotary_width": 8 if config.get("rotary_width") == config["head_width"] else 4,
        "positions": 16,
        "embedding_width": 16,
        "window": 5,
    }
    sizes = {key: value for key, value in sizes.items() if key in config}
    return WorkloadSpec(
        model=model, model_options=sizes | (options or {}), **({"seq_len": SEQ_LEN} | more)
    )


def without_dropout(model: str) -> dict[str, Any]:
    return {key: 0.0 for key in entries()[model].config if key.endswith("dropout")}


def build(spec: WorkloadSpec) -> Training:
    return build_training(spec, resolve(spec), "cpu")


def on_meta(spec: WorkloadSpec) -> nn.Module:
    with torch.device("meta"):
        return resolve(spec).model()


@pytest.mark.parametrize("model", DECODERS)
def test_parameter_count_is_the_published_one(model: str) -> None:
    parameters = on_meta(WorkloadSpec(model=model)).parameters()
    count = sum(p.numel() for p in parameters)
    assert count == pytest.approx(entries()[model].parameters, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("pythia-70m", 18_915_328),
        ("pythia-160m", 85_056_000),
        ("pythia-410m", 302_311_424),
        ("pythia-1b", 805_736_448),
        ("pythia-1.4b", 1_208_602_624),
        ("pythia-2.8b", 2_517_652_480),
    ],
)
def test_pythias_have_the_published_parameters_outside_embeddings(
    model: str, published: int
) -> None:
    # The table in each model card, https://huggingface.co/EleutherAI/pythia-410m.
    named = on_meta(WorkloadSpec(model=model)).named_parameters()
    tables = ("tokens.weight", "head.weight")
    assert sum(p.numel() for name, p in named if name not in tables) == published


def test_foundry_models_have_a_table_of_positions_as_long_as_asked() -> None:
    # params_m of the table with samples of 32768 tokens: 1378.87 million.
    spec = WorkloadSpec(model="mpt-1b", seq_len=32768, model_options={"positions": 32768})
    count = sum(p.numel() for p in on_meta(spec).parameters())
    assert count == pytest.approx(1_378.87e6, rel=1e-5)


@pytest.mark.parametrize("model", KINDS)
def test_learns_one_batch_by_heart(model: str) -> None:
    training = build(small(model, without_dropout(model), optimizer_options={"lr": 0.01}))
    batch = training.make_batch(3)
    first = float(training.workload.loss(training.model, batch).detach())
    assert first == pytest.approx(math.log(61), rel=0.25)
    for step in range(15):
        training.micro_step(batch, 1.0)
        if step == 0:
            without = [n for n, p in training.model.named_parameters() if p.grad is None]
            assert without == []
        assert training.optimizer_step()
        training.zero_grad()
    assert float(training.workload.loss(training.model, batch).detach()) < 0.7 * first


@pytest.mark.parametrize("model", KINDS)
def test_sees_no_future_and_no_other_sample(model: str) -> None:
    training = build(small(model, mode=Mode.INFER))
    tokens, targets = training.make_batch(2)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    changed = tokens.clone()
    changed[0, 8:] = (changed[0, 8:] + 1) % 61
    with torch.no_grad():
        before, after = training.model(tokens), training.model(changed)
    assert torch.allclose(before[0, :8], after[0, :8], atol=1e-5)
    assert torch.allclose(before[1], after[1], atol=1e-5)
    assert not torch.allclose(before[0, 8:], after[0, 8:], atol=1e-3)


@pytest.mark.parametrize("model", KINDS)
def test_eager_attention_equals_the_fused_one(model: str) -> None:
    options = without_dropout(model)
    if "attention_cap" in entries()[model].config:
        options["attention_cap"] = 0.0
    fused = build(small(model, options, attention="sdpa"))
    eager = build(small(model, options, attention="eager"))
    eager.model.load_state_dict(fused.model.state_dict())
    batch = fused.make_batch(2)
    for training in (fused, eager):
        training.micro_step(batch, 1.0)
    for ours, theirs in zip(fused.model.parameters(), eager.model.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)


@pytest.mark.parametrize("model", ["gpt2", "llama-3.2-1b", "gemma-2-2b", "mpt-7b"])
def test_recomputed_blocks_give_the_same_gradient(model: str) -> None:
    plain = build(small(model))
    recomputed = build(small(model, activation_checkpointing="full"))
    gradients = []
    for training in (plain, recomputed):
        batch = training.make_batch(2)
        torch.manual_seed(1)  # dropout
        with OperatorCounter() as counter:
            training.micro_step(batch, 1.0)
        gradients.append([p.grad for p in training.model.parameters()])
        extra = counter.totals.hardware_flops - counter.totals.model_flops
        assert (extra > 0.2 * counter.totals.model_flops) == (training is recomputed)
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-7)


@pytest.mark.parametrize("model", ["llama-3.2-1b", "olmoe-1b-7b", "phi-3-mini", "mpt-7b"])
@pytest.mark.parametrize("precision", [Precision.AMP_BF16, Precision.BF16])
def test_half_precision_runs_without_a_warning(model: str, precision: Precision) -> None:
    training = build(small(model, precision=precision))
    training.micro_step(training.make_batch(2), 1.0)
    assert all(torch.isfinite(p.grad).all() for p in training.model.parameters())


# --- attention against the formulas, token by token ------------------------------------------


def reference(
    x: Tensor, attention: Attention, settings: DecoderSettings, slopes: list[float], window: int
) -> Tensor:
    """Attention of one sample (n, width) with loops over heads and tokens."""
    n, d = len(x), settings.head_width
    kept = settings.heads // settings.key_heads
    rows = []
    for i in range(n):
        parts = []
        for head in range(settings.heads):
            query = turned(attention.query(x[i])[head * d : (head + 1) * d], i, settings)
            span = slice(head // kept * d, (head // kept + 1) * d)
            seen = range(max(0, i - window + 1) if window else 0, i + 1)
            scores = []
            for j in seen:
                key = turned(attention.key(x[j])[span], j, settings)
                score = torch.dot(query, key) / math.sqrt(d)
                if settings.attention_cap:
                    score = settings.attention_cap * torch.tanh(score / settings.attention_cap)
                scores.append(score - slopes[head] * (i - j))
            weights = torch.stack(scores).softmax(0)
            values = torch.stack([attention.value(x[j])[span] for j in seen])
            parts.append(weights @ values)
        rows.append(attention.out(torch.cat(parts)))
    return torch.stack(rows)


def turned(vector: Tensor, place: int, settings: DecoderSettings) -> Tensor:
    """Pairs (i, i + width / 2) as complex numbers, times exp(1j place base ** (-2 i / width))."""
    width = settings.rotary_width
    turned = vector.clone()
    for i in range(width // 2):
        angle = place * settings.rotary_base ** (-2 * i / width)
        pair = complex(vector[i], vector[i + width // 2]) * cmath.exp(1j * angle)
        turned[i], turned[i + width // 2] = pair.real, pair.imag
    return turned


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
@pytest.mark.parametrize(
    "peculiar",
    [
        {},
        {"key_heads": 2, "rotary_width": 8},
        {"key_heads": 1, "rotary_width": 4, "rotary_base": 100},
        {"alibi": True, "window": 3},
        {"key_heads": 2, "attention_cap": 1.5, "rotary_width": 8, "window": 4},
    ],
)
def test_attention_equals_the_formulas(kind: str, peculiar: dict[str, Any]) -> None:
    if kind == "sdpa" and "attention_cap" in peculiar:
        del peculiar["attention_cap"]
    sizes = {"width": 24, "heads": 4, "key_heads": 4, "head_width": 8, "qkv_bias": True}
    rest = {"layers": 1, "feed_forward": 8, "vocabulary": 9, "seq_len": 7}
    settings = DecoderSettings(**(sizes | rest | peculiar))
    torch.manual_seed(0)
    window = settings.window
    attention = Attention(settings, kind, windowed=window > 0)
    x = torch.randn(7, 24) * 2
    slopes = slopes_of(4, x) if settings.alibi else None
    turns = None
    if settings.rotary_width:
        turns = rotation(7, settings.rotary_width, settings.rotary_base, x)
    bias = score_bias(7, window, slopes, x) if kind == "eager" or slopes is not None else None
    near = score_bias(7, window, slopes, x) if window else bias
    with torch.no_grad():
        ours = attention(x[None], Places(turns, bias, near))[0]
        falls = [0.0] * 4 if slopes is None else [2**-2, 2**-4, 2**-6, 2**-8]
        assert torch.allclose(ours, reference(x, attention, settings, falls, window), atol=1e-5)


def test_alibi_slopes_are_the_papers() -> None:
    like = torch.zeros(1)
    assert torch.allclose(slopes_of(8, like), torch.tensor([2.0**-i for i in range(1, 9)]))
    # Not a power of two: of 8 heads' slopes those at odd places, then the others.
    uneven = torch.tensor([2.0**-i for i in (2, 4, 6, 8, 1, 3)])
    assert torch.allclose(slopes_of(6, like), uneven)


def test_fused_attention_masks_by_itself_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bool]] = []
    fused = F.scaled_dot_product_attention

    def watched(*args: Any, attn_mask: Tensor | None, is_causal: bool, **more: Any) -> Tensor:
        seen.append((is_causal, attn_mask is not None))
        return fused(*args, attn_mask=attn_mask, is_causal=is_causal, **more)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    plain, masked = (True, False), (False, True)
    for model, options, expected in (
        ("gpt2", {}, [plain, plain]),
        ("mistral-7b", {"window": 12}, [plain, plain]),
        ("mistral-7b", {"window": 11}, [masked, masked]),
        ("gemma-2-2b", {"attention_cap": 0.0, "window": 5}, [masked, plain]),
        ("mpt-7b", {}, [masked, masked]),
    ):
        seen.clear()
        training = build(small(model, options, attention="sdpa", mode=Mode.INFER))
        training.micro_step(training.make_batch(1), 1.0)
        assert seen == expected
    seen.clear()
    training = build(small("gpt2", attention="eager", mode=Mode.INFER))
    training.micro_step(training.make_batch(1), 1.0)
    assert seen == []


# --- what an entry's settings mean -----------------------------------------------------------


@pytest.mark.parametrize("model", KINDS)
def test_tied_weights_are_one(model: str) -> None:
    decoder = build(small(model)).model
    assert isinstance(decoder, Decoder)
    tied = bool(entries()[model].config.get("tied", False))
    assert (decoder.head.weight is decoder.tokens.weight) == tied


def test_logits_are_capped() -> None:
    training = build(small("gemma-2-2b", mode=Mode.INFER))
    assert isinstance(training.model, Decoder)
    with torch.no_grad():
        training.model.tokens.weight.mul_(1000)
        logits = training.model(training.make_batch(1)[0])
    assert 29.9 < float(logits.abs().max()) <= 30


def test_opt_350m_is_narrow_at_both_ends_and_ends_without_a_norm() -> None:
    names = dict(build(small("opt-350m")).model.named_parameters())
    assert names["tokens.weight"].shape == (61, 16)
    assert names["into.weight"].shape == (32, 16)
    assert names["back.weight"].shape == (16, 32)
    assert "norm.weight" not in names


def test_loss_is_of_logits_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    training = build(small("llama-3.2-1b", precision=Precision.BF16, mode=Mode.INFER))
    types: list[torch.dtype] = []
    entropy = F.cross_entropy

    def watched(logits: Tensor, targets: Tensor) -> Tensor:
        types.append(logits.dtype)
        return entropy(logits, targets)

    monkeypatch.setattr(F, "cross_entropy", watched)
    training.micro_step(training.make_batch(1), 1.0)
    assert types == [torch.float32]


@pytest.mark.parametrize(
    ("model", "most", "option"),
    [("gpt2", 1024, 1025), ("opt-125m", 2048, 2051), ("mpt-1b", 2048, 2049)],
)
def test_learned_positions_bound_the_length(model: str, most: int, option: int) -> None:
    with pytest.raises(UsageError, match=f"--seq-len {most + 1}") as error:
        resolve(WorkloadSpec(model=model, seq_len=most + 1))
    assert f"use at most {most}, or --model-option positions={option}" in str(error.value)
    assert resolve(WorkloadSpec(model=model, seq_len=most)).tokens_per_sample == most
    options = {"positions": option}
    longer = WorkloadSpec(model=model, seq_len=most + 1, model_options=options)
    assert resolve(longer).tokens_per_sample == most + 1


def test_the_last_position_is_the_last_row() -> None:
    training = build(small("opt-125m", seq_len=14))
    training.micro_step(training.make_batch(1), 1.0)
    with pytest.raises(UsageError, match="beyond the positions"):
        build(small("opt-125m", seq_len=15))


def test_rotary_and_alibi_take_any_length() -> None:
    for model in ("llama-2-7b", "mpt-7b", "pythia-1b"):
        assert resolve(WorkloadSpec(model=model, seq_len=9999)).tokens_per_sample == 9999


def test_capped_scores_refuse_the_fused_attention() -> None:
    with pytest.raises(UsageError, match="--attention sdpa cannot") as error:
        resolve(WorkloadSpec(model="gemma-2-2b", attention="sdpa"))
    assert "attention_cap=0" in str(error.value)
    with pytest.raises(UsageError, match="no attention 'flash'"):
        resolve(WorkloadSpec(model="gemma-2-2b", attention="flash"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layers": 0}, "layers=0.*a number above 0"),
        ({"dropout": 1.0}, "dropout=1.0.*from 0 to below 1"),
        ({"activation": "tanh"}, "activation=tanh.*gelu-tanh"),
        ({"key_heads": 3}, "heads=32, key_heads=3"),
        ({"rotary_width": 65}, "head_width=64, rotary_width=65"),
        ({"rotary_width": -2}, "rotary_width=-2.*from 0 up"),
    ],
)
def test_settings_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(WorkloadSpec(model="llama-3.2-1b", model_options=options))
    assert re.search(words, str(error.value), re.DOTALL)


# --- FLOPs, counted without allocating -------------------------------------------------------


def counted(model: str, **more: Any) -> OperatorTotals:
    """The FLOPs of forward and backward of one sample at full size, on fake tensors."""
    workload = resolve(WorkloadSpec(model=model, **more))
    with torch.device("meta"):
        built = workload.model()
    tokens = torch.zeros(1, workload.tokens_per_sample, dtype=torch.long, device="meta")
    with OperatorCounter() as counter:
        workload.loss(built, (tokens, tokens)).backward()
    assert counter.totals.uncounted == ()
    return counter.totals


def looked_up(model: str) -> int:
    """Parameters that are looked up and not multiplied: positions, and an untied embedding."""
    config = entries()[model].config
    found = int(config.get("positions", 0)) * int(config["width"])
    return found + (0 if config.get("tied") else int(config["vocabulary"]) * int(config["width"]))


@pytest.mark.parametrize(
    ("model", "share"),
    [
        ("gpt2", "causal"),
        pytest.param("gpt2-xl", "causal", marks=pytest.mark.slow),
        ("llama-2-7b", "causal"),
        ("llama-3.2-1b", "causal"),
        pytest.param("qwen2.5-0.5b", "causal", marks=pytest.mark.slow),
        ("mistral-7b", "causal"),
        pytest.param("opt-1.3b", "causal", marks=pytest.mark.slow),
        ("pythia-1b", "causal"),
        # Their masks are tensors: every pair is computed.
        pytest.param("phi-3-mini", "all", marks=pytest.mark.slow),
        ("gemma-2-2b", "all"),
        ("mpt-7b", "all"),
    ],
)
def test_flops_are_those_of_palms_formula(model: str, share: str) -> None:
    # Chowdhery et al. 2022, arXiv 2204.02311, appendix B: 6 N + 12 L H Q T per token. N is the
    # published count without what is only looked up; a causal kernel does (T + 1) / 2 pairs.
    entry = entries()[model]
    layers, heads, width, seq_len = (
        int(entry.config[key]) for key in ("layers", "heads", "head_width", "seq_len")
    )
    pairs = seq_len if share == "all" else (seq_len + 1) / 2
    per_token = 6 * (entry.parameters - looked_up(model)) + 12 * layers * heads * width * pairs
    totals = counted(model)
    assert totals.model_flops == pytest.approx(seq_len * per_token, rel=0.02)


def test_flops_of_gpt2_are_those_of_megatrons_formula() -> None:
    # Narayanan et al. 2021, arXiv 2104.04473, section 5.1: 96 B s l h^2 (1 + s/(6h) + V/(16 l h))
    # with everything recomputed: four passes (forward twice). Three of them without; the logits
    # are never recomputed, so their 6 B s h V stays. Masked pairs count.
    s, layers, h, vocabulary = 1024, 12, 768, 50257
    formula = 72 * s * layers * h**2 * (1 + s / (6 * h)) + 6 * s * h * vocabulary
    totals = counted("gpt2", attention="eager")
    assert totals.model_flops == pytest.approx(formula, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "million"), [("mpt-125m", 125.311), ("mpt-1b", 1315.95), ("mpt-7b-foundry", 6658.86)]
)
def test_flops_of_foundry_models_are_those_its_mfu_is_made_of(model: str, million: float) -> None:
    # llm-foundry, scripts/train/benchmarking/README.md: a sequence's forward pass is
    # 2 N s + 4 L d s^2, a step three times that; N as the table there gives it.
    entry = entries()[model]
    s, layers, width = (int(entry.config[key]) for key in ("seq_len", "layers", "width"))
    formula = 3 * (2 * million * 1e6 * s + 4 * layers * width * s**2)
    assert counted(model, attention="eager").model_flops == pytest.approx(formula, rel=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
@pytest.mark.parametrize("model", ["gpt2", "llama-3.2-1b", "gemma-2-2b", "mpt-7b"])
def test_compiles_whole(model: str) -> None:
    training = build(small(model, without_dropout(model)))
    tokens = training.make_batch(2)[0]
    compiled = torch.compile(training.model, fullgraph=True)
    assert torch.allclose(compiled(tokens), training.model(tokens), atol=1e-4)
