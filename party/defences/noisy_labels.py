"""Noisy labels in the place of a table's own: drawn once, charged once, kept, and used again by every later job.

Two draws for one record would cost twice and average out. So labels are drawn for a whole table, before its records are
aligned, and a draw is known by its content: ids, labels, mechanism, ε, stages, and with more than one stage the columns
that give the priors and their model. A resumed job, a repeated one and another model on that table use the same labels.

`state/noisy_labels/N.npz` has the class numbers of draw N of the ledger (`treetap.party.defences.budgets`), and
hashes of the ids, by which a draw of a forgotten record is known.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from treetap.errors import DataError
from treetap.models import keyed_ids
from treetap.models.arrays import content_of, read_arrays
from treetap.models.durable import make_folder, write_whole
from treetap.party.defences.budgets import LabelBudget, LabelCharge
from treetap.party.defences.settings import LabelDp
from treetap.party.runtime.job_store import DRAWS
from treetap.party.runtime.ledger import Occasion
from treetap.privacy.label_dp import MECHANISM, RandBelow, staged
from treetap.tables.labels import Labels
from treetap.tables.reading import Table

if TYPE_CHECKING:  # a protocol names its own, with the trees that it needs
    from treetap.protocols.own_priors import OwnPriors

log = logging.getLogger(__name__)
#: Held from the look into the ledger until the labels are on disk: two jobs at once draw once.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Draw:
    """Noisy labels of a table's records, with all classes of the table; `digest`: SHA-256 of their file."""

    labels: Labels
    digest: str


class NoisyLabels:
    """The noisy labels of one party.

    Args:
        party: its name, for errors.
        state: its state folder.
        settings: ε and stages.
        budget: of its policy.
        own_priors: the priors of further stages: (table, number of classes).
        randbelow: uniform whole numbers, of the operating system outside tests.
    """

    def __init__(
        self,
        party: str,
        state: Path,
        settings: LabelDp,
        budget: float | None,
        own_priors: Callable[[Table, int], OwnPriors],
        randbelow: RandBelow = secrets.randbelow,
    ) -> None:
        self._party, self._settings, self._randbelow = party, settings, randbelow
        self._own_priors = own_priors
        self._folder, self.budget = state / DRAWS, LabelBudget(state, budget)

    def stored(self, table: Table, labels: Labels) -> Draw | None:
        """The labels drawn for this table and these settings, if there are any.

        Raises:
            DataError: a file is damaged.
        """
        return self._stored(self._charge(table, labels, ""), labels)

    def of(self, table: Table, labels: Labels, column: str, occasion: Occasion) -> Draw:
        """The noisy labels of a table's records, drawn and charged unless they are stored; on disk when this returns.

        `occasion`: the attempt that a draw is charged for.

        Raises:
            Refused: a draw would exceed the budget.
            DataError: a file is damaged, or there are fewer records than stages.
            OSError: the disk refuses them; nothing has been drawn for use then.
        """
        with _one_at_a_time:
            charge = self._charge(table, labels, column)
            draw = self._stored(charge, labels)
            if draw is None:
                self.budget.check(self._party, charge.epsilon)
                self._draw(table, labels, charge, occasion)
                draw = self._stored(charge, labels)
            assert draw is not None
            return draw

    def _stored(self, charge: LabelCharge, labels: Labels) -> Draw | None:
        for number, held in enumerate(self.budget.charges()):
            path = self.budget.labels_of(number)
            if held.key == charge.key and path.is_file():
                content = path.read_bytes()
                if hashlib.sha256(content).hexdigest() != held.labels:
                    raise DataError(
                        f"{path}: is damaged; bring a back-up of it back, or remove it, and a new draw is charged"
                    )
                return Draw(replace(labels, values=read_arrays(io.BytesIO(content))["labels"]), held.labels)
        return None

    def _draw(self, table: Table, labels: Labels, charge: LabelCharge, occasion: Occasion) -> None:
        settings, classes = self._settings, len(labels.classes)
        if len(labels.values) < settings.stages:
            raise DataError(
                f"{table.path}: has fewer records than label_dp has stages ({settings.stages}): set stages = 1"
            )
        priors = self._own_priors(table, classes).of
        noisy = staged(labels.values, classes, settings.epsilon, settings.stages, priors, self._randbelow)
        content = content_of({"labels": noisy, **keyed_ids.drawn(table.ids)})
        if any(held.key == charge.key for held in self.budget.charges()):
            log.warning("%s: noisy labels charged for are not in %s: they are drawn anew", table.path, self._folder)
        make_folder(self._folder)
        digest = hashlib.sha256(content).hexdigest()
        number = self.budget.charge(replace(charge, labels=digest), occasion)  # first: no labels without it
        write_whole(self.budget.labels_of(number), content)
        log.info("%s: noisy labels drawn, ε = %g; in all %s spent", table.path, charge.epsilon, self.budget.spent())

    def _charge(self, table: Table, labels: Labels, column: str) -> LabelCharge:
        """The entry of a draw, which has no labels yet."""
        settings = self._settings
        priors = self._own_priors(table, len(labels.classes)).source if settings.stages > 1 else ""
        classes = [MECHANISM, settings.epsilon, settings.stages, priors, labels.classes]
        key = hashlib.sha256(table.ids.digest + json.dumps(classes).encode() + labels.values.astype("<i8").tobytes())
        return LabelCharge(
            path=str(table.path),
            column=column,
            records=len(labels.values),
            classes=len(labels.classes),
            epsilon=settings.epsilon,
            stages=settings.stages,
            mechanism=MECHANISM,
            priors=priors,
            key=key.hexdigest(),
            labels="",
        )
