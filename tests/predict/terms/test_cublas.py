"""cuBLAS workspaces: their sizes by device and torch, and where they are taken."""

from __future__ import annotations

import pytest
from made_runs import MIB, device, operator, stream, tensor

from bsprof.predict.target import Software
from bsprof.predict.terms.cublas import (
    LT_NAME,
    NAME,
    parse_workspace_config,
    workspace_bytes,
    workspace_insertions,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":4096:2:16:8", 8_519_680),  # torch's own default, spelt out
        (":4096:8", 32 * MIB),
        (":16:8", 128 * 1024),
        (":0:0", 0),
        ("nonsense", 4 * MIB),
    ],
)
def test_the_setting_is_read_as_torch_reads_it(text, expected):
    assert parse_workspace_config(text) == expected


@pytest.mark.parametrize(
    ("capability", "torch", "expected"),
    [
        ((8, 0), (2, 13), 8_519_680),
        ((8, 9), (2, 13), 8_519_680),
        ((9, 0), (2, 0), 32 * MIB),
        ((10, 0), (2, 11), 8_519_680),
        ((10, 0), (2, 12), 32 * MIB),
        ((12, 0), (2, 13), 32 * MIB),
        ((11, 0), (2, 13), 8_519_680),
        ((11, 0), (2, 14), 32 * MIB),
    ],
)
def test_default_by_compute_capability_and_torch(capability, torch, expected):
    assert workspace_bytes(device(capability), Software(torch=torch)) == expected


def test_a_setting_overrides_the_default():
    assert workspace_bytes(device((9, 0)), Software(), ":16:8") == 128 * 1024


@pytest.mark.parametrize(("architecture", "expected"), [("cdna3", 128 * MIB), ("rdna3", 32 * MIB)])
def test_hipblas_has_its_own(architecture, expected):
    card = device(None, kind="rocm", architecture=architecture)
    assert workspace_bytes(card, Software()) == expected


def linear_run(**changes):
    """Two linear layers forward and backward, a convolution before them."""
    one, two = tensor(8, 8), tensor(8)
    return stream(
        [
            operator("aten.convolution", 1, inputs=[tensor(1, 8, 4, 4), tensor(8, 8, 3, 3)]),
            operator("aten.addmm", 3, inputs=[two, one, one], outputs=[one]),
            operator("aten.mm", 4, inputs=[one, one], outputs=[one]),
            operator("aten.mm", 6, inputs=[one, one], outputs=[one], backward=True),
            operator("aten.mm", 7, inputs=[one, one], outputs=[one], backward=True),
        ],
        [(512, None, 0)] * 8,
        **changes,
    )


def test_one_block_per_thread_where_it_multiplies_first_kept_to_the_end():
    found = workspace_insertions(linear_run(), device((9, 0)), Software(torch=(2, 13)))
    assert [(i.position, i.bytes, i.until, i.name) for i in found] == [
        (3, 32 * MIB, None, NAME),
        (6, 32 * MIB, None, NAME),
    ]


def test_inference_has_one():
    run = linear_run()
    forward = stream([o for o in run.operators if not o.backward], [(512, None, 0)] * 8)
    assert len(workspace_insertions(forward, device(), Software())) == 1


def test_no_matmul_no_workspace():
    run = stream(linear_run().operators[:1], [(512, None, 0)])
    assert workspace_insertions(run, device(), Software()) == []


def test_a_second_cuda_stream_has_a_block_of_its_own():
    one = [tensor(8, 8, block=block) for block in (0, 1)]
    run = stream(
        [operator("aten.mm", 1 + n, outputs=[operand]) for n, operand in enumerate(one)],
        [(512, None, 0)] * 2,
        streams=[0, 7],
    )
    found = workspace_insertions(run, device(), Software())
    assert [insertion.stream for insertion in found] == [0, 7]


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        ((1, 11), {}),  # cuBLAS asks the driver; the epilogue gets no workspace
        ((1, 12), {LT_NAME: MIB}),
        ((2, 10), {NAME: 2 * 8_519_680, LT_NAME: MIB}),
        ((2, 11), {NAME: 2 * 8_519_680}),  # shared from here on
    ],
)
def test_cublaslt_by_version(torch, expected):
    found = workspace_insertions(linear_run(), device(), Software(torch=torch))
    total: dict[str, int] = {}
    for insertion in found:
        total[insertion.name] = total.get(insertion.name, 0) + insertion.bytes
    assert total == expected


def test_a_setting_of_zero_takes_nothing():
    assert workspace_insertions(linear_run(), device(), Software(), ":0:0") == []
