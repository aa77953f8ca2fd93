"""What lies outside the allocator, by device and software."""

from __future__ import annotations

import pytest
from made_runs import MIB, device

from bsprof.predict.target import Software
from bsprof.predict.terms import NOMINAL, VARIANTS, outside_bytes, outside_terms
from bsprof.predict.terms.variant import End
from bsprof.records import Place, Quantity

NEW = Software()
OLD = Software(torch=(1, 12), cudnn=8, cuda=(11, 3))


def test_lazy_loading_halves_the_context():
    lazy, eager = (outside_terms(device(), software)[0].bytes for software in (NEW, OLD))
    assert lazy.high < eager.low
    assert eager.value > 2 * lazy.value


@pytest.mark.parametrize(
    ("torch", "cuda", "lazy"),
    [((1, 13), (11, 7), True), ((1, 13), (11, 6), False), ((1, 12), (11, 7), False)],
)
def test_both_torch_and_cuda_must_know_it(torch, cuda, lazy):
    term = outside_terms(device(), Software(torch=torch, cuda=cuda))[0]
    assert (term.bytes == outside_terms(device(), NEW)[0].bytes) == lazy


def test_a_figure_of_the_device_wins():
    own = Quantity.exact(426 * MIB)
    card = device(context_bytes=own, sources={"context_bytes": "measured"})
    assert outside_terms(card, NEW)[0].bytes == own
    assert outside_terms(card, NEW)[0].source == "measured"
    assert outside_terms(card, OLD)[0].bytes != own  # it was read with lazy loading


def test_old_torch_leaves_cublas_to_the_driver():
    assert [term.name for term in outside_terms(device(), NEW)] == ["CUDA context"]
    assert [term.name for term in outside_terms(device(), OLD)] == [
        "CUDA context",
        "cuBLAS workspace",
    ]


def test_communicators_need_ranks():
    assert len(outside_terms(device(), NEW, world_size=1)) == 1
    linked = device(links_bytes_per_s={"nvlink": 3e11})
    terms = [outside_terms(card, NEW, world_size=2)[-1] for card in (device(), linked)]
    assert [term.name for term in terms] == ["NCCL buffers"] * 2
    assert terms[0].bytes.value < terms[1].bytes.value == 480 * MIB


def test_a_variant_takes_an_end_of_the_interval():
    terms = outside_terms(device(), NEW)
    assert outside_bytes(terms, NOMINAL) == round(terms[0].bytes.value)
    taken = {outside_bytes(terms, variant) for variant in VARIANTS}
    assert {round(terms[0].bytes.low), round(terms[0].bytes.high)} <= taken
    assert all(term.place is Place.OUTSIDE for term in terms)
    assert End.LOW.of(Quantity(value=2, low=1, high=3)) == 1
