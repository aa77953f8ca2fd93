"""The loss behind a compiled model: two fused kernels in place of eager ones."""

from __future__ import annotations

from made_operators import operator, tensor, works

from bsprof.accounting.work import WorkClass
from bsprof.predict.cost.compiled_loss import with_compiled_loss

LOGITS = tensor(40, 100, dtype="bfloat16", block=1)
WIDE = tensor(40, 100, block=2)


def step(*, compiled=True):
    marks = {"compiled": True} if compiled else {}
    product = {"operator_class": "matmul", "flops": 9, **marks}
    back = {"backward": True}
    return [
        operator("mm", [tensor(40, 8), tensor(8, 100)], [LOGITS], **product),
        operator("_to_copy", [LOGITS], [WIDE], operator_class="copy"),
        operator("_log_softmax", [WIDE], [WIDE], operator_class="softmax", dim=1),
        operator("nll_loss_forward", [WIDE], [tensor()], operator_class="loss"),
        operator("nll_loss_backward", [WIDE], [WIDE], operator_class="loss", **back),
        operator("_log_softmax_backward_data", [WIDE], [WIDE], operator_class="softmax", **back),
        operator("_to_copy", [WIDE], [LOGITS], operator_class="copy", **back),
        operator("mm", [LOGITS, tensor(100, 8)], [tensor(40, 8)], **product, **back),
    ]


def test_it_reads_the_model_s_output_and_writes_its_gradient():
    _, forward, backward, _ = works(*with_compiled_loss(step()))
    assert (forward.work_class, forward.name) == (WorkClass.FUSED, "aten.nll_loss_forward")
    assert forward.bytes == LOGITS.bytes + 4
    assert backward.bytes == 2 * LOGITS.bytes
    assert (backward.backward, backward.name) == (True, "aten.nll_loss_backward")


def test_an_eager_run_is_left_alone():
    assert with_compiled_loss(step(compiled=False)) == step(compiled=False)


def test_in_inference_it_is_what_comes_behind():
    forward = [op for op in step() if not op.backward]
    assert [op.name for op in with_compiled_loss(forward)] == ["aten.mm", "aten.nll_loss_forward"]
