"""Models by name and sizes, with named initial weights."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from treetap.errors import DataError
from treetap.neural.draws import Draws
from treetap.neural.params import Bottom, Top

#: Most weights of one model: those of a job that no party means to train would fill its memory.
MOST_WEIGHTS = 100_000_000
#: Most groups of a group normalisation.
_GROUPS = 8
#: Convolutions with fewer outputs are products of matrices: kernels of oneDNN 3.12 for AVX2 write beyond the gradient
#: of such weights, and the process crashes.
_NARROW = 8
_OF_PERCEPTRONS = (nn.Flatten, nn.Linear, nn.ReLU)


@dataclass(frozen=True)
class InputShape:
    """A party's inputs: numbers of a record, and the channels, height and width of its images, where it has some."""

    columns: int
    images: tuple[tuple[int, int, int], ...] = ()

    @property
    def numbers(self) -> int:
        """All numbers of a record, pixels included."""
        return self.columns + sum(math.prod(image) for image in self.images)


def bottom_model(settings: Bottom, shape: InputShape, draws: Draws, *path: str | int) -> nn.Module:
    """A party's own model: (n, numbers) → (n, width), of `cnn` and `resnet` (n, channels, height, width) → (n, width).

    Raises:
        DataError: the inputs do not fit the kind, or the weights are too many.
    """
    return _initialised(bottom_to_load(settings, shape), draws, *path)


def top_model(settings: Top, inputs: int, outputs: int, draws: Draws, *path: str | int) -> nn.Module:
    """The model on the joined embeddings: (n, inputs) → (n, outputs).

    Raises:
        DataError: the weights are too many.
    """
    return _initialised(top_to_load(settings, inputs, outputs), draws, *path)


def bottom_to_load(settings: Bottom, shape: InputShape) -> nn.Module:
    """As `bottom_model`, with weights that have no value until they are loaded. Raises DataError as it does."""
    _check_weights("bottom", lambda: _bottom(settings, shape))
    return _bottom(settings, shape)


def top_to_load(settings: Top, inputs: int, outputs: int) -> nn.Module:
    """As `top_model`, with weights that have no value until they are loaded. Raises DataError as it does."""
    _check_weights("top", lambda: _mlp(inputs, settings.hidden, outputs))
    return _mlp(inputs, settings.hidden, outputs)


def is_perceptron(model: nn.Module) -> bool:
    """True for layers one after the other, linear ones and ReLU."""
    return isinstance(model, nn.Sequential) and all(isinstance(layer, _OF_PERCEPTRONS) for layer in model)


@contextmanager
def held_statistics(model: nn.Module) -> Iterator[None]:
    """Hold the statistics of batch normalisation fixed: those of the batch that is passed, without their gradient."""
    layers = _with_statistics(model)
    for layer in layers:
        layer.held = True
    try:
        yield
    finally:
        for layer in layers:
            layer.held = False


def has_statistics(model: nn.Module) -> bool:
    """True for a model with batch normalisation."""
    return bool(_with_statistics(model))


def _with_statistics(model: nn.Module) -> list[_BatchNorm]:
    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]


def _initialised(model: nn.Module, draws: Draws, *path: str | int) -> nn.Module:
    """The model with its initial weights: uniform in ±1/√(inputs of a unit), norms at 1 and 0.

    This is `kaiming_uniform_(a=√5)` (He et al. 2015), which PyTorch's own layers begin with.
    """
    with torch.no_grad():
        for name, layer in model.named_modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                bound = 1.0 / math.sqrt(max(1, math.prod(layer.weight.shape[1:])))
                for kind, tensor in (("weight", layer.weight), ("bias", layer.bias)):
                    if tensor is not None:
                        drawn = torch.from_numpy(draws.uniform(tensor.numel(), *path, "weights", f"{name}.{kind}"))
                        tensor.copy_(drawn.mul_(2.0).sub_(1.0).mul_(bound).reshape(tensor.shape))
            elif isinstance(layer, nn.GroupNorm | nn.BatchNorm2d):
                nn.init.ones_(layer.weight)
                nn.init.zeros_(layer.bias)
    return model


class _Linear(nn.Linear):
    def reset_parameters(self) -> None:
        """Leave the weights without a value: PyTorch's own come from a generator that the whole process shares."""


class _Conv(nn.Conv2d):
    def reset_parameters(self) -> None:
        """As of `_Linear`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, inputs, h, w) → (n, outputs, h / stride, w / stride); see `_NARROW`."""
        if self.out_channels >= _NARROW:
            return super().forward(x)
        size, stride, padding = self.kernel_size[0], self.stride[0], int(self.padding[0])
        columns = functional.unfold(x, size, padding=padding, stride=stride)
        height, width = ((length + 2 * padding - size) // stride + 1 for length in x.shape[2:])
        return (self.weight.flatten(1) @ columns).reshape(len(x), self.out_channels, height, width)


def _check_weights(which: str, make: Callable[[], nn.Module]) -> None:
    """Raise DataError if a model has too many weights, before it takes memory."""
    with torch.device("meta"):
        count = sum(weight.numel() for weight in make().parameters())
    if count > MOST_WEIGHTS:
        raise DataError(f"{which}: the model has {count:,} weights; at most {MOST_WEIGHTS:,}: name smaller sizes")


def _bottom(settings: Bottom, shape: InputShape) -> nn.Module:
    if settings.kind == "mlp":
        layers = _mlp(shape.numbers, settings.hidden, settings.width)
        return nn.Sequential(OrderedDict([("flat", nn.Flatten()), *layers.named_children()]))
    if shape.columns or len(shape.images) != 1:
        raise DataError(
            f"kind = {settings.kind!r} takes one column of images and no other; this table has {shape.columns} "
            f"numbers and {len(shape.images)} columns of images: name one column, or use kind = 'mlp'"
        )
    channels, height, width = shape.images[0]
    return (_cnn if settings.kind == "cnn" else _resnet)(settings, channels, height, width)


def _mlp(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    layers: list[tuple[str, nn.Module]] = []
    for number, size in enumerate(hidden):
        layers += [(f"linear{number}", _Linear(inputs, size)), (f"relu{number}", nn.ReLU())]
        inputs = size
    return nn.Sequential(OrderedDict([*layers, (f"linear{len(hidden)}", _Linear(inputs, outputs))]))


def _conv(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Module:
    return _Conv(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


def _norm(kind: str, channels: int) -> nn.Module:
    if kind == "batch":
        return _BatchNorm(channels)
    return nn.GroupNorm(math.gcd(channels, _GROUPS), channels)


class _BatchNorm(nn.BatchNorm2d):
    """Batch normalisation; `held`: see `held_statistics`."""

    held = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, channels, h, w) → (n, channels, h, w)."""
        if not self.held:
            return super().forward(x)
        variance, mean = torch.var_mean(x.detach(), dim=(0, 2, 3), correction=0)
        return functional.batch_norm(x, mean, variance, self.weight, self.bias, training=False, eps=self.eps)


def _cnn(settings: Bottom, channels: int, height: int, width: int) -> nn.Sequential:
    layers: list[tuple[str, nn.Module]] = []
    for number, size in enumerate(settings.channels):
        if min(height, width) < 2:
            raise DataError(
                f"channels has {len(settings.channels)} entries: each halves the images, which are too small"
            )
        layers += [
            (f"conv{number}", _conv(channels, size)),
            (f"norm{number}", _norm(settings.norm, size)),
            (f"relu{number}", nn.ReLU()),
            (f"pool{number}", nn.MaxPool2d(2)),
        ]
        channels, height, width = size, height // 2, width // 2
    layers += [("flat", nn.Flatten()), ("linear", _Linear(channels * height * width, settings.width))]
    return nn.Sequential(OrderedDict(layers))


def _resnet(settings: Bottom, channels: int, height: int, width: int) -> nn.Module:
    halved = 1 << (len(settings.blocks) - 1)
    if height <= halved and width <= halved:  # a norm over one pixel would leave nothing of it
        raise DataError(
            f"blocks has {len(settings.blocks)} entries: each but the first halves the images, which are too small"
        )
    return _Resnet(settings, channels, height, width)


class _Block(nn.Module):
    """A basic residual block (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv0, self.norm0 = _conv(inputs, outputs, stride=stride), _norm(norm, outputs)
        self.conv1, self.norm1 = _conv(outputs, outputs), _norm(norm, outputs)
        self.skip: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.skip = nn.Sequential(_conv(inputs, outputs, 1, stride), _norm(norm, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, inputs, h, w) → (n, outputs, h / stride, w / stride)."""
        y = torch.relu(self.norm0(self.conv0(x)))
        y = self.norm1(self.conv1(y))
        return torch.relu(y + self.skip(x))


class _Resnet(nn.Module):
    """Residual stages on small images: the first convolution keeps their size."""

    def __init__(self, settings: Bottom, channels: int, height: int, width: int) -> None:
        super().__init__()
        size = settings.channels[0]
        self.conv, self.norm = _conv(channels, size), _norm(settings.norm, size)
        blocks: list[nn.Module] = []
        inputs = size
        for stage, count in enumerate(settings.blocks):
            outputs = size << stage
            for number in range(count):
                blocks.append(_Block(inputs, outputs, 2 if stage and not number else 1, settings.norm))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.averaged = settings.pool == "average"
        halved = 1 << (len(settings.blocks) - 1)
        places = 1 if self.averaged else -(-height // halved) * -(-width // halved)
        self.linear = _Linear(inputs * places, settings.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, channels, h, w) → (n, width)."""
        y = self.blocks(torch.relu(self.norm(self.conv(x))))
        embedding: torch.Tensor = self.linear(y.mean(dim=(2, 3)) if self.averaged else y.flatten(1))
        return embedding
