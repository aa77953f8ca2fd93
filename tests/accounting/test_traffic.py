"""Bytes moved, against sums written out by hand. Four bytes an element unless said."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name

from bsprof.accounting.counter import OperatorCounter
from bsprof.accounting.traffic import tensor_bytes

A, B, ROW = torch.randn(8, 16), torch.randn(8, 16), torch.randn(16)
SIZE = 8 * 16 * 4
INDEX = torch.tensor([1, 3, 5])


def moved(call: Callable[[], object]) -> int:
    with OperatorCounter() as counter:
        call()
    assert counter.totals.uncounted == ()
    return counter.totals.bytes_moved


@pytest.mark.parametrize(
    ("name", "call", "expected"),
    [
        ("read both, write one", lambda: A + B, 3 * SIZE),
        ("a broadcast row is read once", lambda: A + ROW, 2 * SIZE + 64),
        ("an expanded row is read once", lambda: A + ROW.expand(8, 16), 2 * SIZE + 64),
        ("in place: self read and written", lambda: A.clone().add_(B), 2 * SIZE + 3 * SIZE),
        ("views are free", lambda: A.t().view(2, 8, 8)[0], 0),
        ("copy_ does not read its target", lambda: torch.empty(8, 16).copy_(B), 2 * SIZE),
        ("fill_ only writes", lambda: torch.empty(8, 16).fill_(1.0), SIZE),
        ("random only writes", lambda: torch.empty(8, 16).normal_(), SIZE),
        ("out= is written, not read", lambda: torch.add(A, B, out=torch.empty(8, 16)), 3 * SIZE),
        ("foreach adds up", lambda: torch._foreach_add([A, A], [B, B]), 6 * SIZE),
        ("foreach in place", lambda: torch._foreach_mul_([A.clone()], 2.0), 4 * SIZE),
        ("lookup reads rows it takes", lambda: A[INDEX], 24 + 2 * 3 * 64),
        ("embedding", lambda: F.embedding(INDEX, A), 24 + 2 * 3 * 64),
        ("index_select", lambda: A.index_select(0, INDEX), 24 + 2 * 3 * 64),
        (
            "scatter in place touches its targets",
            lambda: A.scatter_add_(1, INDEX[:, None], B[:3, :1]),
            3 * 8 + 3 * 3 * 4,
        ),
        ("scatter out of place copies first", lambda: A.index_add(0, INDEX, B[:3]), 2 * SIZE + 600),
        ("a product", lambda: A @ B.t(), 2 * SIZE + 8 * 8 * 4),
        ("half the type, half the bytes", lambda: A.bfloat16(), SIZE + SIZE // 2),
        ("a sum writes one element", lambda: A.sum(), SIZE + 4),
        ("reading a number is no kernel", lambda: A[0, 0].item(), 0),
        ("an allocation moves nothing", lambda: torch.empty_like(A), 0),
    ],
)
def test_moved(name: str, call: Callable[[], object], expected: int) -> None:
    assert moved(call) == expected, name


def test_batch_norm_reads_and_writes_its_input_once() -> None:
    x = torch.randn(4, 6, 5, 5)
    norm = torch.nn.BatchNorm2d(6)
    with OperatorCounter() as counter:
        norm(x)
    # Input and output; weight, bias; running and saved statistics; the batch counter.
    small = 10 * 6 * 4 + 16
    assert 2 * x.nbytes <= counter.totals.bytes_moved <= 2 * x.nbytes + small


def test_cross_entropy_moves_logits_twice_forward() -> None:
    logits, target = torch.randn(32, 100), torch.randint(0, 100, (32,))
    # log_softmax reads and writes; nll_loss reads an entry a row, as target, loss, weight small.
    total = moved(lambda: F.cross_entropy(logits, target))
    assert total == 2 * logits.nbytes + target.nbytes + 32 * 4 + 8


def test_the_loss_of_a_class_has_a_gradient_of_zeros_but_for_an_entry_a_row() -> None:
    logits = torch.randn(32, 100, requires_grad=True)
    target = torch.randint(0, 100, (32,))
    loss = F.nll_loss(logits, target)
    # A one like the loss to begin with; the gradient, and the entries of the targets again.
    total = moved(lambda: loss.backward())
    assert total == 2 * 4 + logits.nbytes + target.nbytes + 32 * 4


def test_fused_adamw_does_not_write_gradients() -> None:
    weight = torch.nn.Parameter(torch.randn(64, 64))
    weight.grad = torch.randn(64, 64)
    optimizer = torch.optim.AdamW([weight], fused=True)
    optimizer.step()
    # Parameter, gradient and two moments read; parameter and moments written; the step counter.
    assert weight.nbytes * 7 <= moved(optimizer.step) <= weight.nbytes * 7 + 16


def test_sparse_tensors_count_what_they_store() -> None:
    sparse = torch.eye(8).to_sparse()
    assert tensor_bytes(sparse) == 8 * 4 + 2 * 8 * 8
    assert tensor_bytes(torch.empty(0)) == 0
    assert tensor_bytes(torch.ones(1).expand(1000)) == 4
