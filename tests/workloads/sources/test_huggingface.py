from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import WorkloadSpec
from bsprof.workloads.resolve import resolve
from bsprof.workloads.training import Training, build_training

transformers = pytest.importorskip("transformers")
hub = pytest.importorskip("huggingface_hub")
CPU = torch.device("cpu")
WriteConfig = Callable[..., Path]

TEXT: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 99,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "eos_token_id": 1,
    "bos_token_id": 1,
}
BERT: dict[str, Any] = {"model_type": "bert", "architectures": ["BertForMaskedLM"], **TEXT}
VIT: dict[str, Any] = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def spec(folder: object, **options: Any) -> WorkloadSpec:
    return WorkloadSpec(model=f"hf:{folder}", **options)


def test_loss_is_the_models_own(config_file: WriteConfig) -> None:
    workload = resolve(spec(config_file("mine", **GPT2)))
    model = workload.model().eval()
    batch = workload.batch(2, CPU)
    assert torch.equal(workload.loss(model, batch), model(**batch).loss)
    assert workload.count is not None
    assert workload.count(batch) == 2 * 63
    assert workload.tokens_per_sample == 64


def test_weights_are_fp32_whatever_the_file_says(config_file: WriteConfig) -> None:
    for field in ("dtype", "torch_dtype"):
        model = resolve(spec(config_file("mine", **GPT2, **{field: "bfloat16"}))).model()
        assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_tied_weights_are_counted_once(
    config_file: WriteConfig, train: Callable[..., Training]
) -> None:
    facts = train(spec(config_file("mine", **GPT2))).facts
    block = 4 * 32 + (32 * 96 + 96) + (32 * 32 + 32) + (32 * 128 + 128) + (128 * 32 + 32)
    assert facts.parameter_count == 99 * 32 + 64 * 32 + 2 * block + 2 * 32


def test_no_cache_is_made_unless_asked_for(config_file: WriteConfig) -> None:
    folder = config_file("mine", **GPT2)
    for options, kept in (({}, False), ({"use_cache": True}, True)):
        model = resolve(spec(folder, model_options=options)).model()
        assert model.config.use_cache is kept  # type: ignore[union-attr]


def test_length_and_attention(config_file: WriteConfig, train: Callable[..., Training]) -> None:
    folder = config_file("mine", **GPT2)
    for kind in ("eager", "sdpa"):
        training = train(spec(folder, seq_len=8, attention=kind))
        assert training.model.config._attn_implementation == kind  # type: ignore[union-attr]
        assert training.make_batch(3)["input_ids"].shape == (3, 8)
    with pytest.raises(UsageError, match="longer than"):
        resolve(spec(folder, seq_len=65))
    with pytest.raises(UsageError, match="attention 'flash'"):
        resolve(spec(folder, attention="flash"))


def test_attention_without_a_choice_is_refused(config_file: WriteConfig) -> None:
    folder = config_file("mine", model_type="resnet", hidden_sizes=[8, 8], depths=[1, 1])
    with pytest.raises(UsageError, match="--attention has no effect"):
        resolve(spec(folder, attention="eager"))


def test_image_size_is_built_in_where_the_model_has_one(
    config_file: WriteConfig, train: Callable[..., Training]
) -> None:
    folder = config_file("mine", **VIT)
    assert train(spec(folder)).make_batch(1)["pixel_values"].shape == (1, 3, 32, 32)
    training = train(spec(folder, image_size=64, model_options={"num_labels": 5}))
    assert training.make_batch(1)["pixel_values"].shape == (1, 3, 64, 64)
    assert int(training.make_batch(40)["labels"].max()) == 4
    with pytest.raises(UsageError, match="--image-size and --model-option image_size"):
        resolve(spec(folder, image_size=64, model_options={"image_size": 48}))
    with pytest.raises(UsageError, match="--image-size has no effect"):
        resolve(spec(config_file("text", **GPT2), image_size=64))
    with pytest.raises(UsageError, match="--seq-len has no effect"):
        resolve(spec(folder, seq_len=64))


def test_image_size_of_two_numbers_is_square(config_file: WriteConfig) -> None:
    folder = config_file("mine", model_type="pvt_v2", image_size=[64, 96])
    assert resolve(spec(folder)).batch(1, CPU)["pixel_values"].shape == (1, 3, 64, 96)
    made = resolve(spec(folder, image_size=32)).batch(1, CPU)
    assert made["pixel_values"].shape == (1, 3, 32, 32)


def test_options_are_fields_by_either_name(config_file: WriteConfig) -> None:
    folder = config_file("mine", **GPT2)
    for options in ({"n_layer": 1}, {"num_hidden_layers": 1}):
        model = resolve(spec(folder, model_options=options)).model()
        assert len(model.transformer.h) == 1  # type: ignore[union-attr, arg-type]


def test_lists_of_layers_are_cut_with_them(config_file: WriteConfig) -> None:
    fields = {**TEXT, "num_hidden_layers": 3, "num_key_value_heads": 2}
    kinds = ["full_attention", "sliding_attention", "full_attention"]
    folder = config_file("mine", model_type="qwen2", layer_types=kinds, **fields)
    model = resolve(spec(folder, model_options={"num_hidden_layers": 2})).model()
    assert model.config.layer_types == kinds[:2]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_layers": 1}, "near: n_layer"),
        ({"dtype": "bfloat16"}, "--precision"),
        ({"attn_implementation": "eager"}, "--attention"),
        ({"task_specific_params": "x", "nothing": 1}, "no field"),
        ({"id2label": "x"}, "several values"),
    ],
)
def test_options_that_cannot_be_are_refused(
    config_file: WriteConfig, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(spec(config_file("mine", **GPT2), model_options=options))


def test_values_that_transformers_refuses_keep_its_words(config_file: WriteConfig) -> None:
    folder = config_file("mine", **GPT2)
    with pytest.raises(WorkloadError, match="n_layer"):
        resolve(spec(folder, model_options={"n_layer": "many"}))
    asked = spec(folder, model_options={"n_head": 5})
    with pytest.raises(WorkloadError, match="cannot build the model of hf:"):
        build_training(asked, resolve(asked), "cpu")


def test_unknown_type_of_model_names_near_ones(config_file: WriteConfig) -> None:
    with pytest.raises(WorkloadError, match="knows no models of type 'berts'") as caught:
        resolve(spec(config_file("mine", model_type="berts")))
    assert "bert" in caught.value.found


@pytest.mark.parametrize(
    ("architectures", "head"), [(None, "BertForMaskedLM"), (["BertModel"], "BertForMaskedLM")]
)
def test_head_is_chosen_where_none_is_named_and_told(
    config_file: WriteConfig, architectures: list[str] | None, head: str
) -> None:
    workload = resolve(spec(config_file("mine", **{**BERT, "architectures": architectures})))
    assert type(workload.model()).__name__ == head
    (note,) = workload.notes
    assert note.code == "head-chosen"
    assert head in note.message
    assert not resolve(spec(config_file("named", **BERT))).notes


def test_another_head_can_be_chosen(config_file: WriteConfig) -> None:
    options = {"architectures": "BertForTokenClassification", "num_labels": 7}
    workload = resolve(spec(config_file("mine", **BERT), model_options=options))
    assert type(workload.model()).__name__ == "BertForTokenClassification"
    assert not workload.notes
    assert int(workload.batch(20, CPU)["labels"].max()) == 6


def test_first_of_several_heads_of_a_kind_is_chosen(config_file: WriteConfig) -> None:
    fields = {key: value for key, value in VIT.items() if key != "architectures"}
    workload = resolve(spec(config_file("mine", **{**fields, "model_type": "deit"})))
    assert type(workload.model()).__name__ == "DeiTForImageClassification"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({**BERT, "architectures": ["BertForPreTraining"]}, "BertForMaskedLM, BertLMHeadModel"),
        ({"model_type": "clip", "architectures": ["CLIPModel"]}, "several kinds of input"),
        (
            {"model_type": "sam", "architectures": ["SamModel"]},
            "measure it through a factory of your own",
        ),
    ],
)
def test_heads_without_a_known_loss_are_refused(
    config_file: WriteConfig, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(spec(config_file("mine", **fields)))


def test_head_that_takes_no_labels_is_told(config_file: WriteConfig) -> None:
    name = "DeiTForImageClassificationWithTeacher"
    workload = resolve(
        spec(config_file("mine", **{**VIT, "model_type": "deit", "architectures": [name]}))
    )
    with pytest.raises(WorkloadError, match="computes no loss"):
        workload.model()


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_id_in_the_local_cache(
    config_file: WriteConfig, hub_cache: Path, train: Callable[..., Training]
) -> None:
    model = hub_cache / "models--someone--small"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("0123")
    snapshot = model / "snapshots" / "0123"
    snapshot.parent.mkdir()
    config_file("mine", **GPT2).rename(snapshot)
    assert train(spec("someone/small")).facts.tokens_per_sample == 64


def test_id_that_is_not_cached_says_how_to_fetch_it(hub_cache: Path) -> None:
    assert not hub_cache.exists()
    with pytest.raises(WorkloadError, match="downloads nothing") as caught:
        resolve(spec("someone/not-here"))
    assert "hf download someone/not-here config.json" in caught.value.next_step


def test_hub_is_offline_only_while_a_model_is_read(
    config_file: WriteConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    constants = hub.constants
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    seen = []
    real = transformers.AutoConfig.from_pretrained

    def from_pretrained(*arguments: Any, **options: Any) -> Any:
        seen.append((os.environ["HF_HUB_OFFLINE"], constants.HF_HUB_OFFLINE))
        assert options["local_files_only"] is True
        return real(*arguments, **options)

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", from_pretrained)
    resolve(spec(config_file("mine", **GPT2)))
    assert seen == [("1", True)]
    assert (os.environ["HF_HUB_OFFLINE"], constants.HF_HUB_OFFLINE) == ("0", False)


OWN_CODE = {
    "configuration_own.py": """
from transformers import PretrainedConfig

class OwnConfig(PretrainedConfig):
    model_type = "own-model"

    def __init__(self, vocab_size=50, hidden_size=8, **more):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        super().__init__(**more)
""",
    "modeling_own.py": """
import torch
from torch import nn
from transformers import PreTrainedModel
from .configuration_own import OwnConfig

class OwnForCausalLM(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids, labels=None):
        logits = self.head(self.tokens(input_ids))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits
""",
}


def test_code_of_a_models_own_runs_when_it_is_trusted(
    config_file: WriteConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    train: Callable[..., Training],
) -> None:
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    folder = config_file(
        "own",
        model_type="own-model",
        architectures=["OwnForCausalLM"],
        auto_map={
            "AutoConfig": "configuration_own.OwnConfig",
            "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
        },
    )
    for name, text in OWN_CODE.items():
        (folder / name).write_text(text)
    with pytest.raises(UsageError, match="runs only when asked for"):
        resolve(spec(folder))
    assert not (tmp_path / "modules").exists()
    asked = spec(folder, trust_remote_code=True, seq_len=6, model_options={"hidden_size": 4})
    training = train(asked)
    assert type(training.model).__name__ == "OwnForCausalLM"
    assert training.facts.parameter_count == 50 * 4 + 4 * 50 + 50


@pytest.mark.parametrize("fields", [GPT2, BERT, VIT], ids=lambda fields: fields["model_type"])
def test_recomputing_changes_no_gradient(
    config_file: WriteConfig, same_gradients: Callable[..., int], fields: dict[str, Any]
) -> None:
    assert same_gradients(spec(config_file("mine", **fields))) == 2
