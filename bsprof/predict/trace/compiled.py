"""`--compile` in a trace: the model's graphs as a compiler would run them, on fake tensors.

The model's forward is captured with its backward by AOTAutograd, decomposed as Inductor asks, and
divided by the partitioner that torch.compile uses: what is kept for the backward pass is decided
there. Each of the two graphs then runs kernel by kernel (`compiled_plan`). Dynamo is left out: a
model that it would divide at graph breaks is captured whole here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.utils._pytree as pytree
import torch.utils.checkpoint
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from bsprof.predict.cuda.overrides import attribute
from bsprof.predict.trace.compiled_plan import base_of
from bsprof.predict.trace.compiled_run import STACK, GraphRunner
from bsprof.predict.trace.compiled_tracker import CompiledTracker
from bsprof.records import Note

COMPILED = Note(
    code="traced-compiled",
    message="the compiled model was traced through AOTAutograd's partitioner; which results its "
    "kernels write to memory is approximated after Inductor's rules",
)


def eager_note(reason: str) -> Note:
    """Told where a compiled model is traced as an eager one."""
    return Note(
        code="traced-eager",
        message="torch.compile plays no part in the trace: a compiled step may take less memory "
        f"({reason})",
    )


_NEVER = eager_note("the step never calls the model itself")


class CompiledModel(nn.Module):
    """Stands for the module that `torch.compile` returns.

    Attributes:
        notes: How it was traced; what came first where calls differ.
    """

    def __init__(self, model: nn.Module, mode: FakeTensorMode, tracker: CompiledTracker) -> None:
        super().__init__()
        self._orig_mod = model
        self._fake_mode = mode
        self._tracker = tracker
        self._captured: dict[Any, Callable[..., Any] | None] = {}
        self.training = model.training
        self.notes: tuple[Note, ...] = (_NEVER,)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """The model's own forward, compiled; eager where it cannot be captured."""
        key = _key_of(self._orig_mod, arguments, named)
        if key not in self._captured:
            self._captured[key] = self._capture(arguments, named)
        call = self._captured[key]
        return self._orig_mod(*arguments, **named) if call is None else call(arguments, named)

    def _capture(self, arguments: Any, named: Any) -> Callable[..., Any] | None:
        graph = _Capture(self._orig_mod, self._tracker, self._fake_mode)
        try:
            with warnings.catch_warnings(), self._tracker.unwatched(), self._fake_mode:
                warnings.simplefilter("ignore")  # torch's own, as its compiler is imported
                call = graph.compiled(arguments, named)
        except Exception as error:  # noqa: BLE001  any reason: the eager model remains
            text = str(error).strip().splitlines()
            reason = f"{type(error).__name__}: {text[0] if text else ''}"[:200]
            self.notes = (eager_note(f"it could not be captured: {reason}"),)
            return None
        if self.notes == (_NEVER,):
            self.notes = (COMPILED,)
        return call


class _Capture:
    """One captured pair of graphs."""

    def __init__(self, model: nn.Module, tracker: CompiledTracker, mode: FakeTensorMode) -> None:
        self._model = model
        self._fake_mode = mode
        self._tracker = tracker
        self._returned: set[str] = set()
        self._count = 0
        # Each once: ties are one input, as Dynamo makes it.
        self._names, self._tensors = [], []
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self._names.append(name)
            self._tensors.append(tensor)

    def compiled(self, arguments: Any, named: Any) -> Callable[..., Any]:
        """A function of the call's arguments that runs the graphs."""
        from torch._functorch.aot_autograd import aot_function
        from torch._inductor import virtualized
        from torch._inductor.compile_fx import partition_fn
        from torch._inductor.decomposition import select_decomp_table

        leaves, spec = pytree.tree_flatten((arguments, named))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        outputs: list[Any] = []

        def flat(*tensors: Tensor) -> list[Any]:
            count = len(self._names)
            state = dict(zip(self._names, tensors[:count], strict=True))
            given = list(leaves)
            for place, tensor in zip(places, tensors[count:], strict=True):
                given[place] = tensor
            args, kwargs = pytree.tree_unflatten(given, spec)
            result = torch.func.functional_call(self._model, state, args, kwargs)
            out, out_spec = pytree.tree_flatten(result)
            outputs[:] = [out_spec]
            return out

        def inputs(arguments: Any, named: Any) -> list[Tensor]:
            given = pytree.tree_leaves((arguments, named))
            return [*self._tensors, *(given[place] for place in places)]

        def partition(gm: Any, joint_inputs: Any, **options: Any) -> Any:
            self._count = options["num_fwd_outputs"]
            with virtualized.V.set_fake_mode(self._fake_mode):
                return partition_fn(gm, joint_inputs, **options)

        run = aot_function(
            flat,
            fw_compiler=self._forward,
            bw_compiler=self._backward,
            inference_compiler=self._forward,
            partition_fn=partition,
            decompositions=select_decomp_table(),
            num_params_buffers=len(self._names),
        )

        def call(arguments: Any, named: Any) -> Any:
            return pytree.tree_unflatten(run(*inputs(arguments, named)), outputs[0])

        # The first call captures and runs; what runs then is not watched.
        with _modules_noted(self._tracker), _checkpoints_marked():
            call(arguments, named)
        return call

    def _forward(self, gm: fx.GraphModule, example_inputs: Any) -> Any:  # noqa: ARG002
        output = next(n for n in gm.graph.nodes if n.op == "output").args[0]
        nodes = [a for a in output if isinstance(a, fx.Node)]
        shown = {base_of(a) for a in output[: self._count] if isinstance(a, fx.Node)}
        self._returned.update(
            n.name for n in nodes if base_of(n) in shown or base_of(n).op == "placeholder"
        )
        return GraphRunner(gm, self._tracker, is_backward=False, kept=self._returned)

    def _backward(self, gm: fx.GraphModule, example_inputs: Any) -> Any:  # noqa: ARG002
        return GraphRunner(gm, self._tracker, is_backward=True, kept=self._returned)


@contextmanager
def _modules_noted(tracker: CompiledTracker) -> Iterator[None]:
    """While inside, what is captured carries the module whose forward runs."""
    from torch.fx import traceback

    tagged = nn.Module._call_impl

    def call(module: nn.Module, *arguments: Any, **named: Any) -> Any:
        meta = traceback.current_meta
        before = meta.get(STACK)
        meta[STACK] = {"": (str(tracker.running_module()), type(module))}
        try:
            return tagged(module, *arguments, **named)  # type: ignore[no-untyped-call]
        finally:
            if before is None:
                meta.pop(STACK, None)
            else:
                meta[STACK] = before

    with attribute(nn.Module, "_call_impl", call):
        yield


@contextmanager
def _checkpoints_marked() -> Iterator[None]:
    """While inside, `checkpoint` marks what it runs to be computed again, as Dynamo has it."""
    from torch.fx import traceback
    from torch.utils.checkpoint import CheckpointPolicy

    import bsprof.workloads.checkpointing as ours

    graphs = 0

    def checkpoint(function: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal graphs
        graphs += 1
        for option in (
            "use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug",
            "early_stop",
        ):  # fmt: skip
            options.pop(option, None)
        meta = traceback.current_meta
        marks = {"recompute": CheckpointPolicy.PREFER_RECOMPUTE, "ac_graph_id": graphs}
        before = {key: meta.get(key) for key in marks}
        meta.update(marks)
        try:
            return function(*arguments, **options)
        finally:
            for key, value in before.items():
                if value is None:
                    meta.pop(key, None)
                else:
                    meta[key] = value

    with ExitStack() as stack:
        for owner in (torch.utils.checkpoint, ours):
            stack.enter_context(attribute(owner, "checkpoint", checkpoint))
        yield


def _key_of(model: nn.Module, arguments: Any, named: Any) -> Any:
    """What a captured graph holds for."""
    leaves, spec = pytree.tree_flatten((arguments, named))
    described = tuple(
        (tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.requires_grad)
        if isinstance(leaf, Tensor)
        else repr(leaf)
        for leaf in leaves
    )
    return (
        described,
        repr(spec),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        model.training,
        tuple(p.requires_grad for p in model.parameters()),
    )
