"""What is inferred from sources, asked of a real device where there is one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from made_runs import device

from bsprof.predict.target import Software
from bsprof.predict.terms import outside_terms
from bsprof.predict.terms.cublas import workspace_bytes

PROBE = """
import json, torch
free, total = torch.cuda.mem_get_info()
x = torch.zeros(256, 256, device="cuda", requires_grad=True)
held = torch.cuda.memory_allocated()
y = x @ x
forward = torch.cuda.memory_allocated() - held - y.numel() * 4
y.sum().backward()
del y
backward = torch.cuda.memory_allocated() - held - x.grad.numel() * 4 - forward
torch.cuda.synchronize()
after, _ = torch.cuda.mem_get_info()
print(json.dumps({
    "capability": torch.cuda.get_device_capability(),
    "torch": [int(part) for part in torch.__version__.split("+")[0].split(".")[:2]],
    "cuda": [int(part) for part in torch.version.cuda.split(".")[:2]],
    "hip": torch.version.hip,
    "forward": forward, "backward": backward,
    "outside": total - after - torch.cuda.memory_reserved(),
}))
"""


@pytest.mark.gpu
def test_workspaces_and_context_of_a_real_device():
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no CUDA device here")
    found = json.loads(done.stdout)
    software = Software(torch=tuple(found["torch"]), cuda=tuple(found["cuda"]))
    here = device(tuple(found["capability"]), kind="rocm" if found["hip"] else "cuda")
    block = workspace_bytes(here, software)
    assert found["forward"] == block
    assert found["backward"] == block  # backward's thread has a handle of its own
    context = outside_terms(here, software)[0].bytes
    # others may use the device too, so only the low end binds
    assert found["outside"] >= 0.5 * context.low
