"""Operators with FLOPs: CPU, CUDA and library variants of one mathematics share a formula."""

from __future__ import annotations

from bsprof.accounting import formulas as f
from bsprof.accounting.operators import FlopsFormula, Operator
from bsprof.accounting.operators import OperatorClass as C


def _entries(
    operator_class: C,
    flops: FlopsFormula,
    names: str,
    *,
    recomputed: FlopsFormula | None = None,
) -> list[Operator]:
    return [
        Operator(
            name=name if "::" in name else f"aten::{name}",
            operator_class=operator_class,
            flops=flops,
            recomputed_flops=recomputed,
        )
        for name in names.split()
    ]


CONTRACTIONS: tuple[Operator, ...] = (
    *_entries(C.MATMUL, f.mm_flops, "mm _int_mm _scaled_mm"),
    *_entries(C.MATMUL, f.addmm_flops, "addmm _addmm_activation _sparse_addmm"),
    *_entries(C.MATMUL, f.mv_flops, "mv"),
    *_entries(C.MATMUL, f.addmv_flops, "addmv"),
    *_entries(C.MATMUL, f.dot_flops, "dot vdot"),
    *_entries(C.MATMUL, f.outer_flops, "addr"),
    *_entries(C.MATMUL, f.linear_flops, "linear mkldnn_linear mkldnn::_linear_pointwise"),
    *_entries(C.MATMUL, f.linear_backward_flops, "linear_backward mkldnn_linear_backward"),
    *_entries(C.MATMUL, f.trilinear_flops, "_trilinear"),
    *_entries(C.MATMUL, f.distance_flops, "_euclidean_dist"),
    *_entries(C.BATCHED_MATMUL, f.mm_flops, "bmm"),
    *_entries(C.BATCHED_MATMUL, f.baddbmm_flops, "baddbmm addbmm"),
    *_entries(
        C.CONVOLUTION,
        f.convolution_flops,
        "convolution convolution_overrideable mkldnn_convolution cudnn_convolution "
        "cudnn_convolution_relu cudnn_convolution_add_relu miopen_convolution "
        "miopen_depthwise_convolution _conv_depthwise2d conv_depthwise3d "
        "_slow_conv2d_forward slow_conv3d_forward slow_conv_dilated2d "
        "slow_conv_dilated3d mkldnn::_convolution_pointwise",
    ),
    *_entries(
        C.CONVOLUTION,
        f.transposed_convolution_flops,
        "cudnn_convolution_transpose miopen_convolution_transpose slow_conv_transpose2d "
        "slow_conv_transpose3d",
    ),
    *_entries(
        C.CONVOLUTION,
        f.convolution_backward_flops,
        "convolution_backward convolution_backward_overrideable",
    ),
    *_entries(
        C.ATTENTION,
        f.attention_flops,
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
        "_scaled_dot_product_fused_attention_overrideable "
        "_scaled_dot_product_attention_math_for_mps",
    ),
    *_entries(
        C.ATTENTION,
        f.attention_backward_flops,
        "_scaled_dot_product_flash_attention_for_cpu_backward "
        "_scaled_dot_product_flash_attention_backward "
        "_scaled_dot_product_efficient_attention_backward "
        "_scaled_dot_product_cudnn_attention_backward "
        "_scaled_dot_product_fused_attention_overrideable_backward",
        recomputed=f.attention_recomputed_flops,
    ),
    *_entries(
        C.ATTENTION,
        f.ragged_attention_flops,
        "_flash_attention_forward _efficient_attention_forward",
    ),
    *_entries(
        C.ATTENTION,
        f.ragged_attention_backward_flops,
        "_flash_attention_backward _efficient_attention_backward",
        recomputed=f.ragged_attention_recomputed_flops,
    ),
    *_entries(C.ATTENTION, f.native_attention_flops, "_native_multi_head_attention"),
    *_entries(C.MATMUL, f.encoder_layer_flops, "_transformer_encoder_layer_fwd"),
    *_entries(C.RNN, f.mkldnn_rnn_flops, "mkldnn_rnn_layer"),
    *_entries(C.RNN, f.mkldnn_rnn_backward_flops, "mkldnn_rnn_layer_backward"),
    *_entries(C.RNN, f.cudnn_rnn_flops, "_cudnn_rnn miopen_rnn"),
    *_entries(C.RNN, f.cudnn_rnn_backward_flops, "_cudnn_rnn_backward miopen_rnn_backward"),
    *_entries(C.FFT, f.fft_flops, "_fft_r2c _fft_c2r _fft_c2c"),
)
