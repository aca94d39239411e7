"""The layout of a record's plaintext in a forest, which the label holder makes and a feature party expects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treetap.errors import Malformed
from treetap.party.growth.column_noise import widths_of
from treetap.privacy.column_privacy import ColumnPrivacy, most_draws
from treetap.trees.loss import UNIT
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import ForestParams
from treetap.trees.slots import Slots, width_for


def layout(
    params: ForestParams, records: int, outputs: int, classes: int = 0, noises: Sequence[SumNoise] = ()
) -> Slots:
    """One slot per class, for counts; or the target and 1. Each is wide enough for the sum over all records.

    A tree draws no more records than there are. `classes`: of the label, where its counts over all records, drawn or
    not, are in further slots. `noises`: of parties, for the most of which there is room.

    Raises:
        PlaintextOverflow: such sums need wider slots than there are.
        ConfigError: with noise they do.
    """
    bounds = [1] * outputs if params.criterion == "gini" else [UNIT, 1]
    return Slots((*widths_of(records, bounds, noises), *[width_for(records, 1)] * classes))


def implied(
    params: ForestParams, on_lattice: bool, records: int, slots: int, classes: int, noises: Sequence[SumNoise] = ()
) -> Slots:
    """The layout of `slots` slots that a job implies; a feature party cannot tell the number of classes from it.

    `classes`: those slots that count all records, which with a key have sums of their own instead.

    Raises:
        Malformed: no number of classes leads to `slots` slots.
    """
    of_all = on_lattice and params.criterion == "gini" and slots == 2 * classes > 2
    if slots < 2 or (classes and not of_all):
        raise Malformed(f"{slots} slots, {classes} of all records, are not counts of classes, nor a target and a count")
    return layout(params, records, slots - classes, classes, noises)


class ForestLayout(NamedTuple):
    """The layout that a job of a forest implies: see `NoisedLayout`."""

    params: ForestParams
    on_lattice: bool

    def draws(self, party: str, privacy: ColumnPrivacy, records: int) -> int:
        """Those of the record that is drawn most, by the job's seed."""
        del privacy
        return most_draws(self.params, party, records)

    def noise(self, privacy: ColumnPrivacy, slots: int, draws: int) -> SumNoise:
        """That of counts of classes, or of a target and a count."""
        return privacy.noise_of_forest(self.params, slots, draws)

    def implied(self, records: int, slots: int, classes: int, noises: Sequence[SumNoise]) -> Slots:
        return implied(self.params, self.on_lattice, records, slots, classes, noises)
