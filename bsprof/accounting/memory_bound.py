"""Operators without FLOPs: what they cost is bytes. One line of names per class."""

from __future__ import annotations

from bsprof.accounting import traffic
from bsprof.accounting.operators import BytesFormula, Operator
from bsprof.accounting.operators import OperatorClass as C


def _entries(operator_class: C, names: str, *, moved: BytesFormula | None = None) -> list[Operator]:
    return [
        Operator(
            name=name if "::" in name else f"aten::{name}",
            operator_class=operator_class,
            moved=moved,
        )
        for name in names.split()
    ]


# Pointwise operators that PyTorch tags as such need no line here (`table.lookup`); these are the
# ones without the tag.
_ELEMENTWISE = """
    masked_fill masked_scatter masked_scatter_backward threshold_backward _prelu_kernel
    _prelu_kernel_backward gelu gelu_backward silu silu_backward mish hardtanh_backward
    hardswish_backward hardsigmoid_backward hardswish leaky_relu_backward elu_backward
    softplus_backward softshrink_backward hardshrink_backward log_sigmoid_forward
    log_sigmoid_backward sigmoid_backward tanh_backward logit_backward rrelu_with_noise
    rrelu_with_noise_backward glu glu_backward native_dropout native_dropout_backward
    _fused_dropout _masked_scale zeros zeros_like ones ones_like full full_like new_zeros
    new_ones new_full scalar_tensor arange linspace logspace eye tril triu tril_indices
    triu_indices where complex polar view_as_real_copy view_as_complex_copy isin bucketize
    searchsorted _thnn_fused_gru_cell _thnn_fused_gru_cell_backward _thnn_fused_lstm_cell
    _thnn_fused_lstm_cell_backward_impl linalg_cross heaviside constant_pad_nd reflection_pad1d
    reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward reflection_pad3d
    reflection_pad3d_backward replication_pad1d replication_pad1d_backward replication_pad2d
    replication_pad2d_backward replication_pad3d replication_pad3d_backward pixel_shuffle
    pixel_unshuffle channel_shuffle roll flip rot90 repeat slice_backward select_backward
    diagonal_backward unfold_backward as_strided_scatter slice_scatter select_scatter
    diagonal_scatter diag_embed diagonal_copy im2col col2im _to_sparse _amp_update_scale
    _amp_foreach_non_finite_check_and_unscale
    """

_REDUCTION = """
    sum mean var std var_mean std_mean prod amax amin aminmax max min all any argmax argmin norm
    linalg_vector_norm _foreach_norm count_nonzero nansum nanmedian median mode logsumexp dist
    _pdist_forward _pdist_backward _cdist_forward _cdist_backward histc bincount trace equal
    segment_reduce _segment_reduce_backward _foreach_max
    """

_NORMALISATION = """
    native_batch_norm native_batch_norm_backward _native_batch_norm_legit
    _native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update
    batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward miopen_batch_norm
    miopen_batch_norm_backward batch_norm_stats batch_norm_elemt batch_norm_gather_stats
    batch_norm_gather_stats_with_counts batch_norm_backward_reduce batch_norm_backward_elemt
    batch_norm_update_stats native_layer_norm native_layer_norm_backward native_group_norm
    native_group_norm_backward _fused_rms_norm _fused_rms_norm_backward renorm
    _weight_norm_interface _weight_norm_interface_backward
    """

_LOSS = """
    mse_loss mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss
    huber_loss_backward
    binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits
    soft_margin_loss soft_margin_loss_backward multi_margin_loss multi_margin_loss_backward
    multilabel_margin_loss_forward multilabel_margin_loss_backward _ctc_loss _ctc_loss_backward
    _cudnn_ctc_loss
    """

_POOLING = """
    max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices
    max_pool3d_with_indices_backward mkldnn_max_pool2d mkldnn_max_pool3d avg_pool2d
    avg_pool2d_backward avg_pool3d avg_pool3d_backward _adaptive_avg_pool2d
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d
    adaptive_max_pool3d_backward fractional_max_pool2d fractional_max_pool2d_backward
    fractional_max_pool3d fractional_max_pool3d_backward max_unpool2d max_unpool3d
    """

_RESAMPLE = """
    upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d
    upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d_backward
    _upsample_nearest_exact1d _upsample_nearest_exact1d_backward _upsample_nearest_exact2d
    _upsample_nearest_exact2d_backward _upsample_nearest_exact3d
    _upsample_nearest_exact3d_backward upsample_linear1d upsample_linear1d_backward
    upsample_bilinear2d upsample_bilinear2d_backward _upsample_bilinear2d_aa
    _upsample_bilinear2d_aa_backward upsample_bicubic2d upsample_bicubic2d_backward
    _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward upsample_trilinear3d
    upsample_trilinear3d_backward grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d
    grid_sampler_3d_backward affine_grid_generator
    """

MEMORY_BOUND: tuple[Operator, ...] = (
    *_entries(C.ELEMENTWISE, _ELEMENTWISE),
    *_entries(C.ELEMENTWISE, "fill zero _foreach_zero", moved=traffic.overwrite_bytes),
    *_entries(C.REDUCTION, _REDUCTION),
    *_entries(C.SCAN, "cumsum cumprod cummax cummin logcumsumexp"),
    *_entries(C.SORT, "sort topk kthvalue unique_consecutive _unique _unique2"),
    *_entries(
        C.SOFTMAX,
        "_softmax _softmax_backward_data _log_softmax _log_softmax_backward_data "
        "_masked_softmax _masked_softmax_backward _safe_softmax",
    ),
    *_entries(C.NORMALISATION, _NORMALISATION),
    *_entries(C.LOSS, _LOSS),
    *_entries(
        C.LOSS,
        "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward",
        moved=traffic.chosen_bytes,
    ),
    *_entries(C.POOLING, _POOLING),
    *_entries(C.RESAMPLE, _RESAMPLE),
    *_entries(
        C.EMBEDDING,
        "embedding _embedding_bag _embedding_bag_forward_only",
        moved=traffic.lookup_bytes,
    ),
    *_entries(
        C.EMBEDDING,
        "embedding_dense_backward embedding_renorm _embedding_bag_backward "
        "_embedding_bag_dense_backward _embedding_bag_per_sample_weights_backward",
    ),
    *_entries(C.INDEX, "index index_select gather take _unsafe_index", moved=traffic.lookup_bytes),
    *_entries(
        C.INDEX,
        "scatter scatter_add scatter_reduce index_put _index_put_impl _unsafe_index_put "
        "index_add index_copy index_fill index_reduce put",
        moved=traffic.scatter_bytes,
    ),
    *_entries(C.INDEX, "nonzero masked_select nonzero_static"),
    *_entries(
        C.RANDOM,
        "normal uniform random bernoulli exponential geometric cauchy log_normal",
        moved=traffic.overwrite_bytes,
    ),
    *_entries(
        C.RANDOM,
        "rand randn randint randperm rand_like randn_like randint_like multinomial poisson "
        "binomial normal_functional _standard_gamma _sample_dirichlet _dirichlet_grad",
    ),
    *_entries(C.COPY, "copy _foreach_copy", moved=traffic.overwrite_bytes),
    *_entries(
        C.COPY,
        "clone _to_copy cat stack _pin_memory to_mkldnn split_with_sizes_copy "
        "_conj_physical block_diag unfold_copy expand_copy lift_fresh_copy _mkldnn_transpose "
        "_pack_padded_sequence",
    ),
    *_entries(
        C.OPTIMIZER,
        "_fused_adam _fused_adamw _fused_sgd _fused_adagrad",
        moved=traffic.optimizer_bytes,
    ),
    *_entries(
        C.ALLOCATION,
        "empty empty_like empty_strided new_empty new_empty_strided resize resize_as "
        "_local_scalar_dense is_same_size record_stream is_pinned _nested_get_values "
        "_sparse_coo_tensor_with_dims_and_tensors _cudnn_init_dropout_state prim::device "
        "_coalesced _linalg_check_errors profiler::_record_function_enter "
        "profiler::_record_function_enter_new profiler::_record_function_exit",
        moved=traffic.nothing_bytes,
    ),
    *_entries(
        C.VIEW,
        "_unsafe_view _reshape_alias lift_fresh lift set _values _indices _assert_async "
        "_assert_tensor_metadata _conj _neg_view "
        # In-place forms, and splits whose schemas do not say that they are views.
        "squeeze unsqueeze transpose t detach as_strided unsafe_split unsafe_split_with_sizes",
        moved=traffic.nothing_bytes,
    ),
    *_entries(
        C.COMMUNICATION,
        "_c10d_functional::all_reduce _c10d_functional::all_gather_into_tensor "
        "_c10d_functional::reduce_scatter_tensor _c10d_functional::all_to_all_single "
        "_c10d_functional::broadcast c10d::allreduce c10d::_allgather_base "
        "c10d::_reduce_scatter_base c10d::broadcast",
    ),
    *_entries(C.ALLOCATION, "_c10d_functional::wait_tensor", moved=traffic.nothing_bytes),
)
