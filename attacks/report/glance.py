"""The report at a glance: a line per party."""

from __future__ import annotations

from typing import NamedTuple

from treetap.attacks.document import Document, Party
from treetap.attacks.id2graph.schema import AttackResult
from treetap.attacks.report.glossary import ATTACKS, count, score, share
from treetap.attacks.report.scores import best
from treetap.pages.pictures import Linear, short
from treetap.trees.ensemble import ROOT

#: Width of the small picture of CL and the best attack on an axis from 0 to 1.
WIDTH = 120


class Glance(NamedTuple):
    """One party's line; `cl_at` and `best_at` are positions in the small picture, empty without a score."""

    party: str
    cl: str
    best: str
    attack: str
    after: str
    style: str
    cl_at: str
    best_at: str
    bound: str
    information: str
    chance: str
    known: str
    hidden: str
    signatures: str


def glances(document: Document) -> list[Glance]:
    """The lines of all feature parties."""
    return [glance(name, party, document.trees) for name, party in document.on_labels.items()]


def glance(name: str, party: Party, trees: int) -> Glance:
    """One party's line."""
    strongest, alone = best(party), party.attacks.get("cl")
    base = None if alone is None else alone.v_measure
    top = None if strongest is None else strongest[1].v_measure
    x = Linear(0, 1, 6, WIDTH - 6)
    known, every = known_nodes(party)
    signature = party.signature
    information, chance = (
        share(nats, signature.label_entropy) if nats is not None and signature.label_entropy else "–"
        for nats in (signature.mutual_information, signature.by_chance)
    )
    return Glance(
        party=name,
        cl=score(base),
        best=score(top),
        attack="" if strongest is None else ATTACKS[strongest[0]].label,
        after="" if strongest is None else _after(strongest[1], base, trees),
        style="" if strongest is None else ATTACKS[strongest[0]].style,
        cl_at="" if base is None else short(x(base)),
        best_at="" if top is None else short(x(top)),
        bound=score(max((row.nats for row in party.bounds), default=None)),
        information=information,
        chance=chance,
        known=count(known),
        hidden=count(every - known),
        signatures=count(signature.signatures),
    )


def _after(strongest: AttackResult, base: float | None, trees: int) -> str:
    """The number of trees of the best attack, and a word where the own columns alone do as well."""
    more = strongest.v_measure is None or base is None or round(strongest.v_measure, 3) > round(base, 3)
    return f"after {count(strongest.after_trees)} of {count(trees)} trees{'' if more else '; no better than CL'}"


def known_nodes(party: Party) -> tuple[int, int]:
    """Of all trees the nodes whose records the party knows, and all that it knows of; without the roots."""
    nodes = [node for tree in party.trees for node in tree.nodes if node.node != ROOT]
    return sum(node.known for node in nodes), len(nodes)


def largest_class(document: Document) -> float | None:
    """The share of the largest class among all records, from any root; None without labels."""
    for party in document.parties.values():
        for tree in party.trees:
            for node in tree.nodes:
                if node.node == ROOT and node.classes and sum(node.classes):
                    return max(node.classes) / sum(node.classes)
    return None
