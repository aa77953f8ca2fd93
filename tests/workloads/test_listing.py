"""What `--model` knows by name: all of it, parts of it, and how it is written."""

from __future__ import annotations

import pytest

from bsprof.cli.parse import key_values
from bsprof.workloads.catalogue.entries import entries
from bsprof.workloads.listing import (
    FORMS,
    families,
    find_model,
    list_models,
    near_names,
    setting_text,
)
from bsprof.workloads.names import BUILTINS, parse_model


def names(*words: str, **limits: object) -> list[str]:
    return [model.name for model in list_models(*words, **limits)]  # type: ignore[arg-type]


def test_all_models_are_listed_once_and_in_order():
    found = names()
    assert found == sorted({*BUILTINS, *entries()})
    assert len(found) == len(set(found))


@pytest.mark.parametrize("model", list_models(), ids=lambda m: m.name)
def test_every_model_says_what_it_is(model):
    assert model.summary
    assert model.task
    assert model.parameters > 0
    assert bool(model.settings) == bool(model.source) == (model.kind == "catalogue")
    for name in (model.name, *model.aliases):
        assert name == name.lower()
        assert parse_model(name).location == model.name
        assert find_model(name) == model


def test_a_text_is_part_of_a_name_an_alias_the_family_or_the_task():
    assert "llama-3.1-8b" in names("LLAMA")
    assert {"gpt-tiny", "gpt2", "gpt2-xl"} <= set(names("gpt"))
    assert "gpt2" in names("gpt2-sm")
    assert {"gpt-tiny", "gpt2"} <= set(names("decoder"))
    assert names("masked") == [m.name for m in list_models() if "masked" in m.task]
    assert names("no such thing") == []


def test_limits_hold_at_once():
    assert names("gpt", max_parameters=4_000_000) == ["gpt-tiny"]
    small = list_models(family="decoder", min_parameters=10**9, max_parameters=3 * 10**9)
    assert small
    assert all(m.family == "decoder" and 1e9 <= m.parameters <= 3e9 for m in small)
    assert names(task="Segmentation") == names("segmentation")
    (exact,) = list_models("gpt-tiny", min_parameters=3_448_320, max_parameters=3_448_320)
    assert exact.kind == "built-in"
    assert set(families()) == {m.family for m in list_models()}


def test_near_names_are_found_through_aliases_too():
    assert near_names("gtp2")[0] == "gpt2"
    assert near_names("zzzzzzzz") == []


@pytest.mark.parametrize("name", sorted(entries()))
def test_the_small_model_is_an_option_that_the_entry_takes(name):
    model = find_model(name)
    assert model is not None
    if model.small:
        options = key_values("--model-option", [model.small])
        entries()[name].configured(options)


def test_settings_are_written_as_the_option_takes_them():
    assert setting_text((2, 2)) == "2,2"
    assert setting_text(True) == "true"
    assert setting_text(0.1) == "0.1"
    assert setting_text("layer") == "layer"
    for model in list_models():
        for key, value in model.settings.items():
            options = key_values("--model-option", [f"{key}={setting_text(value)}"])
            assert entries()[model.name].configured(options)[key] == value


def test_forms_name_their_package():
    assert [form.package for form in FORMS] == ["timm", "torchvision", "transformers", "", ""]


@pytest.mark.parametrize("name", sorted(BUILTINS))
def test_counts_and_samples_of_built_ins_are_those_of_the_models(name):
    import torch

    from bsprof.records import WorkloadSpec
    from bsprof.workloads.resolve import resolve

    model = find_model(name)
    assert model is not None
    workload = resolve(WorkloadSpec(model=name))
    with torch.device("meta"):
        built = workload.model()
    assert sum(p.numel() for p in built.parameters()) == model.parameters
    inputs = workload.batch(2, torch.device("cpu"))[0]
    if "seq_len" in model.sample:
        assert inputs.shape[1] == model.sample["seq_len"]
    assert workload.uses_image_size == ("image_size" in model.sample)
    if "image_size" in model.sample:
        assert inputs.shape[-1] == model.sample["image_size"]
