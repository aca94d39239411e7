"""The mechanisms that `treetap measure-epsilon` measures: what each claims, and the canaries of its games.

A mechanism is a table [[measure]] and a class here, with its name in `Mechanism`. A play carries out the code that
parties carry out, up to the number that an attacker sees; chance comes from a given generator, so that a seed repeats
it. The neighbours are the worst that the claim covers: all but the canary is held fixed, trees included.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import random
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Discriminator, Field, Tag, model_validator

from attacks.epsilon import gaussian_epsilon
from party.pivodl.leaf_weights import NoiseLedger
from party.runtime.job_store import JobStore
from treetap.commands.options import needs
from treetap.models.line_file import Line, LineFile
from treetap.neural.defences import DELTA, DpSgd, epsilon
from treetap.neural.draws import Draws
from treetap.privacy.column_privacy import ColumnPrivacy, drawn_sums
from treetap.privacy.discrete_gaussian import discrete_gaussians
from treetap.privacy.label_dp import Floats, Ints, staged
from treetap.privacy.zcdp import LeafWeightPrivacy, rho_of
from treetap.protocols.own_priors import by_own_trees
from treetap.strict import Strict
from treetap.tables.features import Held
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids
from treetap.trees.candidates import CandidateList, Shape
from treetap.trees.params import BoostingParams
from treetap.trees.pivodl_params import PivodlParams

#: Most records of which priors have leaves of one record: the table in which the canary of a game lies.
_FEW = 7
#: Most plays on a neighbour between two looks at the clock.
_BATCH = 20
#: Most records × stages × classes, and squared canaries × epochs, of one run: half a minute.
_PRIORS, _SQUARES = 4_000_000, 4_000_000_000
#: Exact weights and gradients of canaries, in units of the bound to which they are clipped.
_FAR = 4.0
#: Size of the input of a canary's own in one run; what it shares with others, the bias, has 1.
_OWN_INPUT = 1000.0
#: Most leaves of a job.
_LEAVES = 10_000


class Measured(Strict):
    """A table [[measure]].

    `runs`: of the game, half of them on each neighbour; 0: it is not played. `canaries`: of the one run; 0: none.
    `gaussian`: the noise is Gaussian but for its scale. `no_one_run`: the reason why there is no such run, or nothing.
    `carried_out`: the modules that are measured: runs of other code do not count. `batch`: plays on a neighbour at
    once, which take less than a minute.
    """

    gaussian: ClassVar[bool] = False
    no_one_run: ClassVar[str] = ""
    carried_out: ClassVar[tuple[str, ...]] = ()
    runs: Annotated[int, Field(ge=0, le=10_000_000)] = 2000
    canaries: Annotated[int, Field(ge=0, le=100_000)] = 2000

    @model_validator(mode="after")
    def _measures_something(self) -> Measured:
        if self.no_one_run and "canaries" in self.model_fields_set:
            raise ValueError(f"canaries: leave it out: {self.no_one_run}")
        if not self.runs and (self.no_one_run or not self.canaries):
            raise ValueError("nothing is measured: give runs = 2000")
        return self

    @property
    @abstractmethod
    def claimed(self) -> float:
        """ε that users are told."""

    @property
    def claimed_delta(self) -> float:
        """δ of that ε."""
        return 0.0

    @property
    def by_noise(self) -> float:
        """ε at that δ by the noise that the claim asks for, without the slack of its accounting."""
        return self.claimed

    @property
    def batch(self) -> int:
        """At most 20, and fewer where a play takes long."""
        return _BATCH

    @classmethod
    def code(cls) -> str:
        """A digest of the code that is measured, and of this file."""
        specs = [importlib.util.find_spec(name) for name in (__name__, *cls.carried_out)]
        sources = [Path(it.origin).read_bytes() for it in specs if it and it.origin]
        return hashlib.sha256(b"\0".join(sources)).hexdigest()[:16]

    @abstractmethod
    def play(self, given: bool, plays: int, chance: random.Random) -> list[float]:
        """Scores of plays, which tend to be greater on the neighbour that has the canary (`given`)."""

    def play_once(self, coins: Sequence[bool], chance: random.Random) -> list[float]:
        """A score for each canary of one run, greater where its coin is true; 0: no guess."""
        raise NotImplementedError

    def guesses(self, scores: Sequence[float]) -> dict[int, bool]:
        """Canary → the guess of its coin: by the sign of its score."""
        return {place: score > 0 for place, score in enumerate(scores) if score}


class LabelNoise(Measured):
    """Noisy labels (`treetap.privacy.label_dp`): the canary's label is the first class or the second.

    In one run every record's label is drawn by its coin. `classes`: C, of which canaries have the first two. From two
    `stages` on priors are the trees', there of three columns of random numbers. In a game the canary is then alone at
    one end of a small table, next to records of the second class: a forest that knows its label is sure of the second
    class on one neighbour, and not on the other. An attacker sees whether the canary's prior was the trees'.
    """

    carried_out: ClassVar[tuple[str, ...]] = (
        "treetap.privacy.label_dp",
        "treetap.protocols.own_priors",
        "treetap.trees.class_frequencies",
    )
    mechanism: Literal["label_dp"]
    epsilon: Annotated[float, Field(gt=0, le=64)]
    stages: Annotated[int, Field(ge=1, le=16)] = 1
    classes: Annotated[int, Field(ge=2, le=1024)] = 2

    @model_validator(mode="after")
    def _fills_its_stages(self) -> LabelNoise:
        if 0 < self.canaries < self.stages:
            raise ValueError(f"canaries: fewer than stages ({self.stages}): give canaries = 2000")
        most = _PRIORS // (self.stages * self.classes)
        if self.stages > 1 and self.canaries > most:
            raise ValueError(f"canaries: too many for so many stages and classes: give canaries = {most} or fewer")
        return self

    @property
    def batch(self) -> int:
        work = self.stages * self.classes if self.stages > 1 else 1
        return max(1, min(_BATCH, 1000 // work))

    @property
    def claimed(self) -> float:
        return self.epsilon

    def play(self, given: bool, plays: int, chance: random.Random) -> list[float]:
        records = max(_FEW, self.stages)
        labels, features = np.ones(records, dtype=np.int64), np.zeros((records, 3))
        features[0], features[-1] = -1.0, 1.0
        labels[0], labels[-1] = 0, int(given)
        return [self._noisy(labels, features, chance, by_trees=2.0)[-1] for _ in range(plays)]

    def play_once(self, coins: Sequence[bool], chance: random.Random) -> list[float]:
        features = np.random.default_rng(len(coins)).normal(size=(len(coins), 3))
        return self._noisy(np.array(coins, dtype=np.int64), features, chance)

    def _noisy(
        self,
        labels: np.ndarray[tuple[int], np.dtype[np.int64]],
        features: np.ndarray[tuple[int, int], np.dtype[np.float64]],
        chance: random.Random,
        by_trees: float = 1.0,
    ) -> list[float]:
        """A score for each record by its noisy label: 1 of the second class, −1 of the first, 0 of another.

        `by_trees`: the factor of those whose prior is the trees': the division into stages depends on no label.
        """
        ids = Ids.of([f"{record:06d}" for record in range(len(labels))])
        table = Table(Path("canaries"), ids, ["a", "b", "c"], Held(features), None, np.arange(len(labels)))
        learned, factors = by_own_trees(table, self.classes).of, np.ones(len(labels))

        def priors(before: Ints, noisy: Ints, following: Ints) -> Floats:
            factors[following] = by_trees
            return learned(before, noisy, following)

        noisy = staged(labels, self.classes, self.epsilon, self.stages, priors, chance.randrange)
        signs = np.where(noisy == 1, 1.0, np.where(noisy == 0, -1.0, 0.0))
        return [float(score) for score in signs * factors]


class LeafWeightNoise(Measured):
    """Noise on the leaf weights of a PIVODL job (`party.pivodl.leaf_weights`); keys are those of the job.

    The canary moves every leaf of the job, of two numbers, from one end of the clip to the other. Each weight is asked
    for again, as by a retry and after a restart: noise that is drawn anew averages out.
    """

    carried_out: ClassVar[tuple[str, ...]] = (
        "party.pivodl.leaf_weights",
        "treetap.privacy.discrete_gaussian",
        "treetap.privacy.zcdp",
        "treetap.trees.pivodl_params",
    )
    gaussian: ClassVar[bool] = True
    no_one_run: ClassVar[str] = "all leaves of a job are one canary's, so that one run has no second canary"
    mechanism: Literal["pivodl"]
    epsilon: Annotated[float, Field(gt=0, le=1e6)]
    delta: Annotated[float, Field(gt=0, lt=1)] = PivodlParams.delta
    clip: Annotated[float, Field(gt=0, le=1e6)] = PivodlParams.clip
    learning_rate: Annotated[float, Field(gt=0, le=1)] = PivodlParams.learning_rate
    n_estimators: Annotated[int, Field(ge=1, le=1000)] = 1
    max_depth: Annotated[int, Field(ge=1, le=10)] = 1
    as_published: bool = False

    @model_validator(mode="after")
    def _is_small(self) -> LeafWeightNoise:
        if self.n_estimators << self.max_depth > _LEAVES:
            raise ValueError(f"n_estimators trees of max_depth have more than {_LEAVES} leaves: measure a smaller job")
        return self

    @property
    def batch(self) -> int:
        return max(1, min(_BATCH, _LEAVES // (self.n_estimators << self.max_depth)))

    @property
    def claimed(self) -> float:
        return self.epsilon

    @property
    def claimed_delta(self) -> float:
        return self.delta

    @cached_property
    def by_noise(self) -> float:
        return min(self.epsilon, gaussian_epsilon(math.sqrt(2 * rho_of(self.epsilon, self.delta)), self.delta))

    @property
    def _privacy(self) -> LeafWeightPrivacy:
        keys = self.model_dump(exclude={"mechanism", "runs", "canaries"})
        privacy = LeafWeightPrivacy.of(PivodlParams(**keys))
        assert privacy is not None  # there is an epsilon
        return privacy

    def play(self, given: bool, plays: int, chance: random.Random) -> list[float]:
        privacy, store = self._privacy, _InMemory(Path(), Path())
        exact = np.full(2, _FAR * privacy.sent_clip * (1 if given else -1))
        ledgers = [NoiseLedger(store, privacy, chance.randrange)] * 2 + [NoiseLedger(store, privacy, chance.randrange)]
        scores = np.zeros((len(ledgers), plays, privacy.leaves, len(exact)))
        for number, ledger in enumerate(ledgers):
            for play in range(plays):
                for leaf in range(privacy.leaves):
                    scores[number, play, leaf] = ledger.released(play, leaf, exact)
        of_plays = scores.swapaxes(0, 1).reshape(plays, len(ledgers), -1)
        averaged = [[np.mean(np.unique(asked)) for asked in of_play.T] for of_play in of_plays]
        return [float(np.sum(numbers)) / privacy.sent_clip for numbers in averaged]


class _InMemory(JobStore):
    """A job's files of one kind, in memory."""

    def lines(self, kind: str) -> LineFile:
        return self._lines.setdefault(kind, _Lines(Path(kind), lambda: kind))


class _Lines(LineFile):
    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self._kept: list[Line] = []

    def read(self) -> list[Line]:
        return list(self._kept)

    def put(self, content: Line, index: int) -> None:
        self._kept[index:] = [content]


class GradientNoise(Measured):
    """DP-SGD of a feature party of a split network (`treetap.neural.own_step`); keys are those of the party's file.

    The canary's gradient is clipped in one neighbour and 0 in the other, in each of the `epochs`. In one run each of
    the canaries has an input of its own, so that their gradients are orthogonal; a tenth of the coins is guessed.
    """

    gaussian: ClassVar[bool] = True
    carried_out: ClassVar[tuple[str, ...]] = (
        "treetap.neural.defences",
        "treetap.neural.draws",
        "treetap.neural.own_step",
    )
    mechanism: Literal["dp_sgd"]
    noise: Annotated[float, Field(gt=0, le=1e6)]
    clip: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 1
    canaries: Annotated[int, Field(ge=0, le=5000)] = 2000

    @model_validator(mode="after")
    def _is_soon_over(self) -> GradientNoise:
        most = math.isqrt(_SQUARES // self.epochs)
        if self.canaries > most:
            raise ValueError(f"canaries: too many for so many epochs: give canaries = {most} or fewer")
        return self

    @property
    def batch(self) -> int:
        return max(1, min(_BATCH, 2000 // self.epochs))

    @property
    def claimed(self) -> float:
        return epsilon(DpSgd(self.clip, self.noise), self.epochs)

    @property
    def claimed_delta(self) -> float:
        return DELTA

    @cached_property
    def by_noise(self) -> float:
        return min(self.claimed, gaussian_epsilon(math.sqrt(self.epochs) / self.noise, DELTA))

    def play(self, given: bool, plays: int, chance: random.Random) -> list[float]:
        with needs("neural"):
            import torch

            from treetap.neural import own_step
            from treetap.neural.architectures import InputShape, bottom_model
            from treetap.neural.params import Bottom

        model = bottom_model(Bottom(hidden=(3,), width=2), InputShape(3), Draws(b"canaries"), "bottom")
        numbers = torch.linspace(-1.0, 1.0, 24).reshape(8, 3)
        gradient = torch.full((8, 2), 0.01)
        gradient[0] = 1e3 * self.clip  # the canary: far above the clip
        without = gradient.clone()
        without[0] = 0.0

        def flat(sums: dict[str, torch.Tensor]) -> torch.Tensor:
            return torch.cat([weight.flatten() for weight in sums.values()]).double()

        others = flat(own_step.clipped_sum(model, numbers, without, self.clip))
        direction = flat(own_step.clipped_sum(model, numbers, gradient, self.clip)) - others
        defence, scores = DpSgd(self.clip, self.noise), []
        for _ in range(plays):
            draws, score = Draws(chance.randbytes(32)), 0.0
            for epoch in range(self.epochs):
                sent = own_step.noised_gradients(
                    model, numbers, gradient if given else without, defence, draws, "dp_sgd", epoch
                )
                score += float((len(numbers) * flat(sent) - others) @ direction)
            scores.append(score)
        return scores

    def play_once(self, coins: Sequence[bool], chance: random.Random) -> list[float]:
        with needs("neural"):
            import torch

            from treetap.neural import own_step
            from treetap.neural.architectures import InputShape, bottom_model
            from treetap.neural.params import Bottom

        records = len(coins)
        model = bottom_model(Bottom(width=1), InputShape(records), Draws(b"canaries"), "bottom")
        numbers = _OWN_INPUT * torch.eye(records)
        gradient = self.clip * torch.tensor(coins).float()[:, None]
        defence, draws = DpSgd(self.clip, self.noise), Draws(chance.randbytes(32))
        scores = torch.zeros(records)
        for epoch in range(self.epochs):
            sent = own_step.noised_gradients(model, numbers, gradient, defence, draws, "dp_sgd", epoch)
            scores += max((weight for weight in sent.values()), key=torch.numel).flatten()
        return [float(score) for score in scores]

    def guesses(self, scores: Sequence[float]) -> dict[int, bool]:
        order = np.argsort(scores).tolist()
        half = max(1, len(order) // 20)
        return dict.fromkeys(order[:half], False) | dict.fromkeys(order[-half:], True)


class SumNoiseMeasured(Measured):
    """Noise on a feature party's sums (`treetap.privacy.column_privacy`), of sums alone: left sets are the neighbours'.

    The canary lies in the first or in the last of the `bins` of a column, in every node that holds it; all its numbers
    are at their bounds. `view`: what is scored, "cells" alone, "sums" over all prefixes, or "siblings", the difference
    of each node and one beside it without the canary.
    """

    gaussian: ClassVar[bool] = True
    no_one_run: ClassVar[str] = "all nodes of a job are one canary's, so that one run has no second canary"
    carried_out: ClassVar[tuple[str, ...]] = ("treetap.privacy.column_privacy", "treetap.privacy.discrete_gaussian")
    mechanism: Literal["column_privacy"]
    epsilon: Annotated[float, Field(gt=0, le=1e6)]
    delta: Annotated[float, Field(gt=0, lt=0.1)] = 1e-6
    trees: Annotated[int, Field(ge=1, le=1000)] = 1
    max_depth: Annotated[int, Field(ge=1, le=10)] = 2
    bins: Annotated[int, Field(ge=2, le=256)] = 6
    view: Literal["cells", "sums", "siblings"] = "cells"

    @property
    def claimed(self) -> float:
        return self.epsilon

    @property
    def claimed_delta(self) -> float:
        return self.delta

    @cached_property
    def by_noise(self) -> float:
        return min(self.epsilon, gaussian_epsilon(math.sqrt(2 * rho_of(self.epsilon, self.delta)), self.delta))

    def play(self, given: bool, plays: int, chance: random.Random) -> list[float]:
        noise = ColumnPrivacy(self.epsilon, self.delta, self.trees).noise(
            BoostingParams(max_depth=self.max_depth, max_bin=self.bins), 1
        )
        candidates, nodes, bounds = CandidateList([Shape(self.bins, False)]), self.trees * self.max_depth, noise.bounds
        count = plays * nodes
        drawn = drawn_sums(
            candidates, noise, 2 * count, lambda number, of: discrete_gaussians(number, of, chance.randbytes)
        )
        sums, siblings = drawn[:count] + np.array(bounds) * given, drawn[count:]
        seen = sums - siblings if self.view == "siblings" else sums
        # the last cell is what the node's total, which both neighbours share, has beyond the last prefix
        told = seen if self.view == "sums" else seen[:, [0, -1]]
        scores: list[float] = (told / np.array(bounds)).reshape(plays, -1).sum(axis=1).tolist()
        return scores


def _named(table: Any) -> str | None:
    """The name of the mechanism of a table, or of a row."""
    return table.get("mechanism") if isinstance(table, dict) else getattr(table, "mechanism", None)


Mechanism = Annotated[
    Annotated[LabelNoise, Tag("label_dp")]
    | Annotated[LeafWeightNoise, Tag("pivodl")]
    | Annotated[GradientNoise, Tag("dp_sgd")]
    | Annotated[SumNoiseMeasured, Tag("column_privacy")],
    Discriminator(
        _named,
        custom_error_type="mechanism",
        custom_error_message="mechanism must be 'label_dp', 'pivodl', 'dp_sgd' or 'column_privacy'",
    ),
]
