"""Lengths, image sizes and special tokens of a Hugging Face model, from its configuration."""

from __future__ import annotations

from typing import Any

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.sources.hf_tasks import IMAGE_SIZE, Sizes, Task

PADDED_POSITIONS = frozenset(
    {
        "camembert",
        "data2vec-text",
        "esm",
        "ibert",
        "layoutlmv3",
        "lilt",
        "longformer",
        "luke",
        "markuplm",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "xmod",
    }
)
"""Types of models that count positions from behind the padding token, so that their table of
positions is longer than their sequences: those with `create_position_ids_from_input_ids` in
transformers 5.24."""


def prepare(config: Any, task: Task, *, keep_cache: bool) -> None:
    """Set what training needs and a configuration may leave open.

    Args:
        config: transformers' configuration, changed in place.
        task: What the model is trained for.
        keep_cache: Whether the configuration's own `use_cache` stays; else it is switched off.
    """
    if not keep_cache and hasattr(config, "use_cache"):
        config.use_cache = False
    # Sequence classifiers of decoders look for the last token before the padding.
    needs_padding = task.pads or config.is_encoder_decoder
    if needs_padding and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = config.pad_token_id


def read_sizes(spec: WorkloadSpec, config: Any, task: Task) -> Sizes:
    """What the data depends on.

    Raises:
        UsageError: a sequence longer than the model's positions, or a configuration without the
            number of its tokens.
    """
    labels = config.num_labels
    problem = getattr(config, "problem_type", None)
    if problem is None:
        problem = "regression" if labels == 1 else "single_label_classification"
    if task.of_images:
        return Sizes(image=_image(spec, config), labels=labels, problem=problem)
    vocabulary = getattr(config, "vocab_size", None)
    if not isinstance(vocabulary, int) or vocabulary < 2:
        raise UsageError(
            f"cannot make text for {spec.model}",
            found=f"vocab_size is {vocabulary} in its configuration",
            next_step="set it, --model-option vocab_size=N, or measure the model through a "
            "factory of your own, file.py:factory",
        )
    mask = getattr(config, "mask_token_id", None)
    return Sizes(
        seq_len=_seq_len(spec, config, task),
        vocabulary=vocabulary,
        padding=getattr(config, "pad_token_id", None),
        end=_first(getattr(config, "eos_token_id", None)) if config.is_encoder_decoder else None,
        mask=vocabulary - 1 if mask is None else mask,
        labels=labels,
        problem=problem,
    )


def _seq_len(spec: WorkloadSpec, config: Any, task: Task) -> int:
    """`--seq-len`, else as many tokens as the model has positions, up to the task's default."""
    positions = _positions(config)
    if spec.seq_len is None:
        return task.longest if positions is None else min(positions, task.longest)
    if positions is not None and spec.seq_len > positions:
        raise UsageError(
            f"--seq-len {spec.seq_len} is longer than {spec.model} has positions, {positions}",
            next_step="use fewer tokens, or --model-option max_position_embeddings=N",
        )
    return spec.seq_len


def _positions(config: Any) -> int | None:
    """Tokens of the longest sequence; None where nothing limits it."""
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return None
    if config.model_type in PADDED_POSITIONS:
        return max(positions - (getattr(config, "pad_token_id", None) or 0) - 1, 1)
    return positions


def _image(spec: WorkloadSpec, config: Any) -> tuple[int, int, int]:
    """Channels, height and width; the configuration already has `--image-size` where it names one.

    Without a size of its own a model takes images of any.
    """
    channels = getattr(config, "num_channels", 3)
    size = getattr(config, "image_size", None)
    if size is None:
        size = IMAGE_SIZE if spec.image_size is None else spec.image_size
    height, width = (size, size) if isinstance(size, int) else size
    return channels, height, width


def _first(tokens: Any) -> int | None:
    """A special token; of several the first."""
    if isinstance(tokens, list | tuple):
        return tokens[0] if tokens else None
    return tokens if isinstance(tokens, int) else None
