"""Trees whose feature parties get no set of records (`instance_spaces = "withheld"`), under a lattice alone.

A node's records have words of values there, all others words of zeros: a feature party sums the words of all, and need
not know which are which. It learns which of its candidates won at which node. Of a split that it wins the label holder
gets the left records of the node (`treetap.party.growth.left_bits`). So it knows the records of a node only if all
splits above are its own.

The sets of records that feature parties come to know while trees grow: accounted for, allowed, and relayed.

A party knows the children of its own splits. Those of the others' that may be split further the label holder relays to
it, after its account of what they tell of the labels, and if its policy lets sets of their size go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from treetap.models.store import SPACES
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.growth.feature_party import OwnTree
from treetap.party.growth.messages import space_messages
from treetap.party.growth.rule import Draft, Rule, Summed
from treetap.party.runtime.context import CountedBody, Rows, StepContext
from treetap.protocols.growth import sets_sent
from treetap.protocols.job_spec import taking_part
from treetap.trees.ensemble import ROOT
from treetap.trees.growing_tree import GrowingTree
from treetap.wire.v2 import setup_pb2


class ShownSpaces:
    """The instance spaces of the frontier, as the feature parties of a job know them."""

    def __init__(
        self, context: StepContext, spec: setup_pb2.JobSpec, rules: Sequence[Rule], common: Mapping[str, PartnerRecords]
    ) -> None:
        """`rules`: of the job, which account for the sets. `common`: see `LabelHolderJob`."""
        self._common = common
        self._context, self._spec, self._rules, self._sent = context, spec, rules, sets_sent(spec)
        self._numbers = {party: number for number, party in enumerate(spec.feature_parties, start=1)}

    async def show_draw(
        self, t: int, parties: list[str], bodies: Callable[[PartnerRecords], Iterable[CountedBody]]
    ) -> None:
        """Send the parties of tree `t` those that it draws of their records; `bodies` makes the messages of a party."""
        shown = parties if self._sent else ()
        sent = {party: bodies(self._common[party]) for party in shown}
        await self._context.outbox.send_each("sampled_records", sent, t)

    async def show(self, t: int, stage: int, growing: GrowingTree, training: int) -> None:
        """Show the parties that take part in tree `t` the stage just begun.

        1. Account for the sets that they come to know, before any is relayed.
        2. Check that the policy lets each go.
        3. Send each party the spaces that did not result from its own splits.

        `training`: the number of records of the training, the first ones; those of an eval table do not count.
        """
        parties = taking_part(self._spec, t)
        await self._context.offload(lambda: self._account(parties, t, growing, training))
        if growing.build and self._sent:
            for party in parties:
                # a relayed node and its sibling need enough records: the party has their parent's, hence the difference
                for parent in sorted({node >> 1 for node in self._relayed(party, growing)}):
                    for child in (2 * parent, 2 * parent + 1):
                        count = int((self._common[party].among(growing.rows[child]) < training).sum())
                        self._context.policy.check_space(self._context.party, party, child, count)
            bodies = {}
            for party in parties:
                common = self._common[party]
                spaces = [(node, common.of(growing.rows[node])) for node in self._relayed(party, growing)]
                bodies[party] = space_messages(spaces, len(common))
            await self._context.outbox.send_each("instance_spaces", bodies, t, stage)

    def _account(self, parties: list[str], t: int, growing: GrowingTree, training: int) -> None:
        for party in parties:
            # what is known of records of an eval table depends on no label of theirs
            known = growing.known_to if self._sent else growing.known_without_relay
            common = self._common[party]
            rows = {node: common.among(growing.rows[node]) for node in known(self._numbers[party])}
            sets = {node: some[some < training] for node, some in rows.items()}
            for rule in self._rules:
                rule.release(party, t, sets)

    def _relayed(self, party: str, growing: GrowingTree) -> list[int]:
        """The nodes of the frontier that a feature party does not know from its own splits."""
        number = self._numbers[party]
        return [node for node in growing.frontier if growing.made[node >> 1].party != number]


class BlindTree(OwnTree):
    """A tree under construction at a feature party that knows no instance space: it answers for all records."""

    takes_spaces = False

    def rows_of(self, node: int) -> Rows:
        """All records."""
        del node
        return self.rows[ROOT]

    def _is_split(self, node: int) -> bool:
        return node in {split.node for split in self.splits}

    def divide(self, node: int, left: Rows) -> tuple[Rows, Rows]:
        """Those of all records that go left, and the others."""
        del node
        goes_right = np.ones(self.total, dtype=bool)
        goes_right[left] = False
        return left, np.flatnonzero(goes_right)


class Hidden(Rule):
    """No set of records is shown while trees grow."""

    tree = BlindTree

    def values(self, summed: Summed) -> Summed:
        """Which sibling is summed must not depend on records."""
        return replace(summed, left_first=True, padded=self.part.params.pad_trees)

    async def publish(self, draft: Draft) -> None:
        draft.entries[SPACES] = "withheld"
