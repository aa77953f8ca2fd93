"""The table: no duplicates, names that exist, classes that make sense."""

import pytest
import torch

from bsprof.accounting.operators import Operator, OperatorClass
from bsprof.accounting.table import TABLE, base_name, build_table, lookup

# Entries of libraries that this build of torch may lack.
_ELSEWHERE = ("prim::", "_c10d_functional::", "c10d::", "mkldnn::")
# Composite operators that have an entry on purpose: `linear` because its formula is simpler than
# its parts, `_fused_rms_norm` because accelerators run it as one kernel.
_COMPOSITE_ON_PURPOSE = {"aten::linear", "aten::_fused_rms_norm"}


def _overload_names(name: str) -> list[str]:
    namespace, base = name.split("::")
    found = []
    for candidate in (base, f"{base}_"):
        packet = getattr(getattr(torch.ops, namespace), candidate, None)
        if packet is not None:
            found += [
                f"{namespace}::{candidate}" + ("" if o == "default" else f".{o}")
                for o in packet.overloads()
            ]
    return found


def test_second_entry_of_a_name_is_refused() -> None:
    entry = Operator(name="aten::mm", operator_class=OperatorClass.MATMUL)
    with pytest.raises(ValueError, match="aten::mm is in the table twice"):
        build_table((entry, entry))


def test_every_entry_names_an_operator_of_torch() -> None:
    missing = [
        name for name in TABLE if not name.startswith(_ELSEWHERE) and not _overload_names(name)
    ]
    assert missing == []


def test_no_entry_hides_what_a_composite_operator_is_made_of() -> None:
    def is_composite(overload: str) -> bool:
        try:
            return torch._C._dispatch_has_kernel_for_dispatch_key(
                overload, "CompositeImplicitAutograd"
            )
        except RuntimeError:  # an overload that only exists for scripting
            return True

    hidden = [
        name
        for name in TABLE
        if not name.startswith(_ELSEWHERE)
        and (overloads := _overload_names(name))
        and all(is_composite(overload) for overload in overloads)
    ]
    assert set(hidden) <= _COMPOSITE_ON_PURPOSE


def test_in_place_operators_share_the_entry_of_their_base() -> None:
    assert base_name("aten::add_") == "aten::add"
    assert base_name("aten::_fused_adamw_") == "aten::_fused_adamw"
    assert base_name("aten::__iand__") == "aten::__iand__"
    assert lookup("aten::fill_") is TABLE["aten::fill"]


def test_unknown_operators_fall_back_on_what_torch_says() -> None:
    assert lookup("my::op").operator_class is OperatorClass.UNCOUNTED
    assert lookup("my::op_").name == "my::op_"
    assert lookup("my::op", is_view=True).operator_class is OperatorClass.VIEW
    assert lookup("my::op", is_pointwise=True).operator_class is OperatorClass.ELEMENTWISE
    assert lookup("aten::_foreach_new_one_").operator_class is OperatorClass.ELEMENTWISE


def test_only_contractions_have_flops() -> None:
    contractions = {
        OperatorClass.MATMUL,
        OperatorClass.BATCHED_MATMUL,
        OperatorClass.CONVOLUTION,
        OperatorClass.ATTENTION,
        OperatorClass.RNN,
        OperatorClass.FFT,
    }
    for entry in TABLE.values():
        assert (entry.flops is not None) == (entry.operator_class in contractions), entry.name


def test_every_attention_backend_has_the_same_flops() -> None:
    query, key = torch.empty(2, 4, 16, 8), torch.empty(2, 4, 16, 8)
    arguments = {"query": query, "key": key, "value": key, "is_causal": True}
    forward = {
        TABLE[f"aten::_scaled_dot_product_{backend}"].flops(arguments, [])  # type: ignore[misc]
        for backend in (
            "flash_attention_for_cpu",
            "flash_attention",
            "efficient_attention",
            "cudnn_attention",
            "fused_attention_overrideable",
        )
    }
    assert forward == {2 * 2 * 4 * (16 * 17 // 2) * (8 + 8)}


@pytest.mark.parametrize(
    ("overload", "expected"),
    [
        (torch.ops.aten.max.other, OperatorClass.ELEMENTWISE),
        (torch.ops.aten.min.other, OperatorClass.ELEMENTWISE),
        (torch.ops.aten.max.dim, OperatorClass.REDUCTION),
        (torch.ops.aten.sum.default, OperatorClass.REDUCTION),
    ],
)
def test_an_operator_of_two_tensors_reduces_nothing(overload, expected) -> None:
    pointwise = torch.Tag.pointwise in overload.tags
    assert lookup(overload._schema.name, is_pointwise=pointwise).operator_class is expected
