"""Models written for times: as large as published, and computing what they stand for."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch.utils.flop_counter import FlopCounterMode

from bsprof.validate.models import bert_squad, decoders, eager_blocks, eager_t5, layers, switch


def on_no_device(make):
    with torch.device("meta"):
        return make()


def count(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def macs(model: torch.nn.Module, *inputs: torch.Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        model(*inputs)
    return counter.get_total_flops() // 2


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2-large", 774_030_080),
        ("opt-1.3b", 1_315_758_080),
        ("gpt3-xl", 24 * (12 * 3072**2 + 13 * 3072) + (50_257 + 2048 + 2) * 3072),
    ],
)
def test_decoders_are_as_large_as_published(name, parameters):
    assert count(on_no_device(decoders.workload(name).model)) == parameters


def test_bert_and_switch_are_as_large_as_published():
    assert count(on_no_device(bert_squad.workload().model)) == 108_893_186
    assert count(on_no_device(switch.workload().model)) == pytest.approx(5.27e9, rel=0.001)


def test_a_decoder_multiplies_what_its_dimensions_say():
    shape = decoders.SHAPES["opt-1.3b"]
    tokens = torch.zeros(1, 256, dtype=torch.long, device="meta")
    dense = 12 * shape.layers * shape.width**2 + shape.vocabulary * shape.width
    found = macs(on_no_device(lambda: decoders.Decoder(shape)), tokens)
    assert found == 256 * dense + 2 * shape.layers * 256**2 * shape.width


@pytest.mark.parametrize("length", [128, 512])
def test_a_layer_of_bert_multiplies_what_its_notebook_says(length):
    layer = on_no_device(layers.LAYERS["bert-large"])
    found = macs(layer, torch.empty(2, length, layers.WIDTH, device="meta"))
    assert found == 2 * length * (12 * layers.WIDTH**2 + 2 * length * layers.WIDTH)


def test_bert_is_torchs_encoder_layer():
    torch.manual_seed(0)
    ours = eager_blocks.BertBlock(16, 4, 32).eval()
    theirs = torch.nn.TransformerEncoderLayer(
        16, 4, 32, activation="gelu", layer_norm_eps=1e-12, batch_first=True
    ).eval()
    parts = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.self_attn.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.self_attn.out_proj.load_state_dict(ours.out.state_dict())
    theirs.linear1.load_state_dict(ours.up.state_dict())
    theirs.linear2.load_state_dict(ours.down.state_dict())
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(ours(x), theirs(x))


def test_an_unfused_linear_layer_is_one():
    layer = eager_blocks.UnfusedLinear(6, 3)
    x = torch.randn(2, 5, 6)
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))


def test_gelu_in_eight_operators_is_gelu():
    x = torch.linspace(-4, 4, 50)
    torch.testing.assert_close(eager_blocks.gelu_new(x), F.gelu(x, approximate="tanh"))


@pytest.mark.parametrize("opt", [False, True])
def test_a_token_sees_no_later_one(opt):
    shape = decoders.Shape(opt=opt, layers=2, width=16, heads=2, vocabulary=20, positions=9)
    model = decoders.Decoder(shape).eval().to_empty(device="cpu")
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    for block in model.blocks:
        if not opt:
            block.seen.copy_(torch.ones(9, 9, dtype=torch.bool).tril()[None, None])
    tokens = torch.randint(20, (1, 9))
    changed = tokens.clone()
    changed[0, 6] = (changed[0, 6] + 1) % 20
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_t5s_attention_is_a_softmax_of_unscaled_scores():
    attention = eager_t5.Attention(8, 2, 4).eval()
    x, bias = torch.randn(2, 5, 8), torch.randn(1, 2, 5, 5)
    normed = attention.norm(x)
    query, key, value = (
        eager_blocks.split_heads(part(normed), 2)
        for part in (attention.query, attention.key, attention.value)
    )
    seen = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1.0)
    expected = x + attention.out(seen.transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x, bias), expected)


def test_tokens_beyond_the_experts_capacity_pass_by():
    shape = switch.Shape(layers=2, width=8, heads=2, head=4, hidden=16, experts=2, capacity=3)
    experts = switch.Experts(shape).eval()
    x = torch.randn(1, 10, 8)
    passed = x * F.softmax(experts.router(x), dim=-1).amax(dim=-1, keepdim=True)
    changed = (experts(x) - passed).abs().amax(dim=-1)[0] > 0
    assert changed.tolist() == [True] * 6 + [False] * 4


@pytest.mark.parametrize("layer", sorted(layers.LAYERS))
def test_a_layer_is_trained_by_the_sum_of_its_output(layer):
    workload = layers.workload(layer, seq_len=4, summed=True)
    model = workload.model()
    loss = workload.loss(model, workload.batch(2, torch.device("cpu")))
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_squads_loss_is_of_both_ends():
    workload = bert_squad.workload(seq_len=6, unfused=True)
    model = workload.model()
    loss = workload.loss(model, workload.batch(2, torch.device("cpu")))
    loss.backward()
    assert loss.item() == pytest.approx(torch.log(torch.tensor(6.0)).item(), rel=0.5)
    assert model.head.bias.grad is not None
