"""Leaves with a known truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treetap.attacks.id2graph.clustering import Floats, Ints
from treetap.attacks.id2graph.schema import KnownSettings
from treetap.attacks.known_labels.evidence import SignatureEvidence
from treetap.attacks.known_labels.names import KnownLabels
from treetap.attacks.view.known_trees import KnownNode, TreeView
from treetap.tables.labels import Labels


def ids(*records: int) -> Ints:
    """Record positions."""
    return np.array(records, dtype=np.int64)


def by_code(codes: Ints) -> list[Ints]:
    """The leaves of a tree that sends record i to leaf codes[i]; −1 means to none that the attacker knows."""
    return [np.flatnonzero(codes == k).astype(np.int64) for k in range(int(codes.max()) + 1)]


def random_trees(seed: int, records: int, trees: int, leaves: int, unknown: float = 0.0) -> list[list[Ints]]:
    """Trees that send every record anywhere, a share of the records to no known leaf."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(trees):
        codes = draw.integers(0, leaves, records)
        codes[draw.random(records) < unknown] = -1
        found.append(by_code(codes))
    return found


def planted(seed: int, labels: Ints, trees: int, parts: int, noise: float) -> list[list[Ints]]:
    """Trees of which each cuts every class into `parts` leaves; a share `noise` of the records lands anywhere."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(trees):
        codes = labels * parts + draw.integers(0, parts, len(labels))
        stray = draw.random(len(labels)) < noise
        codes[stray] = draw.integers(0, int(codes.max()) + 1, int(stray.sum()))
        found.append(by_code(codes))
    return found


def views(leaves: Sequence[list[Ints]], total: int) -> list[TreeView]:
    """Views of trees with these leaves, all of which are known, at one depth below the root; no own splits."""
    found = []
    for index, tree in enumerate(leaves):
        nodes = {1: KnownNode(1, np.arange(total), "root")}
        nodes |= {2**10 + k: KnownNode(2**10 + k, records, "received") for k, records in enumerate(tree)}
        found.append(TreeView(index, 0, True, total, nodes, None))
    return found


def evidence(trees: Sequence[TreeView], labels: Ints, columns: object = None, **given: int) -> SignatureEvidence:
    """What a party has that knows these nodes, with the auditor's labels of all records."""
    classes = [f"class {number}" for number in range(int(labels.max()) + 1)]
    known = KnownLabels.of(len(labels), Labels(labels, classes), None)
    table = None if columns is None else np.asarray(columns, dtype=np.float64)
    return SignatureEvidence(trees, known, table, KnownSettings(**given))


def dense(leaves: list[list[Ints]], records: int, discount: float) -> Floats:
    """Equation 1, written out pair by pair."""
    matrix = np.zeros((records, records))
    for t, tree in enumerate(leaves):
        for leaf in tree:
            for i in leaf:
                for j in leaf:
                    if i != j:
                        matrix[i, j] += discount**t
    return matrix


def modularity(matrix: Floats, communities: Ints) -> float:
    """Equation 2 with the standard 2m = Σ A, from the full matrix."""
    total = matrix.sum()
    degrees = matrix.sum(axis=1)
    same = communities[:, None] == communities[None, :]
    return float(((matrix - np.outer(degrees, degrees) / total) * same).sum() / total)
