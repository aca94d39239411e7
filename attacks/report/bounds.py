"""Information in a party's known nodes: bounds of single ones, and the information of all together (the signature)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import median

from treetap.attacks.document import BoundRow, Document, Party, Source
from treetap.attacks.report.glossary import SOURCES, count, score, share, unscored
from treetap.pages.pictures import (
    BOTTOM,
    LEFT,
    LINES,
    RIGHT,
    TOP,
    Frame,
    Linear,
    Lines,
    Log,
    Tick,
    lines,
    short,
    thinned,
)
from treetap.pages.section import Key, Section, Table, Text

WIDTH, HEIGHT = LINES
#: Distances in pixels within which points are drawn once: the first that leaves at most `MOST` points, or the last. A
#: point is five pixels wide, so the picture stays the same and the file small.
GRIDS, MOST = (1.0, 2.0, 3.0, 4.0), 1500
SOURCE_ORDER: tuple[Source, ...] = ("received", "own", "difference")
#: A point of each source, drawn from its centre: a dot, a square (both by line caps), a diamond.
POINTS: dict[Source, str] = {"received": "h0", "own": "h0", "difference": "m0-3.2l3.2 3.2-3.2 3.2-3.2-3.2z"}


@dataclass(frozen=True)
class Strip:
    """One picture: a path of points by source within a frame; `ticks` of the x axis, which may be categories.

    `limit`: the height of a line across and its words, at the `side` of the picture.
    """

    frame: Frame
    x_ticks: list[Tick]
    clouds: dict[Source, str]
    label: str
    limit: tuple[str, str] | None
    side: str


JOINT_HEADS = ("trees", "signatures", "of the records", "information", "of the entropy", "by chance")
DEPTH_HEADS = ("depth", "nodes", "received", "own", "derived", "median", "largest")
TOP_HEADS = ("tree", "node", "depth", "records", "known by", "bound", "node", "complement")


def bounds(document: Document) -> Section:
    """The section of the bounds of single nodes."""
    unscored_here, on_labels = unscored(document), document.on_labels
    # the top of all axes in nats is the same for all parties
    values = [row.nats for party in on_labels.values() for row in party.bounds]
    values += [party.signature.label_entropy or 0.0 for party in on_labels.values()]
    top = max(values, default=0.0) * 1.06 or 1.0
    parts = {name: pictures(document, name, party, top) for name, party in on_labels.items()}
    none = Text("No node but the root is known, so there is no bound.", style="soft")
    return Section(
        "Bounds, node by node",
        [
            Text(
                "How far the classes in a known node, or in its complement, differ from the classes of all records: "
                "the larger of the two divergences, in nats (1 nat = 1.44 bits). 0: the node carries no information "
                "on the label. The **label entropy** is the mean information of one record's label; a node of a rare "
                "class can lie above it. The bound is **per node, not joint**: bounds do not add up, and two nodes "
                "at 0 can reveal the label together."
            ),
            Text(
                "A node that was **received** came in a message, and a defence can withhold it. The party's **own** "
                "and **derived** nodes came in none."
            ),
            Key("source", list(SOURCES.items())),
            Text("There are no bounds: see the note at the top." if unscored_here else "", style="notice"),
            *(Section(name, of_party or [none]) for name, of_party in parts.items() if of_party or not unscored_here),
        ],
        "bounds",
        where="page",
    )


def pictures(document: Document, name: str, party: Party, top: float) -> list[object]:
    """The bounds of one party's known nodes, on axes of `top` nats; nothing without known nodes."""
    rows = party.bounds
    if not rows:
        return []
    y = Linear(0, top, HEIGHT - BOTTOM, TOP)
    size = Log(min(row.records for row in rows), document.records, LEFT, WIDTH - RIGHT)
    depths = sorted({row.depth for row in rows})
    band = (WIDTH - LEFT - RIGHT) / len(depths)

    def by_depth(row: BoundRow) -> float:
        start = LEFT + band * (depths.index(row.depth) + 0.12 + 0.76 * SOURCE_ORDER.index(row.source) / 3)
        # a pseudo-random offset by the node's number: the same document gives the same picture
        return start + 0.76 * band / 3 * math.fmod((row.tree * 0.618034 + row.node * 0.754878), 1.0)

    entropy = party.signature.label_entropy
    limit = None if entropy is None else (short(y(entropy)), f"label entropy {score(entropy)}")
    frame = Frame(WIDTH, HEIGHT, size, y, "records in the node", "nats")
    bands = [Tick(short(LEFT + band * (k + 0.5)), str(depth)) for k, depth in enumerate(depths)]
    label = f"Bound of each node known to {name}"
    by_depths, largest = [], []
    for depth in depths:
        here = [row for row in rows if row.depth == depth]
        by_source = [count(sum(row.source == source for row in here)) for source in SOURCE_ORDER]
        values = [row.nats for row in here]
        by_depths.append([str(depth), count(len(here)), *by_source, score(median(values)), score(max(values))])
    for row in sorted(rows, key=lambda row: (-row.nats, row.tree, row.node))[:10]:
        known = "derived" if row.source == "difference" else row.source
        place = [str(row.tree), str(row.node), str(row.depth), count(row.records), known]
        largest.append([*place, score(row.nats), score(row.node_nats), score(row.complement_nats)])
    return [
        Section(
            "",
            [
                Strip(
                    *(frame, size.ticks(), _clouds(rows, frame, lambda row: size(row.records))),
                    *(f"{label} by its number of records", limit, "end"),
                ),
                Strip(
                    *(replace(frame, x_name="depth of the node"), bands, _clouds(rows, frame, by_depth)),
                    *(f"{label} by its depth", limit, "start"),
                ),
            ],
            style="grid",
        ),
        Table(
            *(DEPTH_HEADS, by_depths),
            *("Bounds by depth, nats",),
            folded=True,
        ),
        Table(
            *(TOP_HEADS, largest),
            *("The nodes with the largest bounds, nats",),
            folded=True,
        ),
    ]


def together(document: Document) -> Section:
    """The section of the information of all nodes."""
    drawn = {name: joint(document, name, party) for name, party in document.on_labels.items()}
    return Section(
        "All nodes together",
        [
            Text(
                "A record's **signature** is the tuple of known nodes that it is in, one per tree. The information "
                "between signature and label, as counted on these records, measures the joint leakage of all nodes: "
                "the whole label entropy (1) means that no two records of different classes look alike. It grows by "
                "itself as signatures become many: **by chance** is its mean under random permutations of the "
                "labels. Only information above that line was learned."
            ),
            Section(
                "",
                [picture or Text("{} saw no complete tree.", name, style="soft") for name, picture in drawn.items()],
                style="grid",
            ),
        ],
        "together",
        where="page",
    )


def joint(document: Document, name: str, party: Party) -> Lines | None:
    """The signature's information and number by number of trees, as shares; None without any tree."""
    steps = party.signature.by_tree
    if not steps:
        return None
    entropy = party.signature.label_entropy
    records = party.records or document.records
    series = {("signatures\n÷ records", "parts"): [step.signatures / max(1, records) for step in steps]}
    informations = [step.mutual_information for step in steps]
    # shares of the entropy need labels of more than one class
    if entropy and all(value is not None for value in informations):
        series["by chance\n÷ entropy", "chance"] = [(step.by_chance or 0.0) / entropy for step in steps]
        series["information\n÷ entropy", "information"] = [(value or 0.0) / entropy for value in informations]
    rows = [
        [
            str(k + 1),
            count(steps[k].signatures),
            share(steps[k].signatures, records),
            score(steps[k].mutual_information),
            share(steps[k].mutual_information or 0.0, entropy) if entropy else "–",
            share(steps[k].by_chance or 0.0, entropy) if entropy else "–",
        ]
        for k in thinned(len(steps))
    ]
    table = Table(JOINT_HEADS, rows, "Signatures by number of trees, information in nats")
    label = f"Signatures and information of {name} by number of trees"
    return lines(series, table, ("trees used", "share"), name, label, rows=2)


def _clouds(rows: Iterable[BoundRow], frame: Frame, place: Callable[[BoundRow], float]) -> dict[Source, str]:
    """The points of each source as one path."""
    points = [(row.source, place(row), frame.y(row.nats)) for row in rows]
    for grid in GRIDS:
        kept = {(source, round(x / grid), round(y / grid)): (x, y) for source, x, y in reversed(points)}
        if len(kept) <= MOST:
            break
    paths = {  # received nodes are drawn on top
        source: "".join(
            f"M{short(x)} {short(y)}{POINTS[source]}" for (of, _, _), (x, y) in kept.items() if of == source
        )
        for source in reversed(SOURCE_ORDER)
    }
    return {source: path for source, path in paths.items() if path}
