from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsprof.errors import UsageError, WorkloadError
from bsprof.records import WorkloadSpec
from bsprof.workloads.sources.hf_config import read_config

WriteConfig = Callable[..., Path]


def read(name: object, **options: Any) -> Any:
    return read_config(WorkloadSpec(model=f"hf:{name}", **options), str(name))


def test_folder_and_file_mean_the_same_configuration(config_file: WriteConfig) -> None:
    folder = config_file("mine", model_type="gpt2")
    for name in (folder, folder / "config.json"):
        found = read(name)
        assert found.fields == {"model_type": "gpt2"}
        assert found.source == str(folder)


def test_file_of_another_name_is_named_itself(config_file: WriteConfig) -> None:
    path = config_file("mine", model_type="gpt2") / "config.json"
    other = path.rename(path.with_name("small.json"))
    assert read(other).source == str(other)


def test_folder_without_configuration(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="cannot load the model") as caught:
        read(tmp_path)
    assert caught.value.found == f"no config.json in {tmp_path}"


def test_path_that_is_neither_a_folder_nor_an_id() -> None:
    with pytest.raises(WorkloadError, match="downloads nothing") as caught:
        read("./no/such/folder/")
    assert "hf download" not in caught.value.next_step


@pytest.mark.parametrize("text", ["{", '["a list"]', '{"hidden_size": 4}', "\xff"])
def test_file_that_is_no_configuration(config_file: WriteConfig, text: str) -> None:
    path = config_file("mine") / "config.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(WorkloadError, match="the configuration of hf:") as caught:
        read(path)
    assert str(path) in caught.value.found


def test_remote_code_runs_only_when_asked_for(config_file: WriteConfig) -> None:
    folder = config_file("mine", model_type="own", auto_map={"AutoConfig": "own.OwnConfig"})
    with pytest.raises(UsageError, match="runs only when asked for") as caught:
        read(folder)
    assert "--trust-remote-code" in caught.value.next_step
    assert read(folder, trust_remote_code=True).fields["model_type"] == "own"
    with pytest.raises(UsageError, match="--trust-remote-code has no effect"):
        read(config_file("plain", model_type="gpt2"), trust_remote_code=True)


def test_quantized_weights_are_refused(config_file: WriteConfig) -> None:
    folder = config_file("mine", model_type="llama", quantization_config={"bits": 4})
    with pytest.raises(UsageError, match="quantized weights, which cannot be trained"):
        read(folder)
