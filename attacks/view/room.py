"""The room of a plaintext in a job of trees: the most that sums tell a label holder that crafts what is summed.

A feature party adds whatever numbers the ciphertexts hold. A sum of n bits tells n bits of its records at most, whether
they are in it; and a ciphertext, or the first halves of one candidate on a lattice, what its plaintext holds. That is
the only bound on crafted g and h; it holds for honest trainings too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treetap.attacks.schema import Count, Findings
from treetap.attacks.view.opened_sums import OpenedSums
from treetap.errors import BadInput, Malformed, PlaintextOverflow
from treetap.protocols.key_options import KeyKind
from treetap.trees.loss import record_bounds
from treetap.trees.params import BoostingParams, TreeParams
from treetap.trees.slots import Slots, width_for
from treetap.wire.v2 import setup_pb2


class Room(Findings):
    """The room of a job's plaintexts.

    `sum_bits`: of a candidate's sum, all slots together. `query_bits`: of a ciphertext or, on a lattice, of a
    candidate's first halves: r words, each of its tb bits and two more by its error. `sums`: in one of these.
    """

    sum_bits: Count
    query_bits: Count
    sums: Count


def room_of(
    spec: setup_pb2.JobSpec, params: TreeParams, records: int, key: setup_pb2.PublicKeyMessage | None
) -> Room | None:
    """The room by the message with the public key, which feature parties receive; None without one."""
    if key is None or not key.slot_widths:
        return None
    return _room(spec, params, records, key.slot_widths, (key.candidates, key.queries, key.hiding))


def room_opened(spec: setup_pb2.JobSpec, params: TreeParams, opened: OpenedSums) -> Room | None:
    """The room by what a label holder of boosting summed; None of another job, and where it recorded nothing.

    On a lattice the sizes are those of a job without further bits of hiding.
    """
    if not isinstance(params, BoostingParams) or not opened.trees:
        return None
    first, records = opened.trees[0], opened.records
    counts = np.flatnonzero((first.values == params.drawn(first.index, records)[:, None]).all(axis=0))
    outputs, (g, h) = int(counts[0]) // 2, record_bounds(params.objective, params.largest_factor)
    bounds = [g] * outputs + [h] * outputs + [1] * (first.values.shape[1] - 2 * outputs)
    candidates = max(
        len(sums) for tree in opened.trees for of_party in tree.sums.values() for sums in of_party.values()
    )
    queries = len(opened.trees) * params.expansion.most_summed(subtract=True)
    return _room(spec, params, records, [width_for(records, bound) for bound in bounds], (candidates, queries, 0))


def _room(
    spec: setup_pb2.JobSpec, params: TreeParams, records: int, widths: Sequence[int], sizes: tuple[int, int, int]
) -> Room:
    """`sizes` of a lattice: candidates of a node, nodes of an attempt that are summed, bits of hiding (0: the fewest).

    Raises Malformed where no plaintext has such a layout.
    """
    key, (candidates, queries, hiding) = KeyKind.of(spec), sizes
    try:
        slots = Slots(tuple(widths))
        if not key.on_lattice:
            sums = slots.groups_per_plaintext(key.plain_bits)
            return Room(sum_bits=slots.bits, query_bits=key.plain_bits + 1, sums=sums)
        from treetap.lattice.histogram_parameters import HIDING, HistogramParameters  # most jobs do without

        least = hiding or HIDING[0]
        sized = HistogramParameters.choose(records, widths, params.max_bin + 1, candidates, queries, hiding=least)
    except (BadInput, PlaintextOverflow) as fault:
        raise Malformed(f"its plaintexts can have no such layout: {fault}") from None
    return Room(sum_bits=slots.bits, query_bits=sized.words * (sized.word_bits + 2), sums=1)
