"""What a training costs by layout alone, before it begins, and the cheaper scheme of a draft with `scheme = "auto"`.

Bytes are counted as they are sent, without the frames of messages. Processor time and memory are by the formulas of
docs/operations.md#planning, which benchmarks/sizes.py fits to eight trainings with native kernels (AVX2). Trees are
taken as full, and columns as without missing values.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from treetap.commands.jobs.job_file import AUTO, JobTable
from treetap.commands.jobs.progress_view import much
from treetap.errors import BadInput, PlaintextOverflow
from treetap.lattice.histogram_scheme import kernels, parameters_of, rounded_up
from treetap.lattice.histogram_ways import Needs, built_nodes, planned_costs, way_of
from treetap.protocols.key_options import LATTICE, LINE, PAILLIER, bits_per_second
from treetap.protocols.registry import training
from treetap.trees.params import BoostingParams
from treetap.trees.slots import Slots, width_for

#: Scheme → CPU s: once; by 1,000 records of all trees, 10⁶ records × candidates of all trees, 10⁶ records × nodes, and
#: 10³ nodes × candidates.
CPU_S = {PAILLIER: (3.56, 0.031, 0.0853, 0.956, 0.259), LATTICE: (3.0, 0.0, 0.0193, 0.0272, 0.122)}
#: MiB of the larger party by Paillier: once; by 1,000 records, 1,000 candidates, 10⁶ records × candidates, and 10³
#: summed nodes of a tree × candidates.
MIB = (232.0, 1.09, 28.6, 1.97, 2.56)


class Cost(NamedTuple):
    """Of a training: seconds of processors and line together, bytes between all parties, memory of the larger party."""

    seconds: float
    sent: int
    mib: int


def cost_of(job: JobTable, records: int, columns: Sequence[int], classes: int = 2, line: int = LINE) -> Cost:
    """The cost of a job of trees that a label holder grows.

    `columns`: the number of each feature party's; `line`: its bits a second.

    Raises:
        BadInput, PlaintextOverflow: its scheme does not take such sums.
    """
    params: Any = job.params()  # of trees, with slots for the values of a record
    counts, each_round = [own * (params.max_bin - 1) for own in columns], params.trees_per_round(classes)
    bounds = params.slot_bounds(params.outputs(classes) // each_round)
    slots, needs = Slots(tuple(width_for(records, bound) for bound in bounds)), Needs.of(params)
    built, summed, trees = built_nodes(params, needs), sum(counts), params.n_estimators * each_round
    nodes = trees * built
    # ciphertexts serve all trees where the values of a record do not change
    drawn = trees * records if isinstance(params, BoostingParams) or job.scheme == LATTICE else records
    if job.scheme == LATTICE:
        agreed = parameters_of(records, slots, params.max_bin, rounded_up(max(counts)), rounded_up(nodes), 1)
        words, sums, mib = planned_costs(way_of(agreed, built, needs, line), agreed, built, needs, trees, counts)
        sent = words + sums
    else:
        groups = slots.groups_per_plaintext(job.key.plain_bits)
        packed = trees * sum(-(-built * count // groups) for count in counts)
        sent = (drawn * len(counts) + packed) * job.key.ciphertext_bytes
        mib = int(np.dot(MIB, (1.0, records / 1e3, summed / 1e3, records * summed / 1e6, built * summed / 1e3)))
    cpu_s = float(
        np.dot(
            CPU_S[str(job.scheme)],
            (1.0, drawn / 1e3, trees * records * summed / 1e6, nodes * records / 1e6, nodes * summed / 1e3),
        )
    )
    return Cost(cpu_s + 8 * sent / line, sent, mib)


def planned(
    job: JobTable, drafts: Sequence[JobTable], records: int, columns: Sequence[int], classes: int = 2
) -> tuple[list[JobTable], list[str]]:
    """The jobs that a draft may become, the cheaper first, and what is to be said before one of them begins.

    A scheme that does not take such sums is left out, and of "auto" a lattice where this machine has no kernels, unless
    it is the only one: its own refusal comes with the job.
    """
    costs, kind = list[tuple[Cost, JobTable]](), training(job.protocol)
    for draft in drafts if kind.grows_trees and not kind.one_role else ():
        with suppress(BadInput, PlaintextOverflow):
            if job.scheme == AUTO and draft.scheme == LATTICE:
                kernels()
            costs.append((cost_of(draft, records, columns, classes, bits_per_second(job.line)), draft))
    costs.sort(key=lambda it: it[0])
    first = f"The cheaper scheme is taken. Estimated by layout, over a line of {job.line}:"
    said = [first, *(f"  {draft.scheme}: some {cost.seconds:.1f} s" for cost, draft in costs)]
    large = [line for cost, _ in costs[:1] for line in much(cost.sent, cost.mib)]
    return [draft for _, draft in costs] or [*drafts], [*said, *large] if job.scheme == AUTO and costs else large
