"""Cells of a feature party's columns that a label holder reads by crafted g and h (the reverse sum attack).

    python benchmarks/crafted_gradients.py [--set breast_cancer credit] [--records N] [--trees 20] [--depth 4]
        [--bins 32] [--least 10] [--epsilon 1 4] [--delta 1e-6]

breast_cancer is of scikit-learn, credit (its first 5,000 records) needs TREETAP_DATA. The label holder has the first
columns, a feature party the others. The centralised trainer gives the federation's sums.

First table: marks of records in low bits of g and h, which keep the model (`tests.crafted_gradients`). Bits of a sum
and of a query are the room of a plaintext under Paillier with keys of 2048 bits (a ciphertext) and on a lattice (a
candidate). Read: the share of all cells by links that the attacker found, in brackets by links given. AUC: of four
fifths of the records trained, on the others, with marks and without.

Second table: `column_privacy`, at the root, candidates of a column given in order. In range: one record has the largest
|g|, h and count of the layout, all others 0. Beyond: records have powers of two that fill the slots above the noise.
Cells: right ones of those records'. Bits: the most that sums of a node tell, a candidate, whatever the plaintexts are,
2,047 a ciphertext less the entropy of noise, and without noise.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from columns_from_sums import HOLDER, PARTY, Case, case_of, opened_sums

sys.path.insert(0, str(Path(__file__).parents[1]))


from tests.crafted_gradients import CraftedRounds
from treetap import terminal
from treetap.attacks.sums.attack import SumsEvidence
from treetap.attacks.sums.propagation import Kept
from treetap.attacks.sums.reverse_sum import read_marks
from treetap.attacks.sums.schema import MarkedCells, SumsSettings
from treetap.attacks.sums.scoring import TrueColumns
from treetap.attacks.view.opened_sums import OpenedSums, room_opened
from treetap.party.growth.column_noise import widths_of
from treetap.privacy.column_privacy import ColumnPrivacy, drawn_sums
from treetap.protocols.key_options import KEY_BITS, LATTICE, PAILLIER, KeyKind
from treetap.trees import metrics
from treetap.trees.binning import BinnedTable, bin_table, encode
from treetap.trees.boosting_rounds import BoostingRounds
from treetap.trees.candidates import CandidateList
from treetap.trees.cell_merging import bins_of
from treetap.trees.centralised import train
from treetap.trees.ensemble import ROOT
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import BoostingParams
from treetap.trees.tree_bins import left_sums_of
from treetap.wire.v2 import setup_pb2

Ints = npt.NDArray[np.int64]
#: Standard deviations of a left sum's noise that separate two numbers are twice this.
APART = 5.5


def attacked(
    case: Case, params: BoostingParams, rounds: type[BoostingRounds], least: int = 0
) -> tuple[MarkedCells, OpenedSums]:
    """The attack's figures, and the label holder's view. `least`: `min_cell_records`."""
    opened, _ = opened_sums(case, params, least, rounds)
    values = case.inputs[:, case.own :]
    truth = TrueColumns.of_numbers([str(j) for j in range(values.shape[1])], values, params.max_bin)
    return read_marks(SumsEvidence(PARTY, opened, truth, SumsSettings(), lambda _: None, Kept())), opened


def auc(case: Case, params: BoostingParams, rounds: type[BoostingRounds]) -> float:
    """AUC on a fifth of the records, by a model of the others."""
    before, after = np.split(np.random.default_rng(0).permutation(len(case.labels)), [int(0.8 * len(case.labels))])
    blocks = {HOLDER: case.inputs[:, : case.own], PARTY: case.inputs[:, case.own :]}
    tables = {
        name: bin_table(block[before], [f"{name} {j}" for j in range(block.shape[1])], params.max_bin)
        for name, block in blocks.items()
    }
    learned = case.labels[before]
    model = train(list(tables.items()), learned, params, rounds=rounds(params, 2, learned))
    asked = [(name, encode(blocks[name][after], table.features)) for name, table in tables.items()]
    outcome = model.ensemble.outcome(model.predict(asked))
    return metrics.evaluate(params.objective, outcome, case.labels[after])["auc"]


def row_of(what: str, case: Case, params: BoostingParams, least: int, *, marks: bool) -> list[str]:
    """A row of the first table."""
    rounds = CraftedRounds if marks else BoostingRounds
    figures, opened = attacked(case, params, rounds, least)
    reached = "" if least else f"{auc(case, params, rounds):.4f}"
    both = [0.0 if it is None else it.placed for it in (figures.read, figures.given)]
    read = f"{both[0]:.1%} ({both[1]:.1%})"
    keys = ((PAILLIER, KEY_BITS), (LATTICE, 0))
    every = (room_opened(setup_pb2.JobSpec(scheme=name, key_bits=bits), params, opened) for name, bits in keys)
    rooms = [room for room in every if room is not None]
    queries = [f"{room.query_bits:,} ÷ {room.sums}" for room in rooms]
    marked = f"{figures.records:,} of {opened.records:,}"
    return [case.name, what, str(rooms[0].sum_bits), *queries, marked, read, reached]


def under_noise(case: Case, params: BoostingParams, privacy: ColumnPrivacy) -> list[str]:
    """A row of the second table."""
    block, records = case.inputs[:, case.own :], len(case.labels)
    table = bin_table(block, [str(j) for j in range(block.shape[1])], params.max_bin)
    bins = bins_of(table, np.arange(len(table.features)), 0)
    noise = privacy.noise(params, 1)
    candidates = CandidateList([feature.shape for feature in table.features])
    widths = widths_of(records, noise.bounds, [noise])
    right, marks = [], 0
    for beyond in (False, True):
        powers = [_powers(width, noise, slot) if beyond else [noise.bounds[slot]] for slot, width in enumerate(widths)]
        slots = np.repeat(np.arange(len(widths)), [*map(len, powers)])
        marks, count, turn = len(slots), 0, np.random.default_rng(1).permutation(records)
        for tree in range(params.n_estimators):
            rows = turn[(tree * marks + np.arange(marks)) % records]
            values = np.zeros((records, len(widths)), dtype=np.int64)
            values[rows, slots] = np.concatenate(powers)
            sums = left_sums_of(bins, values, [ROOT], [np.arange(records)])[0] + drawn_sums(candidates, noise, 1)[0]
            placed = _placed_beyond if beyond else _placed_in_range
            for column in range(len(table.features)):
                lefts = sums[candidates.feature == column]
                count += int((placed(lefts, powers) == table.codes[rows, column]).sum())
        right.append(count / (params.n_estimators * marks * block.shape[1]))
    told = min(marks * params.n_estimators, records) * right[1] / records
    bits = [
        _bits(table, len(candidates), widths, noise),
        _bits(table, len(candidates), widths_of(records, noise.bounds, []), None),
    ]
    return [
        *(case.name, f"{privacy.epsilon:g}", f"{float(noise.variance) ** 0.5:.0f}", f"{right[0]:.1%}"),
        *(f"{marks}", f"{right[1]:.1%}", f"{told:.1%}", f"{bits[0]:.0f}", f"{bits[1]:.0f}"),
    ]


def _powers(width: int, noise: SumNoise, slot: int) -> list[int]:
    """Numbers by whose sums records are told apart under noise, each twice the one before."""
    apart = APART * noise.deviation(slot)
    least, room = math.ceil(2 * apart), (1 << (width - 1)) - apart
    return [least << power for power in range(int(math.log2(max(1.0, room / least + 1))))]


def _placed_in_range(lefts: Ints, powers: list[list[int]]) -> Ints:
    """The cell of a column (marks,), of one record a slot, that has the largest sum."""
    ends = np.concatenate([np.zeros((1, len(powers)), dtype=np.int64), lefts, np.array(powers).T])
    largest: Ints = np.diff(ends, axis=0).argmax(axis=0)
    return largest


def _placed_beyond(lefts: Ints, powers: list[list[int]]) -> Ints:
    """The cell of a column (marks,), by the powers of two in each left sum: the number of cuts below a record."""
    sides = [np.rint(lefts[:, slot] / of_slot[0]).astype(np.int64) for slot, of_slot in enumerate(powers) if of_slot]
    counts = [len(of_slot) for of_slot in powers if of_slot]
    right = [(side >> bit & 1 == 0).sum() for side, count in zip(sides, counts, strict=True) for bit in range(count)]
    return np.array(right, dtype=np.int64)


def _bits(table: BinnedTable, candidates: int, widths: list[int], noise: SumNoise | None) -> float:
    """The most bits, a candidate, that a node's sums tell in ciphertexts of Paillier."""
    plain = KeyKind(PAILLIER, KEY_BITS).plain_bits
    whole = -(-candidates // (plain // sum(widths))) * (plain + 1)
    entropy = 0.0
    for bound in () if noise is None else noise.bounds:
        assert noise is not None
        deviation = math.sqrt(float(noise.variance)) * bound
        for shape in (feature.shape for feature in table.features):
            cells = shape.n_bins + shape.has_missing
            entropy += (cells - 1) * math.log2(deviation * math.sqrt(2 * math.pi * math.e)) - math.log2(cells) / 2
    return (whole - entropy) / candidates


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = ["breast_cancer", "credit"]
    parser.add_argument("--set", nargs="+", default=sets, choices=sets, dest="sets")
    parser.add_argument("--records", type=int)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--bins", type=int, default=32)
    parser.add_argument("--least", type=int, default=10)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1, 4])
    parser.add_argument("--delta", type=float, default=1e-6)
    given = parser.parse_args()
    sizes = {"n_estimators": given.trees, "max_depth": given.depth, "max_bin": given.bins}
    plain = BoostingParams(**sizes)
    table = terminal.table("set", "setting", "bits of a sum", "Paillier", "lattice", "marked", "read", "AUC")
    noised = terminal.table("set", "ε", "z", "in range", "marks", "beyond", "of all cells", "bits", "without noise")
    for name in given.sets:
        case = case_of(name, given.records)
        table.add_row(*row_of("honest", case, plain, 0, marks=False))
        table.add_row(*row_of("marks", case, plain, 0, marks=True))
        table.add_row(*row_of(f"min_cell_records {given.least}", case, plain, given.least, marks=True))
        for epsilon in given.epsilon:
            noised.add_row(*under_noise(case, plain, ColumnPrivacy(epsilon, given.delta, given.trees)))
    terminal.out.print(table)
    terminal.out.print(noised)


if __name__ == "__main__":
    main()
