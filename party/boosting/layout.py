"""The layout of a record's plaintext in boosting, which the label holder makes and a feature party expects."""

from __future__ import annotations

from collections.abc import Iterable

from treetap.errors import ConfigError, Malformed, PlaintextOverflow
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.privacy.discrete_gaussian import LARGEST_VARIANCE
from treetap.trees.gradient_bits import record_bounds
from treetap.trees.loss import check_sums
from treetap.trees.params import BoostingParams
from treetap.trees.slots import Slots, width_for


def layout(
    params: BoostingParams, records: int, outputs: int, classes: int = 0, noised: Iterable[ColumnPrivacy] = ()
) -> Slots:
    """Slots g_0.., h_0.., 1 of a tree with `outputs` outputs, each wide enough for the sum over all records.

    `classes`: of the label, where its one-hot form is in further slots. `noised`: the noise of parties, for the most of
    which there is room.

    Raises:
        ConfigError: such sums need wider slots than there are.
    """
    check_sums(params.objective, records, params.largest_factor)
    g_max, h_max = record_bounds(params.objective, params.gradient_bits, params.largest_factor)
    noises = [privacy.noise(params, outputs) for privacy in noised]
    rooms = [noise.rooms for noise in noises]
    most = [max(room) for room in zip(*rooms, strict=True)] or [0] * (2 * outputs + 1)
    bounds = [g_max] * outputs + [h_max] * outputs + [1]
    try:
        if any(noise.variance * max(noise.bounds) ** 2 > LARGEST_VARIANCE for noise in noises):
            raise PlaintextOverflow("no draws are that large")
        widths = [width_for(records, bound, room) for bound, room in zip(bounds, most, strict=True)]
    except PlaintextOverflow as failure:  # without noise there is room, or sums were refused
        raise ConfigError(
            "the noise of column_privacy needs wider slots than there are: ask for a greater epsilon or fewer trees "
            f"under [defences] of the feature party ({failure})"
        ) from failure
    widths += [width_for(records, 1)] * classes
    return Slots(tuple(widths))


def implied(
    params: BoostingParams, records: int, slots: int, classes: int, noised: Iterable[ColumnPrivacy] = ()
) -> Slots:
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
    return layout(params, records, outputs, classes, noised)
