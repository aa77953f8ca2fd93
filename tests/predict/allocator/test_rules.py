"""Settings as torch reads them, by generation, and what they make of sizes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bsprof.errors import UsageError
from bsprof.predict.allocator import AllocatorRules
from bsprof.predict.target import Software

MIB = 1 << 20
NEW = Software(torch=(2, 14))


def rules(conf, torch=(2, 14)):
    return AllocatorRules.of(Software(torch=torch), conf)


def test_nothing_set():
    assert rules(None) == rules("") == AllocatorRules(torch=(2, 14))


@pytest.mark.parametrize(
    ("conf", "field", "value"),
    [
        ("max_split_size_mb:128", "max_split_bytes", 128 * MIB),
        ("max_non_split_rounding_mb:64", "max_non_split_rounding_bytes", 64 * MIB),
        ("large_segment_size_mb:64", "large_segment_bytes", 64 * MIB),
        ("garbage_collection_threshold:0.8", "garbage_collection_threshold", 0.8),
        ("per_process_memory_fraction:0.5", "memory_fraction", 0.5),
        ("expandable_segments:True", "expandable_segments", True),
        ("expandable_segments:False", "expandable_segments", False),
        (" backend : native , max_split_size_mb : 30 ,", "max_split_bytes", 30 * MIB),
        ("roundup_power2_divisions:8", "divisions", (8,) * 16),
        (
            "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],max_split_size_mb:99",
            "divisions",
            (1,) * 9 + (2, 4) + (8,) * 5,
        ),
        ("roundup_power2_divisions:[4:2,64:8]", "divisions", (2, 2, 2, 0, 0, 0, 8) + (0,) * 9),
        ("roundup_power2_divisions:[>:4]", "divisions", (0,) + (4,) * 15),
        ("roundup_power2_divisions:[262144:4]", "divisions", (4,) * 16),
    ],
)
def test_options(conf, field, value):
    assert getattr(rules(conf), field) == value


def test_before_torch_2_9_the_rest_of_a_list_overwrites_its_last_entry():
    conf = "roundup_power2_divisions:[256:1,512:2,>:8]"
    assert rules(conf, (2, 6)).divisions == (1,) * 9 + (8,) * 7


def test_rounding_of_blocks_that_are_not_split_follows_the_large_segment():
    assert rules("large_segment_size_mb:40").max_non_split_rounding_bytes == 40 * MIB


REFUSED = (
    "max_split_size_mb:19",
    "large_segment_size_mb:10",
    "large_segment_size_mb:40,max_split_size_mb:30",
    "max_split_size_mb:30,large_segment_size_mb:40",
    "max_non_split_rounding_mb:10",
    "garbage_collection_threshold:0",
    "garbage_collection_threshold:1",
    "roundup_power2_divisions:3",
    "roundup_power2_divisions:0",
    "roundup_power2_divisions:[256:0,500:2]",
    "roundup_power2_divisions:[256:1,512:2,>:4",
    "expandable_segments:true",
    "max_split_size_mb",
)
ACCEPTED = (
    "max_split_size_mb:20",
    "large_segment_size_mb:11",
    "large_segment_size_mb:12,max_split_size_mb:15",
    "max_split_size_mb:15,large_segment_size_mb:12",
    "roundup_power2_divisions:1",
    "roundup_power2_divisions:[256:0,512:2]",
    "expandable_segments:True, max_split_size_mb:100,",
    "pinned_use_background_threads:True",
)


@pytest.mark.parametrize("conf", [*REFUSED, "unheard_of:1", "per_process_memory_fraction:1.5"])
def test_what_torch_refuses_is_refused(conf):
    with pytest.raises(UsageError, match="allocator setting") as caught:
        rules(conf)
    assert caught.value.found


@pytest.mark.parametrize("conf", ACCEPTED)
def test_what_torch_accepts_is_accepted(conf):
    assert rules(conf)


@pytest.mark.slow
def test_the_parser_of_the_torch_that_is_here_agrees():
    code = (
        "import json, sys, torch\n"
        "def fine(conf):\n"
        "    try:\n"
        "        torch._C._accelerator_setAllocatorSettings(conf)\n"
        "    except Exception:\n"
        "        return False\n"
        "    return True\n"
        "reset = 'large_segment_size_mb:20'\n"
        "print(json.dumps([(fine(reset), fine(c))[1] for c in json.loads(sys.argv[1])]))\n"
    )
    confs = [*REFUSED, *ACCEPTED]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, json.dumps(confs)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "no attribute '_accelerator_setAllocatorSettings'" in done.stderr:
        pytest.skip("this torch has no such parser")
    assert json.loads(done.stdout) == [False] * len(REFUSED) + [True] * len(ACCEPTED)


@pytest.mark.parametrize(
    ("conf", "since"),
    [
        ("expandable_segments:True", (2, 1)),
        ("garbage_collection_threshold:0.8", (1, 12)),
        ("large_segment_size_mb:40", (2, 11)),
        ("per_process_memory_fraction:0.8", (2, 10)),
        ("max_non_split_rounding_mb:40", (2, 6)),
    ],
)
def test_an_option_that_a_generation_does_not_have(conf, since):
    assert rules(conf, since)
    with pytest.raises(UsageError, match="setting") as caught:
        rules(conf, (since[0], since[1] - 1))
    assert f"since torch {since[0]}.{since[1]}" in caught.value.found


def test_a_generation_before_these_rules():
    with pytest.raises(UsageError, match=r"torch 1\.9"):
        rules("", (1, 9))


def test_another_allocator_is_refused():
    with pytest.raises(UsageError, match="cudaMallocAsync"):
        rules("backend:cudaMallocAsync")


def test_no_caching_is_refused():
    with pytest.raises(UsageError, match="caching") as caught:
        AllocatorRules.from_environment(NEW, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})
    assert caught.value.next_step == "unset it"


def test_the_first_variable_wins_and_both_are_told():
    both = {
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:30",
        "PYTORCH_ALLOC_CONF": "max_split_size_mb:40",
    }
    found = AllocatorRules.from_environment(NEW, both)
    assert found.max_split_bytes == 30 * MIB
    assert len(found.notes) == 1
    assert "both" in found.notes[0]
    del both["PYTORCH_CUDA_ALLOC_CONF"]
    assert AllocatorRules.from_environment(NEW, both).max_split_bytes == 40 * MIB
    assert AllocatorRules.from_environment(Software(torch=(2, 5)), both).max_split_bytes is None
    assert AllocatorRules.from_environment(NEW, {}).notes == ()


def test_an_option_without_effect_on_device_memory_is_noted():
    (note,) = rules("pinned_num_register_threads:8").notes
    assert "pinned_num_register_threads" in note


@pytest.mark.parametrize(
    ("divisions", "requested", "block"),
    [
        (4, 1100 * MIB, 1280 * MIB),  # documented: 1024, 1280, 1536, 1792, 2048
        (4, 1280 * MIB, 1280 * MIB),
        (4, 1281 * MIB, 1536 * MIB),
        (4, 2047, 2048),  # too small for steps
        (4, 2049, 2560),
        (1, 1100 * MIB + 1, 1100 * MIB + 512),
        (8, 1024 * MIB, 1024 * MIB),
    ],
)
def test_blocks_in_steps_between_powers_of_two(divisions, requested, block):
    assert rules(f"roundup_power2_divisions:{divisions}").block_bytes(requested) == block


def test_steps_by_size():
    found = rules("roundup_power2_divisions:[2:8,4:2,>:1]")
    assert found.block_bytes(2 * MIB + 1) == 2 * MIB + MIB // 4
    assert found.block_bytes(4 * MIB + 1) == 6 * MIB
    assert found.block_bytes(9 * MIB + 1) == 9 * MIB + 512
    assert found.block_bytes(MIB + 1) == MIB + MIB // 8
