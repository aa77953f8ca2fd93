from __future__ import annotations

from typing import Any

import pytest

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.resolve import resolve


@pytest.mark.parametrize(
    ("model", "options", "told"),
    [
        ("bert-base", {"layer": 2}, "has no setting 'layer'"),
        ("bert-base", {"layers": 0}, "cannot be built with layers=0"),
        ("bert-base", {"layers": "two"}, "cannot read --model-option layers=two"),
        ("bert-base", {"first_position": -1}, "cannot be built with first_position=-1"),
        ("bert-base", {"dropout": 1.0}, "cannot be built with dropout=1.0"),
        ("bert-base", {"dropout": -0.1}, "cannot be built with dropout=-0.1"),
        ("bert-base", {"heads": 7}, "a width that is a multiple of its heads"),
        ("whisper-tiny", {"heads": 5}, "a width that is a multiple of its heads"),
        ("whisper-tiny", {"frames": 3001}, "cannot be built with frames=3001"),
        ("whisper-tiny", {"width": 57, "heads": 3}, "cannot be built with width=57"),
        ("whisper-tiny", {"depths": "2"}, "needs 2 numbers for the setting depths"),
        ("t5-small", {"depths": "2,2,2"}, "needs 2 numbers for the setting depths"),
        ("t5-small", {"depths": "2,0"}, "cannot be built with depths=2,0"),
        ("ncf-ml-1m", {"widths": "7,4"}, "an even first width"),
        ("ncf-ml-1m", {"widths": "8"}, "at least one layer"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    model: str, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        resolve(WorkloadSpec(model=model, model_options=options))


@pytest.mark.parametrize(
    ("model", "seq_len", "longest", "rows"),
    [
        ("bert-base", 600, 512, 600),
        ("roberta-base", 600, 512, 602),
        ("whisper-tiny", 500, 448, 500),
    ],
)
def test_text_beyond_the_positions_is_refused_with_the_setting_that_helps(
    model: str, seq_len: int, longest: int, rows: int
) -> None:
    with pytest.raises(UsageError, match=f"--seq-len {seq_len} is beyond") as caught:
        resolve(WorkloadSpec(model=model, seq_len=seq_len))
    assert f"at most {longest}, or --model-option positions={rows}" in caught.value.next_step
    resolve(WorkloadSpec(model=model, seq_len=longest))
    resolve(WorkloadSpec(model=model, seq_len=seq_len, model_options={"positions": rows}))
    short = WorkloadSpec(model=model, seq_len=seq_len, model_options={"positions": rows - 1})
    with pytest.raises(UsageError, match="is beyond"):
        resolve(short)


@pytest.mark.parametrize("model", ["lstm-ptb-medium", "ncf-ml-1m"])
def test_attention_that_is_not_there_is_refused(model: str) -> None:
    with pytest.raises(UsageError, match="--attention has no effect"):
        resolve(WorkloadSpec(model=model, attention="eager"))


def test_seq_len_of_pairs_is_refused() -> None:
    with pytest.raises(UsageError, match="--seq-len has no effect"):
        resolve(WorkloadSpec(model="ncf-ml-1m", seq_len=8))
