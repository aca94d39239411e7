"""The mechanisms that `treetap measure-epsilon` measures: what each claims, and the canaries of its games.

A mechanism is a table [[measure]] and a class with its name in `Mechanism`; see `treetap.lab.epsilon.games`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Discriminator, Field, Tag, model_validator

from treetap.arrays import Floats, Ints
from treetap.attacks.epsilon import gaussian_epsilon
from treetap.commands.options import needs
from treetap.lab.epsilon.column_sums import SumNoiseMeasured
from treetap.lab.epsilon.games import MOST_PLAYS, Measured, Neighbours, OfBudget, finish, in_memory, signs
from treetap.models.line_file import Line, LineFile
from treetap.neural.defences import DELTA, LEAST, MOST, DpSgd, epsilon
from treetap.neural.draws import Draws
from treetap.party.pivodl.growing_tree import Division, GrowingTree
from treetap.party.pivodl.leaf_weights import NoiseLedger, Settlement
from treetap.party.policy import Policy
from treetap.party.runtime.job_store import JobStore
from treetap.privacy.label_dp import staged
from treetap.privacy.zcdp import LeafWeightPrivacy
from treetap.protocols.own_priors import by_own_trees
from treetap.tables.features import Held
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids
from treetap.trees.loss import UNIT
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import RoleDraws

#: Most records of which priors have leaves of one record: the table in which the canary of a game lies.
_FEW = 7
#: Most records × stages × classes, and squared canaries × epochs, of one run: half a minute.
_PRIORS, _SQUARES = 4_000_000, 4_000_000_000
#: Exact weights and gradients of canaries, in units of the bound to which they are clipped.
_FAR = 4.0
#: Size of the input of a canary's own in one run; what it shares with others, the bias, has 1.
_OWN_INPUT = 1000.0
#: Numbers of a leaf; shares of the epochs of which an attacker adds up the gradients.
_OUTPUTS, _PARTS = 2, 4
#: Weights of the network of a game.
_WEIGHTS = 3 * 3 + 3 + 3 * 2 + 2
_LABEL_HOLDER, _PARTY = "label holder", "split party"


class LabelNoise(Measured):
    """Noisy labels (`treetap.privacy.label_dp`): the canary's label is the first class or the second.

    In one run every record's label is drawn by its coin. `classes`: C, of which canaries have the first two. From two
    `stages` on priors are the trees', there of three columns of random numbers. In a game the canary is then alone at
    one end of a small table, next to records of the second class: a forest that knows its label is sure of the second
    class on one neighbour, and not on the other. An attacker sees whether the canary's prior was the trees', and how
    many labels of the second class agree with the canary's: those that were drawn together do more often.
    """

    carried_out: ClassVar[tuple[str, ...]] = (
        "treetap.privacy.label_dp",
        "treetap.protocols.own_priors",
        "treetap.trees.centralised",
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
        return max(1, min(MOST_PLAYS, 1000 // work))

    @property
    def claimed(self) -> float:
        return self.epsilon

    @property
    def numbers(self) -> int:
        return 2

    def neighbours(self, chance: random.Random) -> Neighbours:
        """Records of which the last has the second class, or the first: its score, and how far others' labels agree."""
        del chance  # the canary is the last record, which was of the first class
        labels, features = np.ones(max(_FEW, self.stages), dtype=np.int64), np.zeros((max(_FEW, self.stages), 3))
        features[0], features[-1] = -1.0, 1.0
        labels[0] = 0

        def play(given: bool, plays: int, chance: random.Random) -> Floats:
            labels[-1] = int(given)
            scores = np.array([self.noisy(labels, features, chance, by_trees=2.0) for _ in range(plays)])
            return np.column_stack([scores[:, -1], np.sign(scores[:, -1]) * np.sign(scores[:, 1:-1]).mean(axis=1)])

        return None, play

    def play_once(self, coins: Sequence[bool], chance: random.Random) -> list[float]:
        features = np.random.default_rng(len(coins)).normal(size=(len(coins), 3))
        scores: list[float] = self.noisy(np.array(coins, dtype=np.int64), features, chance).tolist()
        return scores

    def noisy(
        self,
        labels: np.ndarray[tuple[int], np.dtype[np.int64]],
        features: np.ndarray[tuple[int, int], np.dtype[np.float64]],
        chance: random.Random,
        by_trees: float = 1.0,
    ) -> Floats:
        """A score (n,) for each record by its noisy label: 1 of the second class, −1 of the first, 0 of another.

        `by_trees`: the factor of those whose prior is the trees': the division into stages depends on no label.
        """
        ids = Ids.of([f"{record:06d}" for record in range(len(labels))])
        table = Table(Path("canaries"), ids, ["a", "b", "c"], Held(features), None, np.arange(len(labels)))
        learned, factors = by_own_trees(table, self.classes).of, np.ones(len(labels))

        def priors(before: Ints, noisy: Ints, following: Ints) -> Floats:
            factors[following] = by_trees
            return learned(before, noisy, following)

        noisy = staged(labels, self.classes, self.epsilon, self.stages, priors, chance.randrange)
        return np.where(noisy == 1, 1.0, np.where(noisy == 0, -1.0, 0.0)) * factors


class LeafWeightNoise(OfBudget):
    """Noise on the leaf weights of a PIVODL job (`treetap.party.pivodl.leaf_weights`); keys are those of the job.

    The canary moves every leaf of the job, of two numbers whose signs are drawn, from one end of the clip to the other.
    A party settles a tree again, as after an interruption, once with what it has on disk: noise that is drawn anew
    averages out.
    """

    carried_out: ClassVar[tuple[str, ...]] = (
        "treetap.party.pivodl.growing_tree",
        "treetap.party.pivodl.leaf_weights",
        "treetap.privacy.discrete_gaussian",
        "treetap.privacy.zcdp",
        "treetap.trees.boosting_criterion",
        "treetap.trees.pivodl_params",
        "treetap.trees.pivodl_rules",
    )
    no_one_run: ClassVar[str] = "all leaves of a job are one canary's, so that one run has no second canary"
    mechanism: Literal["pivodl"]
    delta: Annotated[float, Field(gt=0, lt=1)] = PivodlParams.delta
    clip: Annotated[float, Field(gt=0, le=1e6)] = PivodlParams.clip
    learning_rate: Annotated[float, Field(gt=0, le=1)] = PivodlParams.learning_rate
    n_estimators: Annotated[int, Field(ge=1, le=1000)] = 1
    max_depth: Annotated[int, Field(ge=1, le=10)] = 1
    as_published: bool = False

    @property
    def numbers(self) -> int:
        return _OUTPUTS * (self.n_estimators << self.max_depth)

    def neighbours(self, chance: random.Random) -> Neighbours:
        """A job whose leaves have been opened, at the party that keeps them: `Settlement` sends their weights."""
        keys = self.model_dump(exclude={"mechanism", "runs", "canaries"})
        classes = [str(number) for number in range(_OUTPUTS)]
        params = PivodlParams(**keys, objective="multi:softprob", classes=classes)
        privacy = LeafWeightPrivacy.of(params)
        assert privacy is not None  # there is an epsilon
        # (trees, leaves, outputs): the sign of the weight of the neighbour with the canary
        drawn = signs(_OUTPUTS * privacy.leaves, chance).reshape(params.n_estimators, -1, _OUTPUTS)
        change: Floats = 2 * drawn.reshape(-1) / math.sqrt(_OUTPUTS)

        def play(given: bool, plays: int, chance: random.Random) -> Floats:
            seen = [finish(_told(params, privacy, drawn if given else -drawn, chance)) for _ in range(plays)]
            averaged = [[np.mean(np.unique(asked)) for asked in of_play.T] for of_play in seen]
            # less the exact weights of the neighbour without the canary, which lie at the clip
            return np.asarray(np.array(averaged) / privacy.sent_clip + change / 2)

        return change, play


async def _told(params: PivodlParams, privacy: LeafWeightPrivacy, signs: Floats, chance: random.Random) -> Floats:
    """The weights (3, d) that the source gets: of a tree, of the tree again, and after a restart."""
    store, told = _InMemory(Path(), Path()), list[list[float]]()
    kept = NoiseLedger(store, privacy, chance.randrange)
    for ledger in (kept, kept, NoiseLedger(store, privacy, chance.randrange)):
        told.append([])
        for tree, of_leaves in enumerate(signs):
            await _settled(params, tree, of_leaves, ledger, store, told[-1])
    return np.array(told)


async def _settled(
    params: PivodlParams, t: int, signs: Floats, ledger: NoiseLedger, store: JobStore, told: list[float]
) -> None:
    """Settle the last level of a tree, whose leaves' weights have these signs; `told`: takes these, in their order."""

    async def send_each(kind: str, bodies: Any, round: int, stage: int) -> None:
        if not bodies:  # sums for feature parties, of which there is none
            return
        assert ([*bodies], kind, round, stage) == ([_LABEL_HOLDER], "leaf_weights", t, level)
        (parts,) = bodies.values()
        told.extend(number for part in parts for leaf in part.leaves for number in leaf.weight)

    context = in_memory(
        outbox=SimpleNamespace(send_each=send_each),
        store=store,
        ledger=SimpleNamespace(ledger=SimpleNamespace(path=Path()), enter=lambda *_, **__: None),
        policy=Policy(),
    )
    parties, level = [_PARTY, _LABEL_HOLDER], params.max_depth - 1
    me: Any = SimpleNamespace(name=_PARTY, params=params, parties=parties, others=[_LABEL_HOLDER], context=context)
    draws = RoleDraws(0, parties, dict.fromkeys(parties, b""))
    tree, nodes = GrowingTree(t, 1, draws, guarded=True), range(1 << level, 2 << level)
    # G of each leaf beyond what the clip allows: the weight is −G / (H + λ) with H = 1
    far = -_FAR * params.clip * (1 + params.reg_lambda) * UNIT
    G = np.rint(far * signs).astype(np.int64)
    sums = np.concatenate([G, np.full_like(G, UNIT)], axis=1)
    opened: Any = {}
    for place, node in enumerate(nodes):
        tree.divisions[node] = Division(_LABEL_HOLDER, 0, _PARTY)
        opened[node] = SimpleNamespace(left={0: sums[2 * place]})
        tree.sums[node] = sums[2 * place] + sums[2 * place + 1]
    divisions: Any = SimpleNamespace(
        place=dict.fromkeys(nodes, 0), open=[], ended=[child for node in nodes for child in (2 * node, 2 * node + 1)]
    )
    slots: Any = None
    own: Any = SimpleNamespace(loss=SimpleNamespace(scale=1.0))
    settlement = Settlement(me, slots, own, [_LABEL_HOLDER], ledger, tree)
    await settlement.settle(level, divisions, opened)


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

    The canary's gradient is clipped in one neighbour and 0 in the other, in each of the `epochs`; its record is drawn,
    and its signs for each quarter of the epochs, of which an attacker adds up the gradients. In one run each of the
    canaries has an input of its own, so that their gradients are orthogonal; a tenth of the coins is guessed.
    """

    gaussian: ClassVar[bool] = True
    carried_out: ClassVar[tuple[str, ...]] = (
        "treetap.neural.defences",
        "treetap.neural.draws",
        "treetap.neural.gradient_defences",
        "treetap.neural.own_step",
        "treetap.privacy.discrete_gaussian",
    )
    mechanism: Literal["dp_sgd"]
    noise: Annotated[float, Field(ge=LEAST, le=MOST)]
    clip: Annotated[float, Field(ge=LEAST, le=MOST)] = 1.0
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
        return max(1, min(MOST_PLAYS, 2000 // self.epochs))

    @property
    def claimed(self) -> float:
        return epsilon(DpSgd(self.clip, self.noise), self.epochs)

    @property
    def claimed_delta(self) -> float:
        return DELTA

    @cached_property
    def by_noise(self) -> float:
        return min(self.claimed, gaussian_epsilon(math.sqrt(self.epochs) / self.noise, DELTA))

    @property
    def numbers(self) -> int:
        return _WEIGHTS * min(self.epochs, _PARTS)

    def neighbours(self, chance: random.Random) -> Neighbours:
        with needs("neural"):
            return _batch(self, chance)

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


def _batch(row: GradientNoise, chance: random.Random) -> Neighbours:
    """A batch of a small network, in which a record has a gradient far above the clip, or none."""
    import torch

    from treetap.neural import own_step
    from treetap.neural.architectures import InputShape, bottom_model
    from treetap.neural.params import Bottom

    defence = DpSgd(row.clip, row.noise)
    model = bottom_model(Bottom(hidden=(3,), width=2), InputShape(3), Draws(b"canaries"), "bottom")
    inputs = torch.linspace(-1.0, 1.0, 24).reshape(8, 3)
    parts = np.array_split(np.arange(row.epochs), min(row.epochs, _PARTS))
    without, canary = torch.full((8, 2), 0.01), chance.randrange(8)
    without[canary] = 0.0
    with_canary = [without.clone() for _ in parts]
    for gradient in with_canary:
        gradient[canary] = 1e3 * row.clip * torch.from_numpy(signs(2, chance)).float()
    exact, *changed = [
        _flat(own_step.clipped_sum(model, inputs, gradient, row.clip, defence.grid)) / row.clip
        for gradient in (without, *with_canary)
    ]

    def play(given: bool, plays: int, chance: random.Random) -> Floats:
        numbers = np.zeros((plays, len(parts), len(exact)))
        for play in range(plays):
            draws = Draws(chance.randbytes(32))
            for place, epochs in enumerate(parts):
                gradient = with_canary[place] if given else without
                for epoch in epochs.tolist():
                    sent = own_step.noised_gradients(model, inputs, gradient, defence, draws, "dp_sgd", epoch)
                    numbers[play, place] += len(inputs) * _flat(sent) / defence.clip - exact
        return numbers.reshape(plays, -1)

    return np.concatenate([len(part) * (of - exact) for part, of in zip(parts, changed, strict=True)]), play


def _flat(of_weights: Any) -> Floats:
    """The numbers of all weights, (d,)."""
    return np.concatenate([weight.detach().numpy().ravel() for weight in of_weights.values()]).astype(np.float64)


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
