from __future__ import annotations

import json

import pytest

import bsprof
from bsprof.accumulation.plan_file import as_plan_file, plan_of_pieces, read_plan
from bsprof.errors import PlanFormatError, UsageError
from bsprof.recommend.pieces import exact_pieces
from bsprof.records import PLAN_SCHEMA_VERSION, PieceRun, RankPieces
from bsprof.records.plan_digest import plan_digest


@pytest.fixture
def answer(make_profile):
    return bsprof.recommend_plan(make_profile(), target_batch=97, world_size=3)


@pytest.fixture
def file(answer, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(bsprof.recommendation_document(answer)))
    return path


def changed(file, **changes):
    document = json.loads(file.read_text()) | changes
    file.write_text(json.dumps(document))
    return file


def test_the_file_is_the_plan(file, answer):
    plan = bsprof.load_plan(file)
    assert plan.pieces_by_rank == answer.plan.pieces_by_rank
    assert plan.digest == plan_digest(answer.plan.pieces)
    assert (plan.world_size, plan.effective_batch_size, plan.target_batch) == (3, 97, 97)
    assert plan.micro_batch_size == max(map(max, plan.pieces_by_rank))
    assert plan.accumulation_steps == max(map(len, plan.pieces_by_rank))
    assert as_plan_file(str(file)).digest == as_plan_file(answer).digest
    assert as_plan_file(answer.plan).digest == plan.digest


def test_every_rank_finds_its_pieces_and_its_samples():
    plan = plan_of_pieces([[4, 4, 1], [4, 4, 1], [4, 4], [3]])
    assert [plan.of_rank(rank) for rank in range(4)] == [(4, 4, 1), (4, 4, 1), (4, 4), (3,)]
    assert [plan.offset_of(rank) for rank in range(4)] == [0, 9, 18, 26]
    with pytest.raises(UsageError, match="no rank 4"):
        plan.of_rank(4)


def test_the_digest_is_of_what_is_run_only():
    grouped = (RankPieces(ranks=2, runs=(PieceRun(size=4, count=2),)),)
    one_by_one = (RankPieces.of((4, 4)), RankPieces(runs=(PieceRun(size=4, count=1),) * 2))
    assert plan_digest(grouped) == plan_digest(one_by_one)
    assert plan_digest(grouped) != plan_digest((RankPieces.of((4, 4)),))
    assert plan_digest((RankPieces.of((4, 3)),)) != plan_digest((RankPieces.of((3, 4)),))
    pieces = exact_pieces(10**9, 8, 1, lambda _size: True)
    assert pieces is not None
    assert len(plan_digest(pieces)) == 16


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"schema": PLAN_SCHEMA_VERSION + 1}, "schema"),
        ({"schema": "1"}, "schema"),
        ({"pieces_by_rank": []}, "whole numbers"),
        ({"pieces_by_rank": [[4, 0], [4], [4]]}, "whole numbers"),
        ({"pieces_by_rank": [[97]]}, "world_size 3, and its pieces make 1"),
        ({"effective_batch_size": 96}, "effective_batch_size 96, and its pieces make 97"),
        ({"digest": "0" * 16}, "digest 0000000000000000"),
        ({"target_batch": -1}, "target_batch: -1"),
    ],
)
def test_a_file_that_is_no_plan_of_ours_is_refused(file, changes, found):
    with pytest.raises(PlanFormatError) as raised:
        bsprof.load_plan(changed(file, **changes))
    assert found in raised.value.found
    assert str(file) in raised.value.doing


def test_a_file_without_json_or_without_pieces(tmp_path):
    with pytest.raises(PlanFormatError, match="No such file"):
        bsprof.load_plan(tmp_path / "none.json")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(PlanFormatError, match="no JSON"):
        bsprof.load_plan(tmp_path / "x.json")
    with pytest.raises(PlanFormatError, match="no pieces_by_rank"):
        read_plan({"points": []})
    with pytest.raises(UsageError, match="cannot run a int"):
        as_plan_file(3)  # type: ignore[arg-type]


def test_another_world_size_is_refused_and_what_would_change_is_listed():
    plan = plan_of_pieces([[32] * 8] * 8)
    plan.check_world_size(8)
    with pytest.raises(UsageError) as raised:
        plan.check_world_size(4)
    assert raised.value.doing == "the plan is for 8 ranks, and this run has 4"
    rank, steps, kept = raised.value.found.splitlines()
    assert rank == "samples of a rank per update: 256 -> 512 (2048 in all)"
    assert steps == "micro-steps of a rank per update: 8 -> 16"
    assert kept.startswith("with the pieces as they are: 2048 -> 1024 samples per update, and a")
    assert "--target-batch 2048 --world-size 4" in raised.value.next_step
    with pytest.raises(UsageError, match="cannot give each of 4096 ranks one"):
        plan.check_world_size(4096)
