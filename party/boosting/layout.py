"""The layout of a record's plaintext in boosting, which the label holder makes and a feature party expects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treetap.errors import Malformed
from treetap.party.growth.column_noise import widths_of
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.trees.loss import check_sums, record_bounds
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import BoostingParams
from treetap.trees.slots import Slots, width_for


def layout(
    params: BoostingParams, records: int, outputs: int, classes: int = 0, noises: Sequence[SumNoise] = ()
) -> Slots:
    """Slots g_0.., h_0.., 1 of a tree with `outputs` outputs, each wide enough for the sum over all records.

    `classes`: of the label, where its one-hot form is in further slots. `noises`: of parties, for the most of which
    there is room.

    Raises:
        ConfigError: such sums need wider slots than there are.
    """
    check_sums(params.objective, records, params.largest_factor)
    g_max, h_max = record_bounds(params.objective, params.largest_factor)
    widths = widths_of(records, [g_max] * outputs + [h_max] * outputs + [1], noises)
    widths += [width_for(records, 1)] * classes
    return Slots(tuple(widths))


def implied(params: BoostingParams, records: int, slots: int, classes: int, noises: Sequence[SumNoise] = ()) -> Slots:
    """The layout of `slots` slots that a job implies, `classes` of them for the class of a record.

    Without these a feature party cannot tell the number of classes from it.

    Raises:
        Malformed: no number of classes leads to `slots` slots.
    """
    outputs, rest = divmod(slots - classes - 1, 2)
    # of two classes and of more, every number is possible; of fewer there is nothing to learn
    if rest or outputs < params.outputs_per_tree(2) or (outputs > 1 and params.outputs_per_tree(3) == 1):
        raise Malformed(f"{slots} slots are not g and h of each output and a count")
    if classes and (classes < 2 or params.outputs_per_tree(classes) != outputs):
        raise Malformed(f"{classes} slots for classes do not go with {outputs} outputs")
    return layout(params, records, outputs, classes, noises)


class BoostingLayout(NamedTuple):
    """The layout that a job of boosting implies: see `NoisedLayout`."""

    params: BoostingParams

    def draws(self, party: str, privacy: ColumnPrivacy, records: int) -> int:
        """One for each tree, as the party says: a tree draws no record twice."""
        del party, records
        return privacy.trees

    def noise(self, privacy: ColumnPrivacy, slots: int, draws: int) -> SumNoise:
        """That of g and h of each output and of a count."""
        del draws
        return privacy.noise(self.params, (slots - 1) // 2)

    def implied(self, records: int, slots: int, classes: int, noises: Sequence[SumNoise]) -> Slots:
        return implied(self.params, records, slots, classes, noises)
