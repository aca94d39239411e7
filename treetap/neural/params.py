"""Parameters of a split network, and the ranges they must lie in.

Architectures have names and sizes, never an import path: a job cannot make a party load code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from treetap.errors import ConfigError
from treetap.trees.job_params import (
    OBJECTIVES,
    EarlyStoppingParams,
    JobParams,
    Range,
    not_a_choice,
    not_a_switch,
    out_of_range,
)

#: The entry of `bottom` for parties that have none of their own.
DEFAULT = "default"
KINDS = ("mlp", "cnn", "resnet")
NORMS = ("group", "batch")
POOLS = ("average", "none")
OPTIMIZERS = ("sgd", "adam")
SCHEDULES = ("constant", "cosine")
#: Types of the numbers on the wire.
WIRE_TYPES = ("float32", "bfloat16")
#: Bytes of a number of each.
NUMBER_BYTES = {"float32": 4, "bfloat16": 2}
_SIZE = Range(1, 65_536, integer=True)
_MOST_LAYERS = 64
_BLOCKS = Range(1, 64, integer=True)
_RANGES = {
    "epochs": Range(1, 100_000, integer=True),
    "batch_size": Range(2, 65_536, integer=True),
    "momentum": Range(0, 1, open_high=True),
    "weight_decay": Range(0, 1),
    "learning_rate": Range(0, 100, open_low=True),
    "threads": Range(1, 256, integer=True),
    "seed": Range(0, 2**63 - 1, integer=True),
}


@dataclass(frozen=True)
class Bottom:
    """A party's own model, from its columns to its embedding.

    `mlp`: layers of `hidden` sizes with ReLU. `cnn`: for each of `channels` a 3×3 convolution, norm, ReLU and 2×2
    maximum. `resnet`: stages of `blocks` residual blocks on `channels[0]` channels, which each further stage doubles
    (He et al. 2016; 64 and 2, 2, 2, 2 is ResNet-18), and what these leave of an image by `pool`: the average over all
    places, or all of them. All end in a linear layer of `width`. `norm` is that of convolutions: group normalisation
    (Wu, He 2018) or batch normalisation.
    """

    kind: str = "mlp"
    """"mlp": layers of `hidden` sizes. Of one column of images "cnn", a convolution for each of `channels`, or
    "resnet", residual `blocks`.
    """
    hidden: tuple[int, ...] = ()
    """"mlp": sizes of layers."""
    channels: tuple[int, ...] = ()
    """"cnn": those of each convolution; "resnet": the first stage's: a list of one."""
    blocks: tuple[int, ...] = ()
    """"resnet": residual blocks of each stage, 1 to 64."""
    width: int = 32
    """Size of the embedding."""
    norm: str = "group"
    """Normalisation after convolutions, by group or by batch."""
    pool: str = "average"
    """"resnet": what enters the last layer, the average of each channel over all places, or all places."""

    def faults(self, where: str) -> list[str]:
        """The faults of the fields, each with its path below `where`."""
        wrong = not_a_choice(self, {"kind": KINDS, "norm": NORMS, "pool": POOLS}) + out_of_range(self, {"width": _SIZE})
        # Which sizes a kind has: others are a mistake rather than ignored.
        for name, kinds in (("hidden", ("mlp",)), ("channels", ("cnn", "resnet")), ("blocks", ("resnet",))):
            sizes = getattr(self, name)
            wrong += _bad_sizes(name, sizes, _BLOCKS if name == "blocks" else _SIZE)
            if sizes and self.kind in KINDS and self.kind not in kinds:
                wrong.append(f"{name} is of {' and '.join(kinds)}, not of {self.kind}; leave it out")
            if not sizes and self.kind in kinds and name != "hidden":
                wrong.append(f"{name} is missing, a list of sizes")
        if self.pool == "none" and self.kind in KINDS and self.kind != "resnet":
            wrong.append(f"pool is of resnet, not of {self.kind}; leave it out")
        if self.kind == "resnet" and not wrong:
            wrong += self._resnet_faults()
        return [f"{where}.{fault}" for fault in wrong]

    def _resnet_faults(self) -> list[str]:
        """The faults of sizes that are fit by themselves."""
        if len(self.channels) > 1:
            return ["channels of resnet is one number, that of the first stage; each further stage doubles it"]
        stages = len(self.blocks)
        last = self.channels[0] << (stages - 1)
        return [f"blocks: the last of {stages} stages has {last} channels; at most 65536"] if last > _SIZE.high else []


@dataclass(frozen=True)
class Top:
    """The label holder's model from the joined embeddings to the scores: layers of `hidden` sizes with ReLU."""

    hidden: tuple[int, ...] = ()
    """Sizes of layers; empty: one linear layer."""

    def faults(self) -> list[str]:
        """The faults of the fields, each with its path."""
        return [f"top.{fault}" for fault in _bad_sizes("hidden", self.hidden)]


@dataclass(frozen=True)
class SplitnnParams(EarlyStoppingParams, JobParams):
    """The parameters of a job that trains a split network."""

    protocol: ClassVar[str] = "splitnn"
    objective: str = "binary:logistic"
    """The kind of labels and predictions: two classes, several, or numbers."""
    epochs: int = 5
    """Passes over the records."""
    batch_size: int = 64
    """Records of a batch, at most those that are trained on; a last batch of one record is joined with the one before.
    """
    optimizer: str = "sgd"
    """The optimiser."""
    momentum: float = 0.9
    """Momentum of "sgd"."""
    weight_decay: float = 0.0
    """Share of each weight by which a step makes it smaller, times the learning rate."""
    learning_rate: float = 0.05
    """The learning rate."""
    schedule: str = "constant"
    """How the learning rate goes down: not at all, or along a cosine."""
    wire_type: str = "float32"
    """Type of the numbers between parties; "bfloat16" halves the bytes."""
    threads: int = 1
    """Threads of an operation at every party; another number rounds differently."""
    bottom: Mapping[str, Bottom] = field(default_factory=lambda: {DEFAULT: Bottom(hidden=(64,))})
    """Each party's own model, a table for each; `bottom.default` is of all parties without one."""
    top: Top = Top()
    """The label holder's model on the joined embeddings."""
    reproducible: bool = False
    """All private draws follow from the job's seed: for tests, where every policy allows it."""

    def bottom_of(self, party: str) -> Bottom:
        """The settings of a party's own model; `ConfigError` where the job has none for it."""
        if party in self.bottom:
            return self.bottom[party]
        if DEFAULT in self.bottom:
            return self.bottom[DEFAULT]
        raise ConfigError(f"bottom.{party}: is missing, and there is no bottom.{DEFAULT} for parties without one")

    def norms_batches(self, party: str) -> bool:
        bottom = self.bottom_of(party)
        return bottom.kind != "mlp" and bottom.norm == "batch"

    def party_faults(self, first: str, others: Sequence[str]) -> list[str]:
        """See `JobParams`: also settings of no party's own model, and parties without settings."""
        parties, wrong = [name for name in (first, *others) if name], super().party_faults(first, others)
        for name in self.bottom:
            if name not in (DEFAULT, *parties):
                wrong.append(f"bottom.{name}: is not a party of the job ({', '.join(parties)})")
        for name in parties:
            try:
                self.bottom_of(name)
            except ConfigError as fault:
                wrong.append(str(fault))
        return wrong

    def faults(self) -> list[str]:
        choices = {
            "objective": OBJECTIVES,
            "optimizer": OPTIMIZERS,
            "schedule": SCHEDULES,
            "wire_type": WIRE_TYPES,
        }
        wrong = not_a_choice(self, choices) + out_of_range(self, _RANGES)
        wrong += self.bad_stopping() + self.common_faults() + not_a_switch(self, "reproducible")
        for name, sizes in self.bottom.items():
            wrong += sizes.faults(f"bottom.{name}")
        return wrong + self.top.faults()

    def of_one_party(self) -> SplitnnParams:
        """The same for a model of one party: no other sits out, and no record is set aside."""
        return replace(self, early_stopping_rounds=None, party_dropout={})


def _bad_sizes(name: str, sizes: object, allowed: Range = _SIZE) -> list[str]:
    """The faults of a list of sizes."""
    if not isinstance(sizes, tuple):
        return [f"{name} must be a list of whole numbers, not {sizes!r}"]
    if len(sizes) > _MOST_LAYERS:
        return [f"{name} has {len(sizes)} entries; at most {_MOST_LAYERS}"]
    return [f"{name}: {complaint}" for complaint in map(allowed.complaint, sizes) if complaint]
