"""One small workload of every built-in and of every catalogue family."""

from __future__ import annotations

from typing import Any

from bsprof.records import Precision, WorkloadSpec

_DECODER: dict[str, Any] = {
    "layers": 2,
    "width": 64,
    "heads": 4,
    "key_heads": 2,
    "head_width": 16,
    "feed_forward": 96,
    "vocabulary": 300,
    "rotary_width": 16,
}
_GPT2 = {k: v for k, v in _DECODER.items() if k != "rotary_width"} | {
    "key_heads": 4,
    "positions": 32,
}
_EXPERTS = {**_DECODER, "experts": 6, "chosen": 2}
_IMAGES = {"image_size": 64, "classes": 10}
_VIT = {**_IMAGES, "layers": 2, "width": 64, "heads": 2, "mlp_width": 128}
_T5 = {
    "depths": "2,2",
    "width": 64,
    "heads": 2,
    "head_width": 16,
    "feed_forward": 96,
    "vocabulary": 300,
    "target_len": 12,
}
_SPEECH = {
    "depths": "2,2",
    "width": 64,
    "heads": 2,
    "vocabulary": 300,
    "mels": 8,
    "frames": 64,
    "positions": 32,
}
_PIXELS = {"width": 32, "multipliers": "1,2", "blocks": 1, "attention_at": 8, "image_size": 16}
_ENCODER = {"layers": 2, "width": 64, "heads": 2, "feed_forward": 96, "vocabulary": 300}
_NCF = {"users": 2000, "items": 1000}


def _spec(model: str, options: dict[str, Any] | None = None, **fields: Any) -> WorkloadSpec:
    return WorkloadSpec(model=model, model_options=options or {}, **fields)


DENSE = {
    "mlp": _spec("mlp"),
    "ncf": _spec("ncf-ml-20m", _NCF, optimizer="sgd", optimizer_options={"momentum": 0.9}),
}
TRANSFORMERS = {
    "gpt-tiny": _spec("gpt-tiny"),
    "encoder-tiny": _spec("encoder-tiny"),
    "gpt2": _spec("gpt2", _GPT2, seq_len=24, clip_norm=1.0),
    "llama": _spec("llama-3.2-1b", _DECODER, seq_len=64, activation_checkpointing="full"),
    "gemma": _spec("gemma-2-2b", _DECODER, seq_len=24, precision=Precision.BF16),
    "mistral": _spec("mistral-7b", {**_DECODER, "window": 8}, seq_len=24, lora_rank=4),
    "moe": _spec("mixtral-8x7b", _EXPERTS, seq_len=24),
    "encoder": _spec("bert-base", _ENCODER, seq_len=24, precision=Precision.AMP_BF16),
    "t5": _spec("t5-small", _T5, seq_len=24),
}
RECURRENT = {
    "lstm": _spec("lstm-ptb-small", {"vocabulary": 500}, optimizer="sgd"),
    "awd-lstm": _spec("awd-lstm-ptb", {"vocabulary": 500, "width": 128, "embedding": 64}),
}
CONVOLUTIONAL = {
    "vit-tiny": _spec("vit-tiny"),
    "convnet": _spec("convnet"),
    "resnet": _spec("resnet18", _IMAGES),
    "resnet-channels-last": _spec("resnet18", _IMAGES, channels_last=True, ema=True),
    "convnext": _spec("convnext-tiny", {**_IMAGES, "depths": "1,1,2,1", "widths": "32,64,96,128"}),
    "efficientnet": _spec("efficientnet-b0", _IMAGES),
    "unet": _spec("unet", {"widths": "16,32,64", "image_size": 64}),
    "vit": _spec("vit-s-16", _VIT, freeze=("blocks.0.*",)),
    "deit": _spec("deit-tiny-distilled-16", _VIT),
    "speech": _spec("whisper-tiny", _SPEECH, seq_len=12),
    "diffusion": _spec("ddpm-cifar10", _PIXELS),
}
REDUCED = DENSE | TRANSFORMERS | RECURRENT | CONVOLUTIONAL
