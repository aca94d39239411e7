"""Trees as one party sees them: known nodes with records and classes, its own splits, hidden nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from treetap.attacks.document import Document, Party, SeenTree, TreeNode
from treetap.attacks.report.glossary import SOURCES, count
from treetap.pages.pictures import BOTTOM, LEFT, RIGHT, TOP, Frame, Linear, Tick, short
from treetap.pages.section import Key, Section, Table, Text

#: Most nodes drawn in one file (the first tree of every party always), most trees drawn of a party.
MOST_NODES, MOST_TREES = 2000, 20
COLUMN, ROW, BOX, BOX_HEIGHT, MARGIN = 128, 34, 88, 23, 8  # COLUMN: least width; a long split's text widens it
LETTERS, LETTER = 22, 7.4  # of a split's text in a picture, and the width of one; table and tooltip have the whole text
OVERVIEW = (440, 150)


class Box(NamedTuple):
    """A node: its corner, its source (`root`, `received`, `own`, `difference`, `hidden`), and its content.

    `segments`: the bar of its classes: place, width and number of each.
    """

    x: str
    y: str
    style: str
    leaf: bool
    text: str
    split: str
    title: str
    segments: list[tuple[str, str, int]]


@dataclass(frozen=True)
class Tree:
    """One tree of one party as a picture.

    `links`: from parents to children: path, width by the child's share of records, and whether the child is hidden.
    """

    width: int
    height: int
    boxes: list[Box]
    links: list[tuple[str, str, bool]]
    label: str
    box: tuple[int, int] = (BOX, BOX_HEIGHT)


@dataclass(frozen=True)
class Overview:
    """The number of nodes of each tree by source; `ticks` of the trees; `piles`: by source, a path of bars."""

    frame: Frame
    ticks: list[Tick]
    piles: dict[str, str]
    label: str
    caption: str


TABLE_HEADS = ("node", "depth", "known by", "records", "records by label", "own split")
STYLES = ("received", "own", "difference", "hidden")
#: Source of a node → how the party knows it.
KNOWN_BY = {None: "hidden", "root": "root", "received": "received", "own": "own split", "difference": "derived"}


#: Colours of classes, distinct on light and dark backgrounds; further ones follow at golden angles.
CLASS_COLOURS = (
    *("#3f7fd9", "#e8912d", "#2aa37a", "#c2559b", "#8d6cc9"),
    *("#b8a12a", "#d9574a", "#5fa8b8", "#8a6a4a", "#7d8791"),
)


def class_colours(classes: int) -> list[str]:
    """A colour for each class."""
    further = range(len(CLASS_COLOURS), classes)
    return [*CLASS_COLOURS[:classes], *(f"hsl({137.5 * k % 360:.0f} 55% 55%)" for k in further)]


def trees(document: Document) -> Section:
    """The section of the trees as each party sees them."""
    chosen, names = choose(document), document.class_names or []
    bar = "as a bar, their classes (which the party does not see)"
    parties = []
    for name, party in document.on_labels.items():
        drawn, every = len(chosen[name]), len(party.trees)
        left_out = f"{drawn} of {every} trees are drawn, to keep this file small; the JSON document has all."
        parties.append(
            Section(
                name,
                [
                    overview(name, party),
                    Text("" if party.trees else "No complete tree is in the transcript.", style="soft"),
                    Section(
                        "Show",
                        [draw(document, name, tree, k == 0) for k, tree in enumerate(chosen[name])],
                        style="choose",
                    ),
                    Text(left_out if drawn < every else "", style="soft"),
                ],
            )
        )
    return Section(
        "The trees as each party sees them",
        [
            Text(
                f"A box is a node: how many records it has and{f', {bar}' if names else ' how it is known'}. Its "
                "frame says how the party knows it; a heavy frame is a leaf to this party: known, with no known "
                "children. Attacks work on these leaves. Splits of the party's own are written below their node; "
                "records below the threshold go up, the others down. Splits of others have no name here, because the "
                "party does not learn it."
            ),
            Key("source", [*SOURCES.items(), ("hidden", "hidden: must exist, its records are unknown")]),
            Key("class", [(f"c{k}", name) for k, name in enumerate(names)], "Labels"),
            *parties,
        ],
        "trees",
        where="page",
    )


def choose(document: Document) -> dict[str, list[SeenTree]]:
    """The trees that are drawn: each party's first ones, taken in turn while they fit into `MOST_NODES`."""
    chosen: dict[str, list[SeenTree]] = {name: party.trees[:1] for name, party in document.on_labels.items()}
    spent = sum(len(tree.nodes) for trees in chosen.values() for tree in trees)
    for k in range(1, MOST_TREES):
        for name, party in document.on_labels.items():
            if k < len(party.trees):
                spent += len(party.trees[k].nodes)
                if spent > MOST_NODES:
                    return chosen
                chosen[name].append(party.trees[k])
    return chosen


def draw(document: Document, name: str, tree: SeenTree, first: bool = False) -> Section:
    """Draw a tree: root on the left, a column per depth, leaves at equal distances from top to bottom.

    `first`: shown at once.
    """
    nodes = {node.node: node for node in tree.nodes}
    children: dict[int, list[int]] = {number: [] for number in nodes}
    tops = []
    for number in sorted(nodes):
        above = number >> 1
        # the document may leave nodes out: a node hangs below its nearest ancestor that is there
        while above and above not in nodes:
            above >>= 1
        children[above].append(number) if above else tops.append(number)
    y = _rows(nodes, children, tops)
    column = max([COLUMN, *(math.ceil(LETTER * len(_brief(node)) + 10) for node in tree.nodes)])
    names = document.class_names or []
    boxes = [_box(nodes[number], y[number], column, names) for number in sorted(nodes)]
    links = [
        _link(nodes[number], y[number], nodes[child], y[child], document.records, column)
        for number, below in children.items()
        for child in below
    ]
    leaves = sum(not below for below in children.values())
    depth = max((node.depth for node in tree.nodes), default=0)
    known = sum(node.known for node in tree.nodes)
    picture = Tree(
        width=2 * MARGIN + (depth + 1) * column,
        height=2 * MARGIN + max(1, leaves) * ROW,
        boxes=boxes,
        links=links,
        label=f"Tree {tree.tree} as {name} sees it",
    )
    rows = []
    for node in (nodes[number] for number in sorted(nodes)):
        seen = KNOWN_BY[node.source] + (", a leaf to this party" if node.leaf else "")
        cells = (seen, count(node.records), _classes(node, names) or "–", _split(node) or "–")
        rows.append([str(node.node), str(node.depth), *cells])
    table = Table(TABLE_HEADS, rows, f"Nodes of tree {tree.tree}", words=(2, 5), folded=True)
    title = f"Tree {tree.tree}: {known} nodes known, {len(tree.nodes) - known} hidden"
    return Section(title, [picture, table], folded=True, open=first)


def overview(name: str, party: Party) -> Overview | None:
    """A bar per tree, stacked by source; the root, which every party knows, is left out."""
    if not party.trees:
        return None
    width, height = OVERVIEW
    node_counts = [
        {style: sum((node.source or "hidden") == style for node in tree.nodes) for style in STYLES}
        for tree in party.trees
    ]
    most = max(1, *(sum(counts.values()) for counts in node_counts))
    x = Linear(0, len(node_counts), LEFT, width - RIGHT, whole=True)
    y = Linear(0, most, height - BOTTOM, TOP)
    ends = (x.end - x.start) / len(node_counts)
    bar = min(28.0, ends * 0.8)
    piles = {}
    below = [0] * len(node_counts)
    for style in STYLES:
        path = ""
        for k, counts in enumerate(node_counts):
            if counts[style]:
                left, bottom, top = x(k + 0.5) - bar / 2, y(below[k]), y(below[k] + counts[style])
                path += f"M{short(left)} {short(bottom)}V{short(top)}h{short(bar)}V{short(bottom)}z"
                below[k] += counts[style]
        piles[style] = path
    # at most ten trees are numbered on the axis
    step = -(-len(node_counts) // 10)
    ticks = [Tick(short(x(k + 0.5)), str(party.trees[k].tree)) for k in range(0, len(node_counts), step)]
    frame = Frame(width, height, x, y, "tree", "nodes")
    totals = [sum(counts[style] for counts in node_counts) for style in STYLES]
    words = "{} received, {} own, {} derived, {} hidden.".format
    label = f"Nodes of each tree by how {name} knows them. In all: {words(*totals)}"
    caption = words(f"{count(totals[0])} nodes", *map(count, totals[1:]))
    return Overview(frame, ticks, piles, label, f"Over all trees: {caption}")


def _rows(nodes: dict[int, TreeNode], children: dict[int, list[int]], tops: list[int]) -> dict[int, float]:
    """The middle of each node's box: leaves one below the other, others halfway between their outer children."""
    y: dict[int, float] = {}
    row = 0
    pending = [(number, False) for number in reversed(tops)]
    while pending:
        number, done = pending.pop()
        below = children[number]
        if not below:
            y[number] = MARGIN + (row + 0.5) * ROW
            row += 1
        elif done:
            y[number] = (y[below[0]] + y[below[-1]]) / 2
        else:
            pending.append((number, True))
            pending.extend((child, False) for child in reversed(below))
    assert y.keys() == nodes.keys()
    return y


def _box(node: TreeNode, y: float, column: int, names: Sequence[str]) -> Box:
    text = "hidden" if not node.known else count(node.records)
    split = _split(node)
    classes = "" if node.classes is None else f" ({_classes(node, names)})"
    title = f"node {node.node}, {KNOWN_BY[node.source]}"
    if node.known:
        title += f", {count(node.records)} records{classes}"
    if split:
        title += f", own split {split}"
    total, segments, start = sum(node.classes or []), [], 3.0
    for number, size in enumerate(node.classes or []):
        width = (BOX - 6) * size / total if total else 0.0
        if size:
            segments.append((short(start), f"{width:.2f}", number))
        start += width
    x, top = MARGIN + node.depth * column, y - BOX_HEIGHT / 2 - 3
    return Box(short(x), short(top), node.source or "hidden", node.leaf, text, _brief(node), title, segments)


def _link(parent: TreeNode, y: float, child: TreeNode, end: float, records: int, column: int) -> tuple[str, str, bool]:
    x0, x1 = MARGIN + parent.depth * column + BOX, MARGIN + child.depth * column
    y0, y1 = y - 3, end - 3
    bend = x0 + 22
    path = f"M{short(x0)} {short(y0)}C{short(bend)} {short(y0)} {short(x1 - 24)} {short(y1)} {short(x1)} {short(y1)}"
    part = 0.0 if child.records is None else child.records / max(1, records)
    return path, short(1 + 7 * part), not child.known


def _split(node: TreeNode, digits: int = 12) -> str:
    if node.feature is None:
        return ""
    if node.categories:
        return f"{node.feature} not among {len(node.categories)} categories"
    return f"{node.feature} missing?" if node.threshold is None else f"{node.feature} < {node.threshold:.{digits}g}"


def _brief(node: TreeNode) -> str:
    """A split's text for a picture: a long column name is cut, never the threshold."""
    text = _split(node, digits=4)
    if node.feature is None or len(text) <= LETTERS:
        return text
    end = text[len(node.feature) :]
    return f"{node.feature[: max(1, LETTERS - len(end) - 1)]}…{end}"


def _classes(node: TreeNode, names: Sequence[str]) -> str:
    """Records by class, under the labels' own names."""
    return ", ".join(f"{name}: {count(size)}" for name, size in zip(names, node.classes or [], strict=False))
