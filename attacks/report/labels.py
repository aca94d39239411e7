"""What feature parties can tell of labels by trees: a line a party, and the scores of attacks that group records;
and attacks by few known labels, or none, beside the party's own columns and reassigned labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from treetap.attacks.document import AttackName, Document, Party
from treetap.attacks.id2graph.schema import (
    AttackResult,
    Averaged,
    DrawnLabels,
    KnownLabelFigures,
    KnownLabelResult,
    RankedBy,
    RankedResult,
)
from treetap.attacks.registry import Needs, rows
from treetap.attacks.report.glossary import ATTACKS, count, left_out, score, seconds, share, unscored
from treetap.pages.pictures import Lines, dots, lines, thinned
from treetap.pages.section import Cell, Entry, Key, Section, Table, Terms, Text
from treetap.trees.ensemble import ROOT

GLANCE_HEADS = (
    *("party", "CL", "best attack", "V-measure, 0 to 1", "largest bound of a node, nats", "label entropy, nats"),
    *("information of all nodes ÷ label entropy", "the same by chance", "signatures", "nodes known", "hidden"),
)
SCORE_HEADS = (
    *("V-measure", "after trees", "homogeneity", "completeness", "ARI", "NMI", "accuracy"),
    *("named by sizes", "groups", "clusters", "time"),
)


def at_a_glance(document: Document) -> Section:
    """The lines of all feature parties."""
    rows = [_glance(name, party, document.trees) for name, party in document.on_labels.items()]
    title = "Labels, as feature parties can tell them"
    words = Text(
        "CL (small dot) uses the party's own columns alone; the best attack (large dot) also uses the training's "
        "messages; its figure is the largest over the number of trees, since an attacker may stop after any tree. The "
        "distance is this attack's gain from the training. Information grows by itself with the number of signatures: "
        "only what exceeds chance was learned. The counts of nodes leave out the root, which is all records; hidden "
        "nodes must exist, their records are unknown to the party; nodes below hidden ones are not counted.",
        style="soft",
    )
    return Section(title, [Table(GLANCE_HEADS, rows, title, words=(3,), style="cards"), words] if rows else [])


def _glance(name: str, party: Party, trees: int) -> list[Entry]:
    """One party's line under `GLANCE_HEADS`."""
    strongest, alone, signature = best(party), party.attacks.get("cl"), party.signature
    base = None if alone is None else alone.v_measure
    figure = "–"
    top: str | Cell = "–"
    placed: list[tuple[str, float | None]] = [("cl", base)]
    if strongest is not None:
        attack, result = ATTACKS[strongest[0]], strongest[1]
        figure = score(result.v_measure)
        more = base is None or figure > score(base)
        after = f"{attack.label}, after {count(result.after_trees)} of {count(trees)} trees"
        top = Cell(figure, after if more else f"{after}; no better than CL")
        placed.insert(0, (attack.style, result.v_measure))
    nodes = [node for tree in party.trees for node in tree.nodes if node.node != ROOT]
    known = sum(node.known for node in nodes)
    entropy = signature.label_entropy
    told = (signature.mutual_information, signature.by_chance)
    return [
        *(name, score(base), top, dots(placed, joined=True) if figure != "–" or base is not None else "–"),
        *(score(max((row.nats for row in party.bounds), default=None)), score(entropy)),
        *(share(nats, entropy) if nats is not None and entropy else "–" for nats in told),
        *(count(signature.signatures), count(known), count(len(nodes) - known)),
    ]


def attacks(document: Document) -> Section:
    """The section of the attacks that group records."""
    reason, rows, parameters, marked = unscored(document), list[list[Entry]](), list[list[str]](), list[int]()
    for name, party in document.on_labels.items():
        top = best(party)
        for attack, result in party.attacks.items():
            if top is not None and top[0] == attack:
                marked.append(len(rows))
            look = ATTACKS[attack]
            used = ", ".join(
                f"{key} {value if isinstance(value, str) else json.dumps(value)}"
                for key, value in result.parameters.items()
            )
            rows.append([name, Cell(look.label, style=look.style), *figures(result)])
            parameters.append([name, look.label, used or "none"])
    # the top of all V-measure axes is the same for all parties, so that pictures are comparable
    values = [
        value
        for party in document.parties.values()
        for attack in party.attacks.values()
        for value in [attack.v_measure, *(attack.by_tree or [])]
        if value is not None
    ]
    ceiling = next((top for top in (0.25, 0.5) if max(values, default=1.0) <= top * 0.98), 1.0)
    largest = _largest_class(document)
    return Section(
        "Attacks on the labels",
        [
            Text(
                "**V-measure** compares an attack's groups of records with the true classes: the harmonic mean of "
                "homogeneity (a group holds one class) and completeness (a class lies in one group). 0: the groups are "
                "independent of the classes; 1: they are the classes, up to their names. It is not corrected for "
                "chance; ARI is. An attack that scores no higher than **CL** gained nothing here from the training."
            ),
            Text("Nothing is scored here: see the note at the top." if reason else "", style="notice"),
            Section(
                "", [curves(document, *of_party, ceiling) for of_party in document.on_labels.items()], style="grid"
            ),
            *(
                Text("No attack was run on the view of {}.", name, style="notice", where="both")
                for name, party in document.on_labels.items()
                if not party.attacks
            ),
            *(
                Text("{}: ", name, said=f"{ATTACKS[attack].label} {why}.", style="notice", where="both")
                for name, party in document.on_labels.items()
                for attack, why in (party.reasons or {}).items()
            ),
            Table(("party", "attack", *SCORE_HEADS), rows, "Attacks on the labels: all scores", names=2, best=marked),
            Text(
                f"{'' if reason else 'Shaded: a party’s best attack beside CL. '}Each row has the figures after the "
                "number of trees with the largest V-measure. Accuracy is that of the best matching of groups and "
                "classes, one to one; **named by sizes** the same with groups matched to classes by the order of their "
                f"sizes{largest}. Groups are communities or components before k-means.",
                style="soft",
            ),
            Terms({attack.label: attack.meaning for attack in ATTACKS.values()}),
            Table(
                ("party", "attack", "parameters"),
                parameters,
                "Parameters of each attack",
                names=2,
                words=(2,),
                folded=True,
                where="page",
            ),
        ],
        "attacks",
    )


def best(party: Party) -> tuple[AttackName, AttackResult] | None:
    """The attack with the highest V-measure after any number of trees, except CL; None without scores."""
    scored = [pair for pair in party.attacks.items() if pair[0] != "cl" and pair[1].v_measure is not None]
    return max(scored, key=lambda pair: pair[1].v_measure or 0.0, default=None)


def _largest_class(document: Document) -> str:
    """Words on the share of the largest class among all records, from any root; empty without labels."""
    for party in document.parties.values():
        for tree in party.trees:
            for node in tree.nodes:
                if node.node == ROOT and node.classes and sum(node.classes):
                    part = max(node.classes) / sum(node.classes)
                    return f"; always naming the largest class would give {100 * part:.1f} %"
    return ""


def curves(document: Document, name: str, party: Party, top: float) -> Lines | None:
    """V-measure against the number of trees; None if no attack of this party is scored."""
    every: dict[AttackName, Sequence[float | None]] = {}
    for attack, result in party.attacks.items():
        # CL uses no tree and is constant; of a course that was not computed the last value is there alone
        course = result.by_tree or [*[None] * (document.trees - 1), result.v_measure]
        every[attack] = [result.v_measure] * max(1, document.trees) if attack == "cl" else course
    series = {attack: values for attack, values in every.items() if any(value is not None for value in values)}
    if not series:
        return None
    rows = [
        [str(k + 1), *(score(values[k] if k < len(values) else None) for values in series.values())]
        for k in thinned(max(map(len, series.values())))
    ]
    table = Table(["trees", *(ATTACKS[attack].label for attack in series)], rows, "V-measure by number of trees")
    looks = {(ATTACKS[attack].brief, ATTACKS[attack].style): values for attack, values in series.items()}
    label = f"V-measure of each attack of {name} by number of trees"
    return lines(looks, table, ("trees used", "V-measure"), name, label, top=top)


def figures(result: AttackResult) -> list[str]:
    """An attack's figures in the order of `SCORE_HEADS`."""
    scores = (result.homogeneity, result.completeness, result.ari, result.nmi, result.accuracy)
    sizes = (score(result.named_accuracy), count(result.groups), count(result.clusters), seconds(result.seconds))
    return [score(result.v_measure), count(result.after_trees), *map(score, scores), *sizes]


# Attacks by few known labels, or none, beside the party's own columns and reassigned labels.

LABEL_HEADS = (
    *("party", "known labels", "draws", "classes without one", "records named", "left out", "nodes"),
    *("rarest class", "named first", "its share", "largest class"),
)
#: Field of a result → what the attack goes by, and its class in the style sheet.
KINDS = {
    "nodes": ("nodes", "graph"),
    "columns": ("own columns", "cl"),
    "both": ("both", "unicl"),
    "reassigned": ("nodes, reassigned", "received"),
    "reassigned_columns": ("own columns, reassigned", "chunked"),
}
HEADS = ("party", "attack", "figure", "0 to 1", "guessing", *(label for label, _ in KINDS.values()))
#: What orders records without a label → its words.
RANKED_BY: dict[RankedBy, str] = {
    "splits": "own splits",
    "splits-alike": "own splits, trees alike",
    "leaves": "leaves",
    "nodes": "nodes",
    "columns": "own columns alone",
    "columns-second": "own columns alone, second component",
}
RANKED_HEADS = (
    *("party", "attack", "by", "AUC", "precision of the first", "accuracy", "side told by sizes", "by labels"),
    "V-measure",
)
#: Terms of the section.
TERMS = {
    "Nodes": "the nodes of which the party knows the records, over all trees; small ones count most.",
    "Own columns": "the same attack without the training: what the party could do anyway.",
    "Reassigned": (
        "the control. Labels are exchanged between records that look alike in the party's own columns, after the "
        "training, whose nodes stay. What the attack by nodes still scores comes from own columns and was there before "
        "the training; what it scores more on the true labels, the training told. Over the first five draws."
    ),
    "AUC": "of several classes the mean over the classes, each against all others; 0.5 is guessing.",
    "Side told": "of two classes, whether their sizes say which end of the order is the rarer class, and the share of "
    "draws whose known labels do. The figures are those of the right side, of several classes that of each; a verdict "
    "counts all sides as tries.",
    "V-measure": "of groups by an order: k-means, or as many records at one end as the rarest class has.",
    "Precision of the first": "the share of the rarest class among the records that the attack names first for it.",
}


def known_labels(document: Document) -> Section | None:
    """The section of a training of trees; None of another job."""
    parties = {name: party.known_labels for name, party in document.parties.items() if party.known_labels is not None}
    if not parties:
        return None
    figures = [
        row
        for name, known in parties.items()
        if known.drawn is not None
        for attack, result in (("neighbours", known.known_neighbours), ("regression", known.known_regression))
        if result is not None
        for row in _rows(name, attack, result, known.drawn)
    ]
    drawn = {(known.drawn.known, known.drawn.draws) for known in parties.values() if known.drawn is not None}
    title = "; ".join(["Few known labels", *(f"{known} in each of {draws} draws" for known, draws in sorted(drawn))])
    labels = [_labels(name, known.drawn) for name, known in parties.items() if known.drawn is not None]
    scored = [
        Key("dot", [(style, label) for label, style in KINDS.values()]),
        Table(HEADS, figures, title, names=3, words=(3,), style="cards"),
        Text(
            "Means over the draws of the known labels, ± the standard deviation. The line is **guessing**: 0.5, the "
            "share of the rarest class, and that of the largest one.",
            style="soft",
        ),
        Table(
            *(RANKED_HEADS, [row for name, known in parties.items() for row in _ranked(name, known)]),
            *("Orders of records without a label", 3),
        ),
        Table(LABEL_HEADS, labels, "Known labels by party", where="page"),
        Terms({row.label: f"{row.line}." for row in rows(Needs.KNOWN_LABELS).values()} | TERMS),
    ]
    return Section(
        "Few known labels, or none",
        [
            Text(
                "A party that knows the labels of few records names those of the others by the nodes in which its "
                "records lie, over all trees. The same attack by the party's **own columns alone** takes no part in "
                "the training. The control **reassigns** labels after the training, by own columns alone: what the "
                "attack by nodes scores there was there before the training. Without any label a party puts records "
                "in order by what its own splits, or the nodes that it knows, have in common."
            ),
            *(scored if figures else []),
            *left_out({name: known.reasons for name, known in parties.items()}),
        ],
        "known",
    )


def _ranked(name: str, known: KnownLabelFigures) -> Iterator[list[str]]:
    """The orders of records under `RANKED_HEADS`."""
    for attack in rows(Needs.KNOWN_LABELS).values():
        result = getattr(known, attack.name.replace("-", "_"))
        if not isinstance(result, RankedResult):
            continue
        for kind, it in result.by.items():
            by_sizes = "–" if it.by_sizes is None else "yes" if it.by_sizes else "no"
            by_known = "–" if it.by_known is None else share(it.by_known, 1)
            left = f" ({count(result.left_out)} left out)" if result.left_out and kind.startswith("splits") else ""
            figures = (score(it.auc), score(it.precision), score(it.accuracy), by_sizes, by_known, score(it.v_measure))
            yield [name, attack.label, f"{RANKED_BY[kind]}{left}", *figures]


def _rows(name: str, attack: str, result: KnownLabelResult, drawn: DrawnLabels) -> Iterator[list[Entry]]:
    """Three figures of an attack under `HEADS`, each with what guessing reaches."""
    # each kind of rows that the attack went by
    namings = {key: getattr(result, key) for key in KINDS if getattr(result, key) is not None}
    for field, label, guessed in (
        ("auc", "AUC", 0.5),
        ("precision", f"precision of the first {count(drawn.first)}", drawn.chance),
        ("accuracy", "accuracy", drawn.majority),
    ):
        by: dict[str, Averaged] = {key: getattr(naming, field) for key, naming in namings.items()}
        cells = [_figure(by[key]) if key in by else "–" for key in KINDS]
        placed = dots(((KINDS[key][1], by[key].mean) for key in reversed(KINDS) if key in by), limit=guessed)
        yield [name, attack, label, placed, score(guessed), *cells]


def _figure(averaged: Averaged) -> str:
    spread = "" if averaged.deviation is None else f" ± {score(averaged.deviation)}"
    return f"{score(averaged.mean)}{spread}"


def _labels(name: str, drawn: DrawnLabels) -> list[str]:
    """A party's known labels under `LABEL_HEADS`."""
    return [
        *(name, count(drawn.known), count(drawn.draws), f"{drawn.unseen:.1f}", count(drawn.records)),
        *(count(drawn.left_out), count(drawn.nodes), drawn.rarest, count(drawn.first)),
        *(share(drawn.chance, 1), share(drawn.majority, 1)),
    ]
