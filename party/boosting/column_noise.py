"""Noise on a feature party's sums (`column_privacy`), as the parties of a job know of it, and as its owner draws it.

docs/column-privacy.md has the proof. A party with noise says so to every other before the layout of a plaintext is
made. Both children of a node are summed. Its owner draws noise once for a node, charges the attempt before the first
sums leave, and sums no record twice at a level of a tree.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from party.boosting.layout import implied
from party.config import PartyConfig
from party.defences.checks import refuse_classes
from party.defences.column_budget import ColumnBudget
from party.growth.feature_party import OwnTree
from party.runtime.context import StepContext, required
from party.runtime.messages import Rows
from treetap.errors import ConfigError, Malformed, Refused
from treetap.models.store import COLUMN_PRIVACY, TREES
from treetap.privacy.column_privacy import MOST_SUMS, ColumnPrivacy, drawn_sums
from treetap.process.together import together
from treetap.protocols.exclusions import Feature
from treetap.trees.candidates import Shape
from treetap.trees.ensemble import ROOT
from treetap.trees.growing_tree import Ints
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import BoostingParams
from treetap.trees.slots import Slots
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
        if said is None:
            continue
        privacy = ColumnPrivacy(said.epsilon, said.delta, said.trees)
        if not (0 < privacy.epsilon <= 1e6 and 0 < privacy.delta < 0.1 and 1 <= privacy.trees <= 1_000_000):
            raise Malformed(f"{party} says that its sums have noise, with numbers that are out of range")
        noised[party] = privacy
    return noised


def described(privacy: ColumnPrivacy, noise: SumNoise) -> dict[str, float]:
    """The entry of a manifest."""
    z = math.sqrt(noise.variance)
    return {"epsilon": privacy.epsilon, "delta": privacy.delta, "trees": privacy.trees, "rho": privacy.rho, "z": z}


class ColumnNoise:
    """The noise of one party's own sums in one attempt; none without `column_privacy`.

    Attributes:
        noise: known once the layout is.
    """

    def __init__(
        self, context: StepContext, config: PartyConfig, spec: setup_pb2.JobSpec, params: BoostingParams
    ) -> None:
        """Look at the budget, unless the job has stored trees: then none may be left to sum.

        Raises:
            Refused: the budget is spent; `ColumnNoise.of` refuses the first sums where it is spent by then.
        """
        table = config.defences.column_privacy
        self.privacy = None if table is None else ColumnPrivacy(table.epsilon, table.delta, table.trees)
        self._context, self._spec, self._params = context, spec, params
        self._budget = ColumnBudget(config.state, config.policy.column_budget)
        self._others: Mapping[str, ColumnPrivacy] = {}
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
            ConfigError: a column has more bins than the noise is for, or sums of single ones; or an earlier attempt had
                other noise, or none.
        """
        self._bind()
        if self.privacy is None:
            return
        party, most = self._context.party, self._params.max_bin + 1
        for shape in shapes:
            if shape.single:
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
        said = self._context.costs.noised_sums
        await together(*(self._context.outbox.send(other, "noised_sums", said) for other in others))

    async def take_others(self) -> None:
        """Receive what other parties say of theirs."""
        self._others = await announced(self._context, self._spec)

    def implied(self, records: int, slots: int, classes: int) -> Slots:
        """The layout that the job implies, with room for the noise of all parties; see `party.boosting.layout`."""
        own = [] if self.privacy is None else [self.privacy]
        if own and classes:
            refuse_classes(self._spec.aggregator, Feature.COLUMN_PRIVACY)
        if self.privacy is not None:
            self.noise = self.privacy.noise(self._params, (slots - 1) // 2)
        return implied(self._params, records, slots, classes, [*own, *self._others.values()])

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
        drawn = await self._context.offload(lambda: drawn_sums(candidates, noise, len(nodes)))
        ordered: Ints = drawn[:, tree.columns.order(nodes[0])]
        return ordered.reshape(-1, ordered.shape[2])

    def _bind(self) -> None:
        """Have one setting for all trees of the job: the model and an audit of its transcript know of one.

        While no tree is stored, other numbers may be set; but exact sums and noised ones are never of one job.
        """
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
