"""The picture of who has which role at each node of a small PIVODL tree: docs/pivodl-roles.svg.

The tree is one that four hospitals grow by the rules of the federation, on columns and labels that this script makes;
the roles are those that `treetap.trees.pivodl_rules` gives them with nonces that stand here.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from treetap.trees.binning import bin_table
from treetap.trees.centralised_pivodl import CentralPivodlTree, train
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import RoleDraws, barred

PARTIES = ("north", "south", "east", "west")
COLOURS = {"north": "#ddf4ff", "south": "#dafbe1", "east": "#fff8c5", "west": "#ffebe9"}
RECORDS = 160
PARAMS = PivodlParams(n_estimators=1, max_depth=3, max_bin=6, instance_threshold=3, gamma=0.1, seed=67)
STYLE = """
text { font-family: -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; font-size: 12px; }
.t { font-size: 13px; font-weight: 600; } .w { font-weight: 600; } .s { fill: #57606a; }
.edge { fill: none; stroke: #6e7781; stroke-width: 1.5; }
"""
LEGEND = (
    "A → B: split party B opens the sums of source A's candidates. A box has the colour of the source that won its",
    "node. Not drawn: parties that must not learn G and H here: they could compute the weight of a leaf that they",
    "get with noise. A leaf's weight is kept by the split party that opened its parent's best candidate; the parties",
    "with labels get it, and the source of the parent's split gets it with noise.",
)
#: Sizes in pixels: a leaf with the gap beside it, boxes, a line of text, from a level to the next.
SLOT, LEAF, NODE, LINE, LEVEL, TOP = 188, 178, 216, 17, 190, 116


def rendered(docs: Path) -> dict[Path, str]:
    """The picture."""
    return {docs / "pivodl-roles.svg": picture(roles())}


@dataclass(frozen=True)
class Roles:
    """The roles of one tree.

    Attributes:
        tree: its shape, and the source of each split.
        openers: of each node that may be split: source → its split party, None where the source offers nothing.
        barred: of each such node the parties that its draws leave out.
        keepers: leaf → the party that keeps its weight.
    """

    tree: CentralPivodlTree
    aggregation: str
    encryption: str
    openers: dict[int, dict[str, str | None]]
    barred: dict[int, list[str]]
    keepers: dict[int, str]

    def told(self, node: int) -> list[str]:
        """The parties that learn the sums of a node below the root."""
        found = {*self.openers.get(node, {}).values(), self.opener(node >> 1)}
        return [party for party in PARTIES if party in found]

    def opener(self, node: int) -> str:
        """The split party that opened the winner of a node that was split."""
        return str(self.openers[node][self.tree.splits[node].source])


def roles() -> Roles:
    """The first tree that the four grow, and their draws for it."""
    tree = _tree()
    draws = RoleDraws(PARAMS.seed, PARTIES, {party: hashlib.sha256(party.encode()).digest() for party in PARTIES})
    sources = {node: split.source for node, split in tree.splits.items()}
    openers, left_out = {}, {}
    for node in sorted(tree.divisible):
        known = [leaf for leaf in tree.leaves if _known(leaf, node, tree)]
        out = barred(node, sources, known)
        left_out[node] = [party for party in PARTIES if party in out]
        openers[node] = {source: draws.split_party(0, node, source, out) for source in PARTIES}
    keepers = {leaf: str(openers[leaf >> 1][sources[leaf >> 1]]) for leaf in tree.leaves}
    return Roles(tree, draws.aggregation_party(0), draws.encryption_party(0), openers, left_out, keepers)


def _known(leaf: int, node: int, tree: CentralPivodlTree) -> bool:
    """True for a leaf that is known when the level of a node begins: it lies above, or the stopping rules made it."""
    level, own = node.bit_length(), leaf.bit_length()
    return own < level or (own == level and leaf not in tree.divisible)


def _tree() -> CentralPivodlTree:
    rng = random.Random(PARAMS.seed)  # noqa: S311 - a picture
    columns = np.array([[rng.random() for _ in PARTIES] for _ in range(RECORDS)])
    pull = columns @ np.array([2.0, 1.5, 1.0, 1.5]) + 1.5 * columns[:, 0] * columns[:, 2]
    labels = (pull + np.array([rng.random() for _ in range(RECORDS)]) > np.median(pull) + 0.5).astype(np.int64)
    owner = np.array([rng.randrange(len(PARTIES)) for _ in range(RECORDS)])
    tables = [(name, bin_table(columns[:, [j]], ["x"], PARAMS.max_bin)) for j, name in enumerate(PARTIES)]
    ownership = {name: np.flatnonzero(owner == j) for j, name in enumerate(PARTIES)}
    return train(tables, labels, PARAMS, ownership).trees[0]


def picture(found: Roles) -> str:
    """The roles as SVG."""
    tree = found.tree
    places = _places(tree)
    deepest = max(leaf.bit_length() for leaf in tree.leaves)
    width = SLOT * len(tree.leaves) + 20
    height = TOP + LEVEL * (deepest - 1) + 122
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-label="The role of each party at every node of a tree">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *_legend(),
    ]
    for node in tree.splits:
        lines += [_edge(places[node], places[child], child) for child in (2 * node, 2 * node + 1)]
    for node in sorted(tree.splits):
        lines += _box(places[node], NODE, COLOURS[tree.splits[node].source], list(_of_node(found, node)))
    for leaf in sorted(tree.leaves):
        lines += _box(places[leaf], LEAF, "#f6f8fa", list(_of_leaf(found, leaf)))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _places(tree: CentralPivodlTree) -> dict[int, tuple[float, float]]:
    """Top centre of every node's box: leaves side by side, a split above the middle of its children."""
    places: dict[int, tuple[float, float]] = {}
    slots = iter(range(len(tree.leaves)))

    def place(node: int) -> float:
        inner = node not in tree.leaves
        x = (place(2 * node) + place(2 * node + 1)) / 2 if inner else 10 + SLOT * (next(slots) + 0.5)
        places[node] = x, TOP + LEVEL * (node.bit_length() - 1)
        return x

    place(1)
    return places


def _of_node(found: Roles, node: int) -> Iterator[tuple[str, str]]:
    """Lines of a node that was split, each with its class."""
    winner = found.tree.splits[node].source
    yield f"node {node}, split by {winner}", "t"
    if node == 1:
        yield f"G, H: added up by {found.aggregation}, opened", "s"
        yield f"by {found.encryption}, told to all", "s"
    else:
        yield f"G, H: {', '.join(found.told(node))}", "s"
    for source, opener in found.openers[node].items():
        won = source == winner
        yield f"{source} → {opener or 'no party: offers nothing'}{', the best gain' if won else ''}", "w" if won else ""
    if found.barred[node]:
        yield f"not drawn: {', '.join(found.barred[node])}", "s"


def _of_leaf(found: Roles, leaf: int) -> Iterator[tuple[str, str]]:
    """Lines of a leaf."""
    yield f"leaf {leaf}", "t"
    yield f"kept by {found.keepers[leaf]}", "w"
    yield f"noised to {found.tree.splits[leaf >> 1].source}", ""
    if leaf in found.openers:
        yield "no gain was enough: G, H,", "s"
        yield f"weight: {', '.join(found.told(leaf))}", "s"


def _box(place: tuple[float, float], width: int, fill: str, texts: list[tuple[str, str]]) -> Iterator[str]:
    x, y = place
    yield (
        f'<rect x="{x - width / 2:g}" y="{y:g}" width="{width}" height="{LINE * len(texts) + 12}" rx="6" '
        f'fill="{fill}" stroke="#57606a"/>'
    )
    for number, (text, kind) in enumerate(texts):
        yield _text(x - width / 2 + 10, y + LINE * (number + 1) + 1, text, kind)


def _edge(parent: tuple[float, float], child: tuple[float, float], number: int) -> str:
    (x, y), (to_x, to_y) = parent, child
    middle = to_y - 18
    line = f'<path d="M{x:g} {y + 60:g}V{middle:g}H{to_x:g}V{to_y:g}" class="edge"/>'
    return line + _text(to_x + 6, to_y - 6, "right" if number % 2 else "left", "s")


def _legend() -> Iterator[str]:
    yield _text(20, 22, "One tree of four hospitals, all of which have columns and some labels", "t")
    for number, text in enumerate(LEGEND):
        yield _text(20, 40 + LINE * number, text, "")


def _text(x: float, y: float, text: str, kind: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{named}>{escape(text)}</text>'
