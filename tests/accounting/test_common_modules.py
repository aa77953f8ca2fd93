"""No operator of common training steps is left uncounted."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's own name
from torch import Tensor, nn

from bsprof.accounting.counter import OperatorCounter

_LABELS = torch.tensor([0, 3, 1, 2])
_SEQUENCE = (5, 2, 8)
_IMAGE = (2, 8, 8, 8)
_ROWS = (4, 6)

# name -> (module, input shape)
_MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(6, 5), _ROWS),
    "conv1d": (lambda: nn.Conv1d(8, 4, 3, padding="same"), (2, 8, 16)),
    "conv2d grouped": (lambda: nn.Conv2d(8, 8, 3, groups=8), _IMAGE),
    "conv2d reflect": (lambda: nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"), _IMAGE),
    "conv3d": (lambda: nn.Conv3d(2, 4, 3), (1, 2, 5, 5, 5)),
    "conv transposed": (lambda: nn.ConvTranspose2d(8, 4, 3, stride=2), _IMAGE),
    "batch norm": (lambda: nn.BatchNorm2d(8), _IMAGE),
    "instance norm": (lambda: nn.InstanceNorm2d(8, affine=True), _IMAGE),
    "group norm": (lambda: nn.GroupNorm(2, 8), _IMAGE),
    "layer norm": (lambda: nn.LayerNorm(6), _ROWS),
    "rms norm": (lambda: nn.RMSNorm(6), _ROWS),
    "local response norm": (lambda: nn.LocalResponseNorm(2), _IMAGE),
    "max pool": (lambda: nn.MaxPool2d(2), _IMAGE),
    "average pool": (lambda: nn.AvgPool2d(2), _IMAGE),
    "adaptive average pool": (lambda: nn.AdaptiveAvgPool2d(3), _IMAGE),
    "adaptive max pool": (lambda: nn.AdaptiveMaxPool2d(3), _IMAGE),
    "upsample nearest": (lambda: nn.Upsample(scale_factor=2), _IMAGE),
    "upsample bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), _IMAGE),
    "upsample bicubic": (lambda: nn.Upsample(scale_factor=2, mode="bicubic"), _IMAGE),
    "pixel shuffle": (lambda: nn.PixelShuffle(2), _IMAGE),
    "unfold": (lambda: nn.Unfold(3), _IMAGE),
    "zero padding": (lambda: nn.ZeroPad2d(1), _IMAGE),
    "lstm": (lambda: nn.LSTM(8, 6, 2, bidirectional=True), _SEQUENCE),
    "lstm projected": (lambda: nn.LSTM(8, 6, proj_size=3), _SEQUENCE),
    "gru": (lambda: nn.GRU(8, 6, 2, dropout=0.1), _SEQUENCE),
    "rnn": (lambda: nn.RNN(8, 6), _SEQUENCE),
    "lstm cell": (lambda: nn.LSTMCell(6, 5), _ROWS),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(8, 2, 16), _SEQUENCE),
    "encoder layer, norm first": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, norm_first=True),
        _SEQUENCE,
    ),
    "dropout2d": (lambda: nn.Dropout2d(0.3), _IMAGE),
    "alpha dropout": (lambda: nn.AlphaDropout(0.3), _ROWS),
    **{
        activation.__name__: (activation, _ROWS)
        for activation in (
            nn.ReLU,
            nn.GELU,
            nn.SiLU,
            nn.Mish,
            nn.Tanh,
            nn.Sigmoid,
            nn.ELU,
            nn.SELU,
            nn.LeakyReLU,
            nn.PReLU,
            nn.Softplus,
            nn.Softsign,
            nn.Hardswish,
            nn.Hardsigmoid,
            nn.ReLU6,
            nn.LogSigmoid,
            nn.Hardshrink,
            nn.GLU,
            nn.RReLU,
            nn.Dropout,
        )
    },
    "softmax": (lambda: nn.Softmax(-1), _ROWS),
    "log softmax": (lambda: nn.LogSoftmax(-1), _ROWS),
    "bilinear": (lambda: _Twice(nn.Bilinear(6, 6, 5)), _ROWS),
}

_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "cross entropy": lambda x: F.cross_entropy(x, _LABELS),
    "cross entropy smoothed": lambda x: F.cross_entropy(x, _LABELS, label_smoothing=0.1),
    "cross entropy of probabilities": lambda x: F.cross_entropy(x, torch.full(_ROWS, 1 / 6)),
    "nll": lambda x: F.nll_loss(x, _LABELS),
    "mse": lambda x: F.mse_loss(x, torch.ones(_ROWS)),
    "l1": lambda x: F.l1_loss(x, torch.ones(_ROWS)),
    "smooth l1": lambda x: F.smooth_l1_loss(x, torch.ones(_ROWS)),
    "huber": lambda x: F.huber_loss(x, torch.ones(_ROWS)),
    "bce with logits": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(_ROWS)),
    "bce": lambda x: F.binary_cross_entropy(x.float().sigmoid(), torch.ones(_ROWS)),
    "kl": lambda x: F.kl_div(x, torch.zeros(_ROWS), log_target=True, reduction="batchmean"),
    "triplet": lambda x: F.triplet_margin_loss(x, torch.ones(_ROWS), torch.zeros(_ROWS)),
    "cosine": lambda x: F.cosine_similarity(x, torch.ones(_ROWS)),
}

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "einsum": lambda x: torch.einsum("bi,bj->ij", x, x),
    "rotary": lambda x: torch.cat((-x[..., 3:], x[..., :3]), -1) * x.cos() + x.sin(),
    "complex": lambda x: torch.view_as_real(torch.view_as_complex(x.float().view(4, 3, 2)) * 1j),
    "mask": lambda x: x.masked_fill(torch.ones(_ROWS).tril() == 0, float("-inf")).softmax(-1),
    "boolean mask": lambda x: x[x > 0],
    "index": lambda x: x[_LABELS],
    "gather": lambda x: x.gather(1, _LABELS[:, None]),
    "scatter": lambda x: torch.zeros(_ROWS).scatter_add(1, _LABELS[:, None], x[:, :1]),
    "index add": lambda x: torch.zeros(_ROWS, dtype=x.dtype).index_add(0, _LABELS, x),
    "cumsum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort()[0],
    "topk": lambda x: x.topk(2)[0],
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "roll, flip, repeat": lambda x: x.roll(1, 0) + x.flip(0) + x.repeat(2, 1)[:4],
    "repeat interleave": lambda x: x.repeat_interleave(2, 0),
    "chunk, stack, cat": lambda x: torch.stack(x.chunk(2, 1)) + torch.cat(x.split(3, 1), 1)[:, :3],
    "statistics": lambda x: x.var(0).sum() + x.std() + x.norm() + x.logsumexp(1).sum() + x.amax(),
    "one hot": lambda x: F.one_hot(_LABELS, 6) * x,
    "fourier": lambda x: torch.fft.irfft(torch.fft.rfft(x.float())),
    "normalise": lambda x: F.normalize(x),
    "random": lambda x: x + torch.rand_like(x) + torch.bernoulli(torch.full(_ROWS, 0.5)),
    "ranges": lambda x: x + torch.arange(6) + torch.linspace(0, 1, 6) + torch.zeros(6),
    "weight norm": lambda x: nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))(x),
    "set items": lambda x: _set_items(x),
}


class _Twice(nn.Module):
    """Feeds one input to a module of two."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x)


def _set_items(x: Tensor) -> Tensor:
    x = x.clone()
    x[0] = 0.0
    x[:, 1] = x[:, 2]
    x[_LABELS[:2]] = 1.0
    return x


def _uncounted(forward: Callable[[], object], *, amp: bool) -> tuple[str, ...]:
    with OperatorCounter() as counter, torch.autocast("cpu", torch.bfloat16, enabled=amp):
        out = forward()
        while isinstance(out, tuple):
            out = out[0]
        assert isinstance(out, Tensor)
        if out.requires_grad:
            out.float().sum().backward()
    assert counter.totals.kernels > 0
    return counter.totals.uncounted


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("name", _MODULES)
def test_modules(name: str) -> None:
    make, shape = _MODULES[name]
    module, x = make(), torch.randn(shape, requires_grad=True)
    # oneDNN has no bf16 LSTM on every processor.
    for amp in (False,) if name == "lstm" else (False, True):
        assert _uncounted(lambda: module(x), amp=amp) == ()
    with torch.inference_mode():
        assert _uncounted(lambda: module(x), amp=False) == ()


@pytest.mark.parametrize("name", [*_LOSSES, *_FUNCTIONS])
def test_losses_and_functions(name: str) -> None:
    function = _LOSSES.get(name) or _FUNCTIONS[name]
    x = torch.randn(_ROWS, requires_grad=True)
    for amp in (False, True):
        if not (amp and name == "bce"):  # refused under autocast by torch
            assert _uncounted(lambda: function(x), amp=amp) == ()
    with torch.inference_mode():
        assert _uncounted(lambda: function(x.detach()), amp=False) == ()


@pytest.mark.parametrize("sparse", [False, True])
def test_embeddings(sparse: bool) -> None:
    table = nn.Embedding(10, 4, padding_idx=0, sparse=sparse)
    bag = nn.EmbeddingBag(10, 4)
    indices = torch.randint(0, 10, (3, 5))
    assert _uncounted(lambda: table(indices), amp=False) == ()
    assert _uncounted(lambda: bag(indices), amp=False) == ()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_attention(causal: bool, dropout: float) -> None:
    q, k, v = (torch.randn(2, 2, 4, 8, requires_grad=True) for _ in range(3))

    def attend() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, dropout_p=dropout)

    for amp in (False, True):
        assert _uncounted(attend, amp=amp) == ()


_FORMS: dict[str, dict[str, bool]] = {
    "default": {},
    "loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
_NOT_FUSED = {"RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"}
_OPTIMIZERS = [
    (name, form)
    for name in ("SGD", "Adam", "AdamW", "Adagrad", *sorted(_NOT_FUSED))
    for form in _FORMS
    if not (form == "fused" and name in _NOT_FUSED)
]


@pytest.mark.parametrize(("name", "form"), _OPTIMIZERS)
def test_optimizers(name: str, form: str) -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    options: dict[str, object] = dict(_FORMS[form])
    if name == "SGD":
        options |= {"momentum": 0.9, "nesterov": True}
    if name != "Rprop":
        options["weight_decay"] = 0.1
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, **options)
    with OperatorCounter() as counter:
        for _ in range(2):
            model(torch.randn(2, 6)).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=options.get("foreach"))
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    assert counter.totals.uncounted == ()


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_optimizers_of_later_versions(name: str) -> None:
    if not hasattr(torch.optim, name):
        pytest.skip(f"this torch has no {name}")
    model = nn.Linear(6, 5, bias=False)
    optimizer = getattr(torch.optim, name)(model.parameters())
    with OperatorCounter() as counter:
        for _ in range(2):
            model(torch.randn(2, 6)).sum().backward()
            optimizer.step()
    assert counter.totals.uncounted == ()


def test_gradient_scaler() -> None:
    model = nn.Linear(6, 5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    with OperatorCounter() as counter:
        with torch.autocast("cpu", torch.float16):
            loss = model(torch.randn(2, 6)).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert counter.totals.uncounted == ()
