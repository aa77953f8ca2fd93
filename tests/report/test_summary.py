"""What the terminal shows of a profile and of a recommendation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

from bsprof.records import Origin, Profile, Recommendation
from bsprof.report.summary import profile_summary, recommendation_summary


def test_a_profile_tells_its_size_its_points_and_its_limits(profile: Profile) -> None:
    summary = profile_summary("cpu/gpt-tiny/1", profile)
    assert summary.title == ("gpt-tiny: confirmed size 16, 44.8 samples/s with accumulation of one")
    facts = dict(summary.facts)
    assert facts["device"] == "AMD EPYC 9B14, 2 threads"
    assert facts["points"] == "8 ok, 2 out of memory"
    assert facts["largest that fits"] == "74 (71 to 77)"
    assert facts["usable memory"] == "3.00 GiB of 16.0 GiB (option)"
    assert facts["measured"] == "2026-03-14T09:26:53Z, 11.3 s"
    assert facts["profile"] == "cpu/gpt-tiny/1"
    assert len(summary.table.rows) == 10


def test_a_profile_without_a_usable_point_says_so(profile_of: Callable[..., Profile]) -> None:
    for failed in ((1, 2), ()):
        summary = profile_summary("", profile_of((), failed))
        assert summary.title == "gpt-tiny: no micro-batch size ran"
        assert "profile" not in dict(summary.facts)


def test_a_predicted_profile_is_not_called_measured(profile: Profile) -> None:
    facts = dict(profile_summary("", replace(profile, origin=Origin.PREDICTED)).facts)
    assert "predicted for" in facts
    assert "predicted" in facts
    assert "measured" not in facts


def test_a_recommendation_tells_plan_time_memory_and_certainty(
    profile: Profile, recommendation_of: Callable[..., Recommendation]
) -> None:
    answer = recommendation_of(profile="cpu/gpt-tiny/1")
    summary = recommendation_summary(answer, profile)
    facts = dict(summary.facts)
    assert summary.title == "micro-batch 16 x 128 accumulation steps"
    assert facts["effective batch"] == "2,048, exact"
    assert facts["update"] == "44.2 s +-0.6 %"
    assert facts["tokens/s"] == "5,935 +-0.6 %"
    assert facts["peak memory"] == "780 MiB of 3.00 GiB usable"
    assert facts["headroom"] == "2.24 GiB free, 5.0 % asked"
    assert facts["regime"] == "compute bound"
    assert facts["knee"] == "9 (7 to 11)"
    assert facts["checked"] == "ran again in a fresh process and fitted"
    assert facts["profile"] == "cpu/gpt-tiny/1"
    assert "pieces" not in facts
    assert summary.reasons == answer.reasons
    assert summary.notes == ("The peaks were measured on this machine.",)


def test_without_the_profile_only_what_needs_it_is_left_out(
    recommendation_of: Callable[..., Recommendation],
) -> None:
    facts = dict(recommendation_summary(recommendation_of()).facts)
    assert "tokens/s" not in facts
    assert facts["peak memory"] == "780 MiB"


def test_unequal_pieces_ranks_and_a_missed_target_are_told(
    recommendation_of: Callable[..., Recommendation],
) -> None:
    answer = recommendation_of(48, 2000, 4)
    target = replace(answer.target, target_batch=2004, target_tokens=256_512, headroom_bytes=2**30)
    facts = dict(recommendation_summary(replace(answer, target=target)).facts)
    assert facts["pieces"] == "ranks 0 to 3: 10 x 48 + 1 x 20"
    assert facts["effective batch"] == "2,000, -4 off target (target 256,512 tokens)"
    assert facts["samples/s"].endswith("over all ranks")
    assert facts["headroom"].endswith("1.00 GiB asked")
    assert facts["checked"].startswith("measured once")
    interpolated = replace(answer, plan=replace(answer.plan, interpolated=True))
    assert dict(recommendation_summary(interpolated).facts)["checked"].startswith("no: interp")


def test_the_package_and_its_summaries_load_nothing_heavy() -> None:
    code = (
        "import sys, bsprof.report, bsprof.report.summary, bsprof.report.markdown\n"
        "heavy = {'torch', 'numpy', 'scipy', 'pandas', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
