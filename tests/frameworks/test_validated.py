"""Settings held against the library's own schema, parser or arithmetic, where it is installed.

DeepSpeed (`DS_BUILD_OPS=0 pip install deepspeed`), axolotl, torchtitan, Megatron-Core and Composer
install without their dependencies; a test whose package is missing is skipped. Each library
is asked in a process of its own: some set global state, some warn while they are imported.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from framework_answers import document_of, flags_of, names_of, settings

CASES = [(64, 1), (256, 2), (256, 7), (1000, 8), (1009, 8), (2048, 8)]


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package.split(".")[0]) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


def ask(script: str, question: object) -> object:
    """The last line that a script prints, given a question as JSON on stdin."""
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            "import json, sys\nQ = json.load(sys.stdin)\n" + script,
        ],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
    )
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


DEEPSPEED_CONFIG = """
import deepspeed.runtime.config as c
class Mesh:  # only what the arithmetic asks for
    pass
found = []
for text, world in Q:
    import deepspeed.comm as dist
    document = json.loads(text)
    original = c.DeepSpeedConfig.__init__
    c.dist.get_world_size = lambda *a, **k: world
    c.dist.is_initialized = lambda *a, **k: True
    c.dist.get_rank = lambda *a, **k: 0
    config = c.DeepSpeedConfig(document)
    found.append([config.train_batch_size, config.train_micro_batch_size_per_gpu,
                  config.gradient_accumulation_steps, config.world_size])
print(json.dumps(found))
"""


@needs("deepspeed")
@pytest.mark.slow
def test_deepspeed_reads_its_configuration():
    emitted = [(settings("deepspeed", *case), case[1]) for case in CASES]
    found = ask(DEEPSPEED_CONFIG, [[s.text, world] for s, world in emitted])
    assert found == [
        [s.effective_batch_size, s.micro_batch_size, s.accumulation_steps, world]
        for s, world in emitted
    ]


DEEPSPEED_RUN = """
import copy, os, socket
with socket.socket() as s:
    s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=str(port))
import torch, deepspeed
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
whole = copy.deepcopy(model)
deepspeed.init_distributed(dist_backend="gloo")
engine, *_ = deepspeed.initialize(model=model, config=Q,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1), dist_init_required=False)
size, batch = Q["train_micro_batch_size_per_gpu"], Q["train_batch_size"]
x, y = torch.randn(2 * batch, 3), torch.randn(2 * batch, 1)
for i in range(0, 2 * batch, size):
    engine.backward(((engine(x[i:i + size]) - y[i:i + size]) ** 2).mean())
    engine.step()
optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
for i in (0, batch):
    optimizer.zero_grad()
    ((whole(x[i:i + batch]) - y[i:i + batch]) ** 2).mean().backward()
    optimizer.step()
off = max((a - b).abs().max().item() for a, b in zip(model.parameters(), whole.parameters()))
print(json.dumps([engine.global_steps, off]))
"""


@needs("deepspeed")
@pytest.mark.slow
def test_deepspeed_trains_with_it():
    document = document_of(settings("deepspeed", 18, largest=4))
    updates, off = ask(DEEPSPEED_RUN, document)
    assert updates == 2
    assert off < 1e-6  # float32: it refuses to reduce float64


AXOLOTL = """
import yaml
from axolotl.utils.schemas.config import AxolotlInputConfig
found = []
for text in Q:
    keys = yaml.safe_load(text)
    config = AxolotlInputConfig(base_model="m", learning_rate=1e-4, datasets=[{"path": "d",
        "type": "alpaca"}], **keys)
    assert set(keys) <= set(AxolotlInputConfig.model_fields), keys
    found.append([config.micro_batch_size, config.gradient_accumulation_steps])
print(json.dumps(found))
"""


@needs("axolotl")
@pytest.mark.slow
def test_axolotl_accepts_its_keys():
    emitted = [settings("axolotl", *case, clip_norm=1.0) for case in CASES]
    found = ask(AXOLOTL, [s.text for s in emitted])
    assert found == [[s.micro_batch_size, s.accumulation_steps] for s in emitted]


TORCHTITAN = """
from dataclasses import fields
from torchtitan.config.configs import TrainingConfig
names = {f.name for f in fields(TrainingConfig)}
found = []
for flags, world in Q:
    number = lambda text: int(text) if text.isdecimal() else float(text)
    keys = {name.removeprefix("--training."): number(text) for name, text in flags.items()}
    assert set(keys) <= names, keys
    config = TrainingConfig(**keys)
    assert config.global_batch_size % (config.local_batch_size * world) == 0  # as in trainer.py
    found.append(config.global_batch_size // (config.local_batch_size * world))
print(json.dumps(found))
"""


@needs("torchtitan")
@pytest.mark.slow
def test_torchtitan_has_its_flags():
    emitted = [(settings("torchtitan", *case, clip_norm=0.5), case[1]) for case in CASES]
    found = ask(TORCHTITAN, [[flags_of(s), world] for s, world in emitted])
    assert found == [s.accumulation_steps for s, _ in emitted]


MEGATRON = """
from megatron.core import num_microbatches_calculator as n
found = []
for micro, batch, world in Q:
    n.init_num_microbatches_calculator(1, None, batch, micro, world, False)
    found.append(n.get_num_microbatches())
    n.destroy_num_microbatches_calculator()
print(json.dumps(found))
"""


@needs("megatron")
@pytest.mark.slow
def test_megatron_accepts_its_sizes():
    emitted = [(settings("megatron", *case), case[1]) for case in CASES]
    question = [
        [int(f["--micro-batch-size"]), int(f["--global-batch-size"]), world]
        for f, world in ((flags_of(s), world) for s, world in emitted)
    ]
    assert ask(MEGATRON, question) == [s.accumulation_steps for s, _ in emitted]


COMPOSER = """
import ast, importlib.util, pathlib
root = pathlib.Path(importlib.util.find_spec("composer").origin).parent
tree = ast.parse((root / "trainer" / "trainer.py").read_text())
trainer = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Trainer")
init = next(n for n in trainer.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
names = {a.arg for a in init.args.args + init.args.kwonlyargs}
print(json.dumps(sorted(set(Q) - names)))
"""


@needs("composer")
@pytest.mark.slow
def test_composer_has_its_arguments():
    assert ask(COMPOSER, list(names_of(settings("composer", 64))["TRAINER"])) == []


def test_composer_runs_unequal_shares_by_rank():
    scope = names_of(settings("composer", 1009, 8))
    assert scope["BATCH_SIZE_BY_RANK"] == [127] + [126] * 7
    assert scope["TRAINER"]["device_train_microbatch_size"] == 48
    even = names_of(settings("composer", 1000, 8))
    assert even["LOADER"]["batch_size"] == 125
