"""A naive trainer of split networks in numpy and float64, which shares no code with `treetap.neural`.

Perceptrons at every party and on top, SGD with momentum or Adam, the three objectives, Party-wise Dropout; no images,
no rounding on the wire, no defence. It reads the parameters of a job and nothing else of it: draws, order of the
batches, scalers, initial weights, gradients and steps are worked out here again, as in a textbook.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from treetap.neural.params import SplitnnParams

Floats = npt.NDArray[np.float64]
Arrays = dict[str, Floats]


def drawn(key: bytes, count: int, *path: str | int) -> list[int]:
    """Whole numbers of 64 bits under a key and a name."""
    name = "\x1f".join(("s:" if isinstance(part, str) else "i:") + str(part) for part in path)
    digest = hashlib.shake_256(len(key).to_bytes(4, "little") + key + name.encode()).digest(8 * count)
    return [int.from_bytes(digest[8 * place : 8 * place + 8], "little") for place in range(count)]


def uniform(key: bytes, count: int, *path: str | int) -> Floats:
    """Numbers in [0, 1) with 53 bits."""
    return np.array([number // 2**11 / 2**53 for number in drawn(key, count, *path)])


def standardised(table: Floats) -> Floats:
    """Columns with mean 0 and deviation 1, a missing cell 0, then an indicator of each column that has one."""
    columns, indicators = [], []
    for column in table.T:
        known = [float(cell) for cell in column if not math.isnan(cell)]
        mean = sum(known) / len(known)
        deviation = math.sqrt(sum((cell - mean) ** 2 for cell in known) / len(known))
        columns.append([0.0 if math.isnan(cell) else (float(cell) - mean) / deviation for cell in column])
        if len(known) < len(column):
            indicators.append([float(math.isnan(cell)) for cell in column])
    return np.array([*columns, *indicators]).T


class Perceptron:
    """Layers of weights (outputs, inputs) and biases (outputs,), with ReLU between them, and an optimiser's state."""

    def __init__(self, params: SplitnnParams, sizes: list[int], key: bytes, *path: str) -> None:
        self._params, self._layers = params, len(sizes) - 1
        self.arrays: Arrays = {}
        for place, (inputs, outputs) in enumerate(pairwise(sizes)):
            for name, shape in ((f"linear{place}.weight", (outputs, inputs)), (f"linear{place}.bias", (outputs,))):
                numbers = uniform(key, math.prod(shape), *path, "weights", name)
                self.arrays[name] = ((2 * numbers - 1) / math.sqrt(inputs)).reshape(shape)
        self._steps, self._inputs = 0, list[Floats]()
        self._first = {name: np.zeros_like(values) for name, values in self.arrays.items()}
        self._second = {name: np.zeros_like(values) for name, values in self.arrays.items()}
        self._gradients: Arrays = {}

    def forward(self, x: Floats) -> Floats:
        """Outputs (n, last size)."""
        self._inputs = []
        for place in range(self._layers):
            self._inputs.append(x)
            x = x @ self.arrays[f"linear{place}.weight"].T + self.arrays[f"linear{place}.bias"]
            if place < self._layers - 1:
                x = np.where(x > 0, x, 0.0)
        return x

    def backward(self, gradient: Floats) -> Floats:
        """The gradient in the inputs, from that in the outputs of the last `forward`; keeps that in the weights."""
        for place in reversed(range(self._layers)):
            self._gradients[f"linear{place}.weight"] = gradient.T @ self._inputs[place]
            self._gradients[f"linear{place}.bias"] = gradient.sum(axis=0)
            gradient = gradient @ self.arrays[f"linear{place}.weight"]
            if place:
                gradient = np.where(self._inputs[place] > 0, gradient, 0.0)
        return gradient

    def step(self, rate: float) -> None:
        """SGD with momentum or Adam, with weight decay added to the gradient."""
        self._steps += 1
        for name, values in self.arrays.items():
            gradient = self._gradients[name] + self._params.weight_decay * values
            if self._params.optimizer == "sgd":
                self._first[name] = self._params.momentum * self._first[name] + gradient
                self.arrays[name] = values - rate * self._first[name]
                continue
            self._first[name] = 0.9 * self._first[name] + 0.1 * gradient
            self._second[name] = 0.999 * self._second[name] + 0.001 * gradient**2
            mean, square = self._first[name] / (1 - 0.9**self._steps), self._second[name] / (1 - 0.999**self._steps)
            self.arrays[name] = values - rate * mean / (np.sqrt(square) + 1e-8)


class NaiveNetwork:
    """A split network of a job that says `reproducible`; the first party holds the labels."""

    def __init__(
        self, params: SplitnnParams, tables: Mapping[str, Floats], labels: npt.NDArray[np.float64], classes: int
    ) -> None:
        """`tables`: each party's features (N, d), NaN where missing. `labels`: (N,) class numbers or targets."""
        self._params, self._classes = params, classes
        self.inputs = {name: standardised(table) for name, table in tables.items()}
        self._mean, self._deviation = (labels.mean(), labels.std()) if params.regression else (0.0, 1.0)
        self._labels = (labels - self._mean) / self._deviation if params.regression else labels
        self.bottoms: dict[str, Perceptron] = {}
        for name, inputs in self.inputs.items():
            settings, key = params.bottom_of(name), f"reproducible {params.seed} {name}".encode()
            sizes = [inputs.shape[1], *settings.hidden, settings.width]
            self.bottoms[name] = Perceptron(params, sizes, key, "bottom", name)
        holder = next(iter(tables))
        self._widths = [params.bottom_of(name).width for name in tables]
        sizes = [sum(self._widths), *params.top.hidden, params.outputs(classes)]
        self.top = Perceptron(params, sizes, f"reproducible {params.seed} {holder}".encode(), "top")

    def train(self) -> NaiveNetwork:
        """Every epoch, batch by batch."""
        params, key, records = self._params, f"job {self._params.seed}".encode(), len(self._labels)
        done, batches = 0, math.ceil(records / params.batch_size) - (records % params.batch_size == 1)
        for epoch in range(params.epochs):
            keys = drawn(key, records, "order", epoch)
            order = sorted(range(records), key=keys.__getitem__)
            for batch in range(batches):
                begin = batch * params.batch_size
                rows = np.array(order[begin:] if batch == batches - 1 else order[begin : begin + params.batch_size])
                out = {
                    name
                    for name, share in params.party_dropout.items()
                    if uniform(key, 1, "party", epoch, batch, name)[0] < share
                }
                rate = params.learning_rate
                if params.schedule == "cosine":
                    rate *= (1 + math.cos(math.pi * done / (params.epochs * batches))) / 2
                self._train_batch(rows, out, rate)
                done += 1
        return self

    def outputs(self, inputs: Mapping[str, Floats], away: set[str]) -> Floats:
        """Outputs of the top (n, K); embeddings of parties that are away are 0."""
        parts = []
        for (name, bottom), width in zip(self.bottoms.items(), self._widths, strict=True):
            parts.append(np.zeros((len(inputs[name]), width)) if name in away else bottom.forward(inputs[name]))
        return self.top.forward(np.hstack(parts))

    def scores(self, away: set[str]) -> Floats:
        """Scores (N, K) of the records of the training: margins, or values in the unit of the labels."""
        return self.outputs(self.inputs, away) * self._deviation + self._mean

    def weights(self) -> dict[str, Arrays]:
        """Party → weights by the names of a published model."""
        found = {
            name: {f"bottom/{key}": values for key, values in bottom.arrays.items()}
            for name, bottom in self.bottoms.items()
        }
        found[next(iter(found))] |= {f"top/{key}": values for key, values in self.top.arrays.items()}
        return found

    def _train_batch(self, rows: npt.NDArray[np.int64], out: set[str], rate: float) -> None:
        outputs = self.outputs({name: inputs[rows] for name, inputs in self.inputs.items()}, out)
        gradient = np.array([self._slope(*each) for each in zip(outputs, self._labels[rows], strict=True)]) / len(rows)
        parts = np.split(self.top.backward(gradient), np.cumsum(self._widths)[:-1], axis=1)
        self.top.step(rate)
        for (name, bottom), part in zip(self.bottoms.items(), parts, strict=True):
            if name not in out:
                bottom.backward(part)
                bottom.step(rate)

    def _slope(self, outputs: Floats, label: float) -> Floats:
        """The gradient of one record's loss in its outputs (K,)."""
        if self._params.objective == "multi:softprob":
            chances = np.exp(outputs - outputs.max())
            chances /= chances.sum()
            chances[int(label)] -= 1
            return chances
        if self._params.objective == "binary:logistic":
            return 1 / (1 + np.exp(-outputs)) - label
        return 2 * (outputs - label)
