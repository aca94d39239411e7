"""Labels that an attacker is assumed to know, and those by which the audit scores it.

The auditor's labels score what the attacks find; of these a party is assumed to know some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from treetap.attacks.files import LabelTable
from treetap.attacks.schema import DrawingSettings
from treetap.attacks.scores import UNKNOWN
from treetap.attacks.view.own_table import load_known_labels
from treetap.attacks.view.received_rows import attack_draws, some_of
from treetap.attacks.view.view import View
from treetap.errors import BadInput
from treetap.tables.labels import Labels
from treetap.tables.reading import Table

Ints = npt.NDArray[np.int64]
#: The share of the records that is set aside for evaluation where there is no other table for it.
SET_ASIDE = 0.2


@dataclass(frozen=True)
class KnownLabels:
    """Labels at hand.

    Attributes:
        truth: (N,) numbers of classes by which results are scored; `UNKNOWN` where there is none.
        pool: places of the records whose labels the party may know.
        classes: names of the classes; none without labels.
        ids: of the N records; None: they are in the order of their ids.
    """

    truth: Ints = field(repr=False)
    pool: Ints = field(repr=False)
    classes: list[str]
    ids: Sequence[str] | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        records: int,
        labels: Labels | None,
        known: tuple[Ints, Labels] | None,
        ids: Sequence[str] | None = None,
    ) -> KnownLabels:
        """By the auditor's labels of all records, or those of some records, which the party knows, or both.

        `known`: places and labels. A class of theirs that the auditor's labels do not have is a further one.
        """
        truth = np.full(records, UNKNOWN, dtype=np.int64)
        classes = [] if labels is None else list(labels.classes)
        if labels is not None:
            truth[:] = labels.values
        if known is None:
            return cls(truth, np.flatnonzero(truth != UNKNOWN), classes, ids)
        places, own = known
        classes += [name for name in own.classes if name not in classes]
        truth[places] = numbered(own, classes)
        return cls(truth, np.sort(places), classes, ids)

    @property
    def scored(self) -> Ints:
        """Places of the records with a label at hand."""
        return np.flatnonzero(self.truth != UNKNOWN)

    @property
    def all(self) -> bool:
        """True if every record has a label at hand."""
        return bool(len(self.truth)) and len(self.scored) == len(self.truth)

    def by_id(self, places: Ints) -> Ints:
        """Places in the order of their ids: what is drawn of them does not depend on how records were aligned."""
        if self.ids is None:
            return places
        return np.array(sorted(places, key=self.ids.__getitem__), dtype=np.int64)

    def evaluated(self, settings: DrawingSettings) -> Ints:
        """Places of the records on which classifiers are measured where there is no other table.

        All with a label that the party does not know, if its labels are given and there are others; else a fifth, whose
        labels it is then assumed not to know.
        """
        draws, others = attack_draws(settings.seed), np.setdiff1d(self.scored, self.pool)
        if len(others):
            return some_of(self.by_id(others), settings.most_records, draws, "evaluation")
        most = min(settings.most_records, int(SET_ASIDE * len(self.scored)))
        return some_of(self.by_id(self.scored), most, draws, "evaluation")

    def draws(self, settings: DrawingSettings, without: Ints) -> list[Ints]:
        """Places of known labels, for each draw; `without`: places that are not among them."""
        pool = self.by_id(np.setdiff1d(self.pool, without))
        if len(pool) <= settings.known:
            return [np.sort(pool)] if len(pool) else []
        draws = attack_draws(settings.seed)
        return [some_of(pool, settings.known, draws, "known", number) for number in range(settings.draws)]


def numbered(labels: Labels, classes: list[str]) -> Ints:
    """Labels (n,) as places among these classes; `UNKNOWN` for a class that is not among them."""
    numbers = np.array([classes.index(name) if name in classes else UNKNOWN for name in labels.classes], dtype=np.int64)
    return np.asarray(numbers[labels.values], dtype=np.int64)


def labels_at_hand(view: View, table: Table | None, labels: Labels | None, known: LabelTable | None) -> KnownLabels:
    """The auditor's labels of all records, and a table of those that the party is assumed to know.

    Args:
        table: the party's table in the common order, by whose ids known labels are found.

    Raises:
        BadInput: the table of known labels cannot be used, or there is no table by whose ids to find them.
    """
    places = None
    if known is not None and not view.regression:
        if table is None:
            raise BadInput(f"{view.party}: known labels are found by the ids of the party's table: give it")
        places = load_known_labels(known.path, known.column, table, known.id)
    return KnownLabels.of(view.records, labels, places, None if table is None else list(table.ids))
