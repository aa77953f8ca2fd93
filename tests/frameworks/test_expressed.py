"""Which pieces a framework runs: the plan's, equal ones with the same sum, or the nearest."""

import pytest
from framework_answers import answer, inference, settings

from bsprof.errors import UsageError
from bsprof.frameworks import framework_names, settings_for, verification_table
from bsprof.frameworks.expressed import in_equal_pieces, is_equal
from bsprof.frameworks.verified import VERIFIED
from bsprof.records import RankPieces

EQUAL_ONLY = [name for name in framework_names() if name not in ("pytorch", "composer")]


@pytest.mark.parametrize("framework", framework_names())
@pytest.mark.parametrize(("target", "world_size"), [(64, 1), (1000, 8), (256, 7), (1009, 2)])
def test_what_is_said_is_what_is_run(framework, target, world_size):
    found = settings(framework, target, world_size)
    answered, _ = answer(target, world_size)
    assert found.digest in found.text
    assert "@" not in found.text.replace("@DIGEST@", "@")
    assert found.micro_batch_size <= 48
    if framework in ("pytorch", "composer") or target % world_size == 0:
        assert found.is_exact
        assert found.effective_batch_size == target
    else:
        assert not found.is_exact
        assert (
            found.effective_batch_size
            == found.micro_batch_size * found.accumulation_steps * world_size
        )
        assert f"{found.effective_batch_size:,} samples per update" in found.text.replace(
            "\n#   ", " "
        )
        assert abs(found.effective_batch_size - target) < world_size
    assert VERIFIED[framework].by in found.text.replace("\n#   ", " ")
    assert answered.plan.effective_batch_size == target


@pytest.mark.parametrize("target", range(1, 200))
def test_equal_pieces_have_the_same_sum_wherever_ranks_divide_it(target):
    answered, profile = answer(target)
    found = in_equal_pieces(answered, profile, "X")
    assert is_equal(found.pieces)
    assert found.is_exact
    assert found.micro_batch_size <= answered.plan.micro_batch_size


def test_a_plan_of_equal_pieces_is_left_alone():
    answered, profile = answer(96)
    found = in_equal_pieces(answered, profile, "X")
    assert found.pieces == answered.plan.pieces
    assert found.says == ()


def test_a_prime_share_says_what_it_costs_and_offers_a_neighbour():
    found = in_equal_pieces(*answer(127), "X")
    assert found.pieces == (RankPieces.of((1,) * 127),)
    cost, offer = found.says
    assert "slower than the plan" in cost
    assert "pieces of" in offer


def test_unknown_frameworks_and_inference_are_refused():
    answered, profile = answer(64)
    with pytest.raises(UsageError, match="no settings are known for 'lightning2'") as caught:
        settings_for(answered, profile, "lightning2")
    assert "lightning" in str(caught.value.next_step)
    with pytest.raises(UsageError, match="inference"):
        settings_for(answered, inference(profile), "hf")


def test_the_table_has_all_frameworks():
    rows = verification_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(framework_names())
