"""The account of what feature parties come to know of the labels, and the policy's `max_leakage`."""

from __future__ import annotations

from collections.abc import Mapping

from treetap.models.store import LEAKAGE
from treetap.party.defences.released_sets import ReleasedSets
from treetap.party.growth.rule import Draft, Rule
from treetap.party.runtime.messages import Rows
from treetap.party.setup.labelled_table import LabelledTable


class Accounted(Rule):
    """`ReleasedSets`, where labels are classes."""

    _sets: ReleasedSets | None = None

    def selected(self, data: LabelledTable) -> None:
        self._data = data

    def opened(self) -> None:
        """A tree begins; before the first one begin with what parties know by the stored trees."""
        context, data, labels = self.part.context, self._data, self._data.labels
        if self._sets is None and labels.classes:
            self._sets = ReleasedSets(
                context.job,
                context.party,
                labels.values,
                len(labels.classes),
                list(self.part.spec.feature_parties),
                context.store,
                context.policy,
                context.metrics,
                None if data.clean is None else data.known.values,
            )
        if self._sets is not None:
            self._sets.open_tree()

    def release(self, party: str, tree: int, sets: Mapping[int, Rows]) -> None:
        """Account for them; `Refused` above `max_leakage`."""
        if self._sets is not None:
            self._sets.release(party, tree, sets)

    def closed(self, tree: int) -> None:
        if self._sets is not None:
            self._sets.close_tree(tree)

    async def publish(self, draft: Draft) -> None:
        draft.kinds += [LEAKAGE] if self._data.labels.classes else []
