"""Whisper: speech to text by an encoder over a log-mel spectrogram and a decoder over tokens.

Radford et al. 2022, arXiv 2212.04356: two convolutions that halve 30 s of frames, sinusoidal
positions that are not trained, pre-norm blocks with GELU, a decoder with learned positions whose
output is tied to its embeddings; keys have no bias, and nothing is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from bsprof.errors import UsageError
from bsprof.records import WorkloadSpec
from bsprof.workloads.builtins.attention import check_attention
from bsprof.workloads.catalogue.entries import Entry
from bsprof.workloads.families.multihead import MultiHead
from bsprof.workloads.families.settings import check_heads, check_length, read_settings
from bsprof.workloads.workload import Workload

INIT_STD = 0.02  # of the published configuration files
LONGEST_WAVE = 10_000

Batch = tuple[Tensor, Tensor, Tensor]
"""Spectrograms (b, mels, frames), tokens (b, seq_len) and the token after each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechSettings:
    """What defines a Whisper model.

    Attributes:
        depths: Blocks of the encoder and of the decoder.
        width: Features of a frame and of a token.
        heads: Attention heads.
        vocabulary: Tokens that exist.
        mels: Frequencies of a spectrogram.
        frames: Frames of a spectrogram, 100 a second; even.
        positions: Learned positions of the decoder: the longest text.
        seq_len: Tokens of a sample's text.
    """

    depths: tuple[int, ...]
    width: int
    heads: int
    vocabulary: int
    mels: int
    frames: int
    positions: int
    seq_len: int


class Block(nn.Module):
    """A pre-norm block of either half; a decoder's is causal and reads a memory."""

    def __init__(self, settings: SpeechSettings, attention: str, *, decodes: bool) -> None:
        super().__init__()
        width = settings.width

        def attend(causal: bool) -> MultiHead:
            return MultiHead(width, settings.heads, causal=causal, key_bias=False, kind=attention)

        self.norm1 = nn.LayerNorm(width)
        self.attention = attend(decodes)
        self.cross_norm = nn.LayerNorm(width) if decodes else None
        self.cross_attention = attend(False) if decodes else None
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """Attention, attention over the memory, then the network, each added to its input."""
        x = x + self.attention(self.norm1(x))
        if self.cross_norm is not None and self.cross_attention is not None:
            x = x + self.cross_attention(self.cross_norm(x), memory)
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class AudioEncoder(nn.Module):
    """Spectrograms (b, mels, frames) to features (b, frames / 2, width)."""

    def __init__(self, settings: SpeechSettings, attention: str) -> None:
        super().__init__()
        width = settings.width
        self.conv1 = nn.Conv1d(settings.mels, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        # A parameter, and frozen, as in the published weights.
        self.positions = nn.Parameter(sinusoids(settings.frames // 2, width), requires_grad=False)
        self.blocks = nn.ModuleList(
            Block(settings, attention, decodes=False) for _ in range(settings.depths[0])
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, spectrograms: Tensor) -> Tensor:
        """Features of every second frame."""
        x = F.gelu(self.conv1(spectrograms))
        x = F.gelu(self.conv2(x)).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.norm(x)
        return y


class TextDecoder(nn.Module):
    """Tokens (b, n) and the encoder's features to logits (b, n, vocabulary)."""

    def __init__(self, settings: SpeechSettings, attention: str) -> None:
        super().__init__()
        width = settings.width
        self.tokens = nn.Embedding(settings.vocabulary, width)
        self.positions = nn.Embedding(settings.positions, width)
        self.blocks = nn.ModuleList(
            Block(settings, attention, decodes=True) for _ in range(settings.depths[1])
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, settings.vocabulary, bias=False)

    def forward(self, tokens: Tensor, memory: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x, memory)
        logits: Tensor = self.head(self.norm(x))
        return logits


class SpeechModel(nn.Module):
    """Spectrograms (b, mels, frames) and tokens (b, n) to logits (b, n, vocabulary)."""

    def __init__(self, settings: SpeechSettings, attention: str) -> None:
        super().__init__()
        self.encoder = AudioEncoder(settings, attention)
        self.decoder = TextDecoder(settings, attention)
        self.apply(init_weights)
        self.decoder.head.weight = self.decoder.tokens.weight

    def forward(self, spectrograms: Tensor, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        logits: Tensor = self.decoder(tokens, self.encoder(spectrograms))
        return logits


def sinusoids(length: int, width: int) -> Tensor:
    """Positions (length, width): sines, then cosines, of wave lengths 2 pi to 2 pi 10,000.

    After Vaswani et al. 2017, arXiv 1706.03762, section 3.5, with halves in place of pairs.
    """
    half = width // 2
    rates = torch.exp(torch.arange(half) * (-math.log(LONGEST_WAVE) / (half - 1)))
    angles = torch.arange(length)[:, None] * rates[None, :]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def init_weights(module: nn.Module) -> None:
    """Normal weights, biases zero."""
    if isinstance(module, nn.Linear | nn.Conv1d | nn.Embedding):
        nn.init.normal_(module.weight, std=INIT_STD)
    if isinstance(module, nn.Linear | nn.Conv1d) and module.bias is not None:
        nn.init.zeros_(module.bias)


def speech_batches(settings: SpeechSettings, seed: int) -> Callable[[int, torch.device], Batch]:
    """A batch function: normal spectrograms and random text."""
    generator = torch.Generator().manual_seed(seed)

    def batch(micro_batch_size: int, device: torch.device) -> Batch:
        sound = (micro_batch_size, settings.mels, settings.frames)
        spectrograms = torch.randn(sound, generator=generator)
        shape = (micro_batch_size, settings.seq_len + 1)
        text = torch.randint(settings.vocabulary, shape, generator=generator)
        tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        return spectrograms.to(device), tokens.to(device), targets.to(device)

    return batch


def loss(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross entropy over the text's tokens."""
    spectrograms, tokens, targets = batch
    return F.cross_entropy(model(spectrograms, tokens).flatten(0, 1), targets.flatten())


def blocks(model: nn.Module) -> list[nn.Module]:
    """The encoder's blocks, then the decoder's."""
    speech = cast(SpeechModel, model)
    return [*speech.encoder.blocks, *speech.decoder.blocks]


def workload(spec: WorkloadSpec, entry: Entry) -> Workload:
    """The workload of a Whisper entry; `--seq-len` is the length of the text.

    Raises:
        UsageError: settings that no model can be built with, or a text longer than the table of
            positions.
    """
    settings = read_settings(SpeechSettings, spec, entry)
    check_heads(entry, settings.width, settings.heads)
    check_length(entry, settings.seq_len, settings.positions)
    for key, value in (("width", settings.width), ("frames", settings.frames)):
        if value % 2:
            raise UsageError(
                f"{entry.name} cannot be built with {key}={value}", next_step="give an even number"
            )
    attention = check_attention(spec.attention)
    return Workload(
        model=lambda: SpeechModel(settings, attention),
        batch=speech_batches(settings, spec.seed),
        loss=loss,
        count=lambda batch: batch[2].numel(),
        tokens_per_sample=settings.seq_len,
        uses_seq_len=True,
        uses_attention=True,
        checkpoint_blocks=blocks,
    )
