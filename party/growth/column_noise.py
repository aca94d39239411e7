"""Noise on a feature party's sums (`column_privacy`), as the parties of a job know of it, and as its owner draws it.

docs/column-privacy.md has the proof. A party with noise says so to every other before the layout of a plaintext is
made. Both children of a node are summed. Its owner draws noise once for a node, charges the attempt before the first
sums leave, and sums no record twice at a level of a tree.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn, Protocol

import numpy as np

from treetap.arrays import Ints
from treetap.errors import ConfigError, Malformed, OutOfOrder, PlaintextOverflow, Refused
from treetap.models.line_file import Line
from treetap.models.store import COLUMN_PRIVACY, TREES
from treetap.party.config import PartyConfig
from treetap.party.defences.budgets import ColumnBudget
from treetap.party.defences.checks import check_noised_trees, refuse_classes
from treetap.party.growth.feature_party import OwnTree
from treetap.party.growth.rule import Part, Rule
from treetap.party.runtime.context import Rows, StepContext, required
from treetap.party.setup.labelled_table import LabelledTable
from treetap.privacy.column_privacy import MOST_SUMS, ColumnPrivacy, Draws, drawn_sums
from treetap.privacy.discrete_gaussian import LARGEST_VARIANCE, discrete_gaussians
from treetap.protocols.exclusions import Feature, between
from treetap.protocols.growth import TreeSizes
from treetap.trees.candidates import Kind, Shape
from treetap.trees.ensemble import ROOT
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import TreeParams
from treetap.trees.slots import Slots, width_for
from treetap.wire.v2 import setup_pb2

#: The note of a job in which the party's sums have no noise.
NO_NOISE = "none"


async def announced(
    context: StepContext, spec: setup_pb2.JobSpec, known: Collection[str] = ()
) -> dict[str, ColumnPrivacy]:
    """The other feature parties with noise, and what they say of it; those that are not `known` yet.

    Raises:
        Malformed: what one says is out of range.
    """
    noised = {}
    for party in spec.feature_parties:
        if party == context.party or party in known:
            continue
        said: setup_pb2.NoisedSums | None = await context.mailbox.only_if_sent(party, "noised_sums")
        if said is not None:
            noised[party] = ColumnPrivacy.said(party, said.epsilon, said.delta, said.trees)
    return noised


def described(privacy: ColumnPrivacy, noise: SumNoise) -> dict[str, float]:
    """The entry of a manifest."""
    z = math.sqrt(noise.variance)
    return {"epsilon": privacy.epsilon, "delta": privacy.delta, "trees": privacy.trees, "rho": privacy.rho, "z": z}


def widths_of(records: int, bounds: Sequence[int], noises: Sequence[SumNoise]) -> list[int]:
    """Widths of slots for sums of that many records and for the most noise of any party.

    Raises:
        PlaintextOverflow: such sums need wider slots than there are, without noise too.
        ConfigError: with noise they do.
    """
    plain = [width_for(records, bound) for bound in bounds]
    if not noises:
        return plain
    try:
        if any(noise.variance * max(noise.bounds) ** 2 > LARGEST_VARIANCE for noise in noises):
            raise PlaintextOverflow("no draws are that large")
        rooms = [max(noise.rooms[slot] for noise in noises) for slot in range(len(bounds))]
        return [width_for(records, bound, room) for bound, room in zip(bounds, rooms, strict=True)]
    except PlaintextOverflow as failure:
        raise ConfigError(
            "the noise of column_privacy needs wider slots than there are: ask for a greater epsilon or fewer trees "
            f"under [defences] of the feature party ({failure})"
        ) from failure


class NoisedLayout(Protocol):
    """A protocol's records as its plaintexts have them, and the noise that is for them."""

    def draws(self, party: str, privacy: ColumnPrivacy, records: int) -> int:
        """The largest sum of a record's squared draws in all trees that a party sums; takes time by records."""
        ...

    def noise(self, privacy: ColumnPrivacy, slots: int, draws: int) -> SumNoise:
        """The noise on sums of that many slots."""
        ...

    def implied(self, records: int, slots: int, classes: int, noises: Sequence[SumNoise]) -> Slots:
        """The layout that a job implies, with room for these noises; `Malformed` if there is none of `slots` slots."""
        ...


class NoisedParties(Rule):
    """The feature parties whose sums have noise, as the label holder hears of them."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._noises: dict[str, SumNoise] = {}
        self._entries: dict[str, dict[str, float]] = {}

    def selected(self, data: LabelledTable) -> None:
        self._records = len(data.labels.values)

    async def heard(self, sizes: TreeSizes, trees: int, slots: int) -> None:
        """Take what parties say of theirs.

        Raises:
            Refused: the policy does not take noised sums.
            ConfigError: the job has more trees than a noise is for, or its parties have defences that do not go
                together.
        """
        context, layout = self.part.context, self.part.layout
        noised = await announced(context, self.part.spec)
        if noised:
            context.policy.check(context.party, "noised_sums", True, owners=" and ".join(noised))
        withholding = self.part.config.withholding
        if noised and withholding.xi is not None:
            refuse_classes(context.party, Feature.COLUMN_PRIVACY)
        for party, privacy in noised.items():
            check_noised_trees(party, privacy.trees, self.part.params, range(withholding.own_trees, trees))
        self._noises = await context.offload(
            lambda: {
                party: layout.noise(privacy, slots, layout.draws(party, privacy, self._records))
                for party, privacy in noised.items()
            }
        )
        sizes.noised = bool(noised)
        self._entries = {party: described(privacy, self._noises[party]) for party, privacy in noised.items()}

    def rooms(self) -> Sequence[SumNoise]:
        return [*self._noises.values()]

    async def begin(self) -> None:
        """Raise `OutOfOrder` if a party has said after the keys were made that its sums have noise."""
        if late := await announced(self.part.context, self.part.spec, self._noises):
            raise OutOfOrder(f"{', '.join(late)}: sums have noise, which was said after the keys were made")

    def planted(self, growing: GrowingTree, *, alone: bool) -> None:
        for party, noise in () if alone else self._noises.items():
            growing.expect_noise([*self.part.spec.feature_parties].index(party) + 1, noise)

    def constrained(self, parties: Sequence[str]) -> None:
        """Bounds of weights would follow from noised sums."""
        if self._noises:
            row = between(Feature.COLUMN_PRIVACY, Feature.MONOTONE)
            raise ConfigError(f"{', '.join(self._noises)} and {', '.join(parties)}: {row}")

    def kept(self) -> Line:
        return {COLUMN_PRIVACY: self._entries} if self._entries else {}


class ColumnNoise(Rule):
    """The noise of one party's own sums in one attempt; none without `column_privacy`.

    Attributes:
        noise: known once the layout is.
    """

    def __init__(
        self,
        context: StepContext,
        config: PartyConfig,
        spec: setup_pb2.JobSpec,
        params: TreeParams,
        layout: NoisedLayout,
        draws: Draws = discrete_gaussians,
    ) -> None:
        """Look at the budget, unless the job has stored trees: then none may be left to sum.

        `draws`: of the operating system outside measurements.

        Raises:
            Refused: the budget is spent; `ColumnNoise.of` refuses the first sums where it is spent by then.
        """
        super().__init__(Part(config, context, spec, params, layout))
        table = config.defences.column_privacy
        self.missing_bins = table is not None
        self.privacy = None if table is None else ColumnPrivacy(table.epsilon, table.delta, table.trees)
        self._context, self._spec, self._params, self._layout, self._draws = context, spec, params, layout, draws
        self._budget = ColumnBudget(config.state, config.policy.columns.column_budget)
        self._noised: Mapping[str, tuple[ColumnPrivacy, int]] = {}  # of all parties, and their draws
        self.noise: SumNoise | None = None
        if (own := self.privacy) is not None:
            said = setup_pb2.NoisedSums(epsilon=own.epsilon, delta=own.delta, trees=own.trees)
            context.costs.noised_sums = [said]
            if not context.store.published and not context.store.has(TREES):
                self._budget.check(context.party, spec.table, own)
        self._trees: set[int] = set()  # whose sums were sent in this attempt
        self._spaces: dict[int, Rows] = {}  # of the nodes of the tree that were summed

    async def announce(self, shapes: Sequence[Shape]) -> None:
        """Tell the other parties of the noise, if there is any. `shapes`: of the columns.

        Raises:
            ConfigError: a column has more bins than the noise is for, or sums of single ones.
        """
        if self.privacy is None:
            return
        party, most = self._context.party, self._params.max_bin + 1
        for shape in shapes:
            if shape.kind is Kind.PARTITIONS:
                raise ConfigError(
                    f"column_privacy of {party} is for sums of more than one bin, and a column has one for each of its "
                    "categories: use a max_cat_to_onehot above their number, or encode the column"
                )
            if shape.n_bins + shape.has_missing > most:
                raise ConfigError(
                    f"column_privacy of {party} is for columns of at most {most} bins (max_bin and one for missing "
                    "values), and one has more: raise max_bin, or encode its categories as numbers"
                )
        if sum(shape.sums for shape in shapes) > MOST_SUMS:
            raise ConfigError(f"column_privacy of {party} is for at most {MOST_SUMS} sums of a node")
        others = [self._spec.aggregator, *(name for name in self._spec.feature_parties if name != party)]
        await self._context.outbox.send_each("noised_sums", dict.fromkeys(others, self._context.costs.noised_sums))

    async def take_others(self, records: int) -> None:
        """Receive what other parties say of theirs. `records`: of the training."""
        of_all = {} if self.privacy is None else {self._context.party: self.privacy}
        of_all |= await announced(self._context, self._spec)
        self._noised = await self._context.offload(
            lambda: {party: (own, self._layout.draws(party, own, records)) for party, own in of_all.items()}
        )

    @property
    def inexact(self) -> bool:  # type: ignore[override] # once the others have been heard
        """True if sums of any party have noise."""
        return bool(self._noised)

    def implied(self, records: int, slots: int, classes: int) -> Slots:
        """The layout that the job implies, with room for the noise of all parties."""
        if self.privacy is not None and classes:
            self.refuse_classes()
        noises = {party: self._layout.noise(own, slots, draws) for party, (own, draws) in self._noised.items()}
        self.noise = noises.get(self._context.party)
        return self._layout.implied(records, slots, classes, list(noises.values()))

    def kept(self) -> Line:
        own, noise = self.privacy, self.noise
        return {} if own is None or noise is None else {COLUMN_PRIVACY: described(own, noise)}

    def refuse_classes(self) -> NoReturn:
        """Refuse sums with classes of records: they have no bound on what a record adds to all of them."""
        refuse_classes(self._spec.aggregator, Feature.COLUMN_PRIVACY)

    async def of(self, tree: OwnTree, stage: int, nodes: Sequence[int]) -> Ints | None:
        """Noise for the sums (sums, S) of these nodes of a stage, node-major and in the secret order; None without.

        Raises:
            Malformed: the nodes are not such that each record is summed once at a level.
            Refused: the sums are of more trees than the noise is for, or the budget is spent.
            OSError: the ledger cannot be written.
        """
        if self.privacy is None:
            return None
        self._check(tree, stage, nodes)
        if tree.index not in self._trees:
            if len(self._trees) == self.privacy.trees:
                raise Refused(f"{self._context.party} sends sums of {self.privacy.trees} trees, as column_privacy says")
            if not self._trees:
                await self._context.offload(self._charge, whole=True)
            self._trees.add(tree.index)
        noise, candidates = required(self.noise), tree.columns.candidates
        drawn = await self._context.offload(lambda: drawn_sums(candidates, noise, len(nodes), self._draws))
        ordered: Ints = drawn[:, tree.columns.order(nodes[0])]
        return ordered.reshape(-1, ordered.shape[2])

    def resumed(self, stored: int) -> None:
        """Have one setting for all trees of the job: the model and an audit of its transcript know of one.

        While no tree is stored, other numbers may be set; but exact sums and noised ones are never of one job.
        """
        del stored
        own, context = self.privacy, self._context
        setting = NO_NOISE if own is None else f"epsilon {own.epsilon!r}, delta {own.delta!r}, trees {own.trees}"
        noted = context.store.noted(COLUMN_PRIVACY)
        alike = noted is None or (noted == NO_NOISE) == (own is None)
        if alike and (noted == setting or context.store.bind(setting, COLUMN_PRIVACY) or own is None):
            return  # without noise and without a note, trees are of a base model, or of an older version
        now, was = ("not there" if it in (NO_NOISE, None) else f"{{{it}}}" for it in (setting, noted))
        raise ConfigError(
            f"column_privacy of {context.party} is {now} and was {was} when job {context.job} began; bring that back "
            f"under [defences] of {context.party}'s file, or cancel the job and train again"
        )

    def _check(self, tree: OwnTree, stage: int, nodes: Sequence[int]) -> None:
        if not stage:
            if tree.index in self._trees:
                raise Malformed(f"sums of node {ROOT} of tree {tree.index} come once in an attempt: column_privacy")
            self._spaces = {}
        summed = np.zeros(tree.total, dtype=bool)
        for node, rows in self._spaces.items():
            if node.bit_length() - 1 == stage:
                summed[rows] = True
        for node in nodes:
            if node in self._spaces or node.bit_length() - 1 != stage or stage >= self._params.max_depth:
                raise Malformed(f"sums of node {node} of tree {tree.index} come once, at level {stage}: column_privacy")
            rows = tree.rows_of(node)
            parent = self._spaces.get(node >> 1)
            within = node == ROOT or (parent is not None and np.isin(rows, parent, assume_unique=True).all())
            if not within or summed[rows].any():
                raise Malformed(
                    f"the records of node {node} of tree {tree.index} are not all its parent's, or also another "
                    "node's: column_privacy sums a record once at a level"
                )
            summed[rows] = True
            self._spaces[node] = rows

    def _charge(self) -> None:
        self._budget.charge(self._context.party, self._context.ledger.occasion, required(self.privacy))
