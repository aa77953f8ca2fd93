from __future__ import annotations

import torch

from bsprof.accounting.counter import OperatorCounter
from bsprof.records import Mode, WorkloadSpec
from bsprof.workloads.families.ncf import NeuMF
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import build_training

CPU = torch.device("cpu")


def test_batch_covers_users_items_and_both_answers() -> None:
    workload = resolve(WorkloadSpec(model="ncf-ml-20m"))
    users, items, labels = workload.batch(4096, CPU)
    assert users.shape == items.shape == labels.shape == (4096,)
    assert 26_744 < int(users.max()) < 138_493
    assert 20_000 < int(items.max()) < 26_744
    assert set(labels.tolist()) == {0.0, 1.0}
    assert workload.tokens_per_sample is None
    assert workload.count is None


def test_embeddings_have_dense_gradients() -> None:
    spec = WorkloadSpec(model="ncf-ml-1m")
    training = build_training(spec, resolve(spec), "cpu")
    training.micro_step(training.make_batch(8), 1.0)
    model = training.model
    assert isinstance(model, NeuMF)
    gradient = model.network_users.weight.grad
    assert gradient is not None
    assert gradient.layout == torch.strided
    assert gradient.shape == (6040, 32)
    assert training.facts.tokens_per_sample is None


@torch.no_grad()
def test_product_and_network_are_joined() -> None:
    spec = WorkloadSpec(model="ncf-ml-1m", mode=Mode.INFER)
    model = build_training(spec, resolve(spec), "cpu").model
    assert isinstance(model, NeuMF)
    users, items = torch.tensor([3, 5]), torch.tensor([7, 2])
    product = model.factor_users.weight[users] * model.factor_items.weight[items]
    x = torch.cat([model.network_users.weight[users], model.network_items.weight[items]], 1)
    for layer in model.network:
        x = (x @ layer[0].weight.T + layer[0].bias).clamp(min=0)
    expected = torch.cat([product, x], 1) @ model.head.weight[0] + model.head.bias
    assert torch.allclose(model(users, items), expected, atol=1e-6)


def test_flops_are_those_counted_by_hand() -> None:
    """The network's three products and the joint one; two backward passes of each."""
    workload = resolve(WorkloadSpec(model="ncf-ml-20m"))
    meta = torch.device("meta")
    with meta:
        model = workload.model()
    with OperatorCounter() as counter:
        loss = workload.loss(model, workload.batch(16, meta))
        forward = counter.totals.model_flops
        loss.backward()  # type: ignore[no-untyped-call]
    assert forward == 16 * 2 * (256 * 256 + 256 * 128 + 128 * 64 + 128)
    assert counter.totals.model_flops == 3 * forward
