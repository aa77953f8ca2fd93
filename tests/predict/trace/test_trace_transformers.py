"""Models of transformers: traced, they take the memory of a real run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from trace_ground_truth import check

from bsprof.predict.target import TraceTarget
from bsprof.predict.trace.run import Tracer
from bsprof.predict.trace.scaling import StreamFamily
from bsprof.records import WorkloadSpec

pytest.importorskip("transformers")

SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
}
MODELS: dict[str, dict[str, Any]] = {
    "BertForMaskedLM": {"model_type": "bert", **SIZES},
    "LlamaForCausalLM": {"model_type": "llama", "num_key_value_heads": 2, **SIZES},
    "GPT2LMHeadModel": {
        "model_type": "gpt2",
        "n_embd": 128,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": 1000,
    },
    "T5ForConditionalGeneration": {
        "model_type": "t5",
        "d_model": 128,
        "d_ff": 256,
        "d_kv": 32,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": 1000,
    },
}


@pytest.fixture(autouse=True)
def _packages_may_warn() -> Iterator[None]:
    """Installed packages warn about each other; only bsprof's own warnings are errors."""
    with warnings.catch_warnings():
        warnings.filterwarnings("default", category=Warning)
        yield


def spec(folder: Path, head: str) -> WorkloadSpec:
    """A workload of a configuration file."""
    (folder / "config.json").write_text(json.dumps({"architectures": [head], **MODELS[head]}))
    return WorkloadSpec(model=f"hf:{folder}", seq_len=64)


@pytest.mark.slow
@pytest.mark.parametrize("head", MODELS)
def test_a_step_takes_what_a_real_one_takes(tmp_path, head):
    check(spec(tmp_path, head), kernels_own_share=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("head", MODELS)
def test_two_sizes_give_the_others(tmp_path, head):
    tracer = Tracer(spec(tmp_path, head), TraceTarget())
    family = StreamFamily.of(tracer.trace(3).stream, tracer.trace(7).stream)
    assert family.at(12) == tracer.trace(12).stream
