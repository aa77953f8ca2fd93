"""The doctor's checks, each made to speak by what it is shown."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from bsprof.measure import doctor
from bsprof.measure.doctor import CheckStatus, ask_torch, examine
from bsprof.measure.host import HostMemory

GOOD = {
    "version": "2.13.0+cpu",
    "threads": 1,
    "cuda_build": None,
    "hip_build": None,
    "devices": [],
}
CUDA = GOOD | {"cuda_build": "12.8", "devices": [["cuda", 0, "NVIDIA H200"]]}


def checks(tmp_path, facts=GOOD, environment=None, store=None):
    found = examine(
        store=store or tmp_path, environment=environment or {}, torch_facts=lambda: facts
    )
    return {check.name: check for check in found}


def test_a_healthy_machine(tmp_path):
    found = checks(tmp_path)
    names = ["python", "torch", "devices", "memory", "threads", "store", "nvml", "allocator"]
    assert list(found) == names
    assert found["torch"].found == "2.13.0+cpu"
    assert all(check.status is CheckStatus.OK for check in found.values())
    assert all(check.hint == "" for check in found.values())


def test_an_old_python(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "PYTHON_FLOOR", (99, 0))
    check = checks(tmp_path)["python"]
    assert check.status is CheckStatus.FAIL
    assert "99.0" in check.hint


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("2.5.1", CheckStatus.FAIL),
        ("2.6.0+cu124", CheckStatus.OK),
        ("2.13.0", CheckStatus.OK),
        ("3.0.0", CheckStatus.OK),
    ],
)
def test_the_floor_of_torch(tmp_path, version, status):
    assert checks(tmp_path, GOOD | {"version": version})["torch"].status is status


def test_torch_that_cannot_be_imported(tmp_path):
    found = checks(tmp_path, {"error": "ImportError: libcudart.so.12"})
    assert found["torch"].status is CheckStatus.FAIL
    assert "libcudart" in found["torch"].found
    assert "devices" not in found
    assert found["threads"].status is CheckStatus.OK


def test_devices_are_listed(tmp_path):
    assert checks(tmp_path, CUDA)["devices"].found == "cpu, cuda:0 NVIDIA H200"


@pytest.mark.parametrize("build", ["cuda_build", "hip_build"])
def test_a_gpu_build_without_a_gpu(tmp_path, build):
    check = checks(tmp_path, GOOD | {build: "12.8"})["devices"]
    assert check.status is CheckStatus.WARN
    assert "CUDA_VISIBLE_DEVICES" in check.hint


def test_little_memory_names_its_limit(tmp_path, monkeypatch):
    little = HostMemory(
        capacity_bytes=64 * 2**30,
        available_bytes=2**30,
        usable_bytes=2**30,
        other_bytes=0,
        limit_source="cgroup",
    )
    monkeypatch.setattr(doctor.host, "host_memory", lambda: little)
    check = checks(tmp_path)["memory"]
    assert check.status is CheckStatus.WARN
    assert check.found == "1.00 GiB usable of 64.0 GiB, set by a cgroup's limit"


def test_more_threads_than_cores(tmp_path):
    check = checks(tmp_path, GOOD | {"threads": 100_000})["threads"]
    assert check.status is CheckStatus.WARN
    assert "OMP_NUM_THREADS" in check.hint


def test_one_thread_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2}, raising=False)
    check = checks(tmp_path, environment={"OMP_NUM_THREADS": "1"})["threads"]
    assert check.status is CheckStatus.WARN
    assert "unset OMP_NUM_THREADS" in check.hint


def test_a_store_that_is_made_later(tmp_path):
    check = checks(tmp_path, store=tmp_path / "not" / "yet")["store"]
    assert check.status is CheckStatus.OK
    assert "made at the first sweep" in check.found
    assert not (tmp_path / "not").exists()


def test_a_store_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    check = checks(tmp_path, store=tmp_path / "file")["store"]
    assert check.status is CheckStatus.FAIL
    assert "BSPROF_STORE" in check.hint


def test_nvml_matters_only_with_cuda(tmp_path, monkeypatch):
    monkeypatch.setattr("bsprof.measure.devices.nvml.open_nvml", lambda: None)
    assert checks(tmp_path)["nvml"].status is CheckStatus.OK
    assert checks(tmp_path, CUDA)["nvml"].status is CheckStatus.WARN
    assert checks(tmp_path, CUDA | {"hip_build": "6.2"})["nvml"].status is CheckStatus.OK
    monkeypatch.setattr("bsprof.measure.devices.nvml.open_nvml", object)
    assert checks(tmp_path, CUDA)["nvml"].found == "answers"


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "a:1", "PYTORCH_ALLOC_CONF": "b:2"},
            "both set",
        ),
        ({"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}, "cudaMallocAsync"),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "CACHING is set"),
    ],
)
def test_allocator_conflicts(tmp_path, environment, words):
    check = checks(tmp_path, environment=environment)["allocator"]
    assert check.status is CheckStatus.WARN
    assert words in check.found
    assert check.hint


def test_allocator_settings_are_shown(tmp_path):
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    check = checks(tmp_path, environment=environment)["allocator"]
    assert (check.status, check.found) == (CheckStatus.OK, "expandable_segments:True")


def test_a_child_that_dies_or_hangs_is_a_finding(monkeypatch):
    died = SimpleNamespace(returncode=-11, stdout="", stderr="Fatal Python error\nlast words\n")
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_options: died)
    assert ask_torch() == {"error": "importing torch ended with exit status -11: last words"}

    noisy = SimpleNamespace(returncode=0, stdout="not json\n", stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_options: noisy)
    assert "nothing" in str(ask_torch()["error"])

    def hang(*_args: object, **_options: object) -> None:
        raise subprocess.TimeoutExpired("python", 120)

    monkeypatch.setattr(subprocess, "run", hang)
    assert "longer than 120 s" in str(ask_torch()["error"])


def test_the_real_child_answers_and_this_process_stays_light():
    script = (
        "import sys; from bsprof.measure.doctor import examine; found = examine();"
        "print(next(c.status for c in found if c.name == 'torch'), 'torch' in sys.modules)"
    )
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert child.stdout.split() == ["ok", "False"]
