"""The report at a glance: a line per party, and the first sentences: what each can tell of the label, in plain words.

A party that takes part still has its own columns, and anybody can name the most frequent class: a sentence begins with
the largest of these figures and its attacks', and no row of a table that an attacker can reach has a larger one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attacks.document import Document, Party
from attacks.features.schema import VictimFigures
from attacks.id2graph.schema import AttackResult
from attacks.networks.schema import CompletionFigures, LabelFigures, NetworkFigures
from attacks.report import known_labels, pivodl, sums
from attacks.report.columns import words
from attacks.report.glossary import ATTACKS, count, score, share, unscored
from attacks.report.scores import best
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


MATCHED = "groups matched to labels by the audit"


class Sentence(NamedTuple):
    """A party and what is said of it, which follows its name. `scored`: by comparison with labels."""

    party: str
    text: str
    scored: bool


class _Reached(NamedTuple):
    """The accuracy of a guess, and how it was made."""

    accuracy: float
    how: str


def sentences(document: Document) -> list[Sentence]:
    """One for each audited party, and of a label holder one for each party whose columns it attacks."""
    said = [_sentence(document, name, party) for name, party in document.on_labels.items()]
    for holder, party in document.parties.items():
        said += [_of_columns(holder, name, figures) for name, figures in (party.victims or {}).items()]
        read = party.columns_read or {}
        said += [Sentence(holder, sums.words(name, figures), False) for name, figures in read.items()]
    return said


def _of_columns(holder: str, victim: str, figures: VictimFigures) -> Sentence:
    """The sentence of a label holder on one party's columns."""
    return Sentence(holder, f"read embeddings of {victim}. {' '.join(words(figures))}", False)


def _sentence(document: Document, name: str, party: Party) -> Sentence:
    if party.network is not None:
        return _of_network(name, party, party.network)
    on_labels = (_of_groups(document, party), known_labels.sentence(party), pivodl.sentence(party))
    parts = [part for part in on_labels if part]
    read = None if party.source_columns is None else pivodl.column_words(party.source_columns)
    said = (*(parts or [_unscored(document, party)]), *([] if read is None else [read[1]]))
    return Sentence(name, " It ".join(said), bool(parts))


def _of_groups(document: Document, party: Party) -> str:
    """The groups of records that a party can make, beside its own columns and the largest class; empty unscored."""
    own, most = party.attacks.get("cl"), largest_class(document)
    trained = max(_by_training(document, party), key=lambda it: it.accuracy, default=None)
    alone = None if own is None or own.accuracy is None else own.accuracy
    if trained is None and alone is None:
        return ""
    named = max((it.named_accuracy for it in party.attacks.values() if it.named_accuracy is not None), default=None)
    how = f"({MATCHED}{'' if named is None else f'; named by published class sizes: {share(named, 1)}'})"
    top = max(-1.0 if trained is None else trained.accuracy, -1.0 if alone is None else alone)
    # a sentence begins with what takes no part if nothing that the party did is better
    if most is not None and not _above(top, most):
        compared = (
            [] if trained is None else [f"groups made with the training ({trained.how}) agree for {_share(trained)}"]
        )
        compared += [] if alone is None else [f"groups of its own columns alone agree for {share(alone, 1)}"]
        return (
            "can name the labels no better than by always naming the most frequent class, which is right for "
            f"{share(most, 1)} of the records: {', '.join(compared)} {how}.{_without_accuracy(party)}"
        )
    largest = "" if most is None else f"; the largest class is {share(most, 1)}"
    begin = "can sort the records into groups that agree with the label for"
    if trained is None:
        return f"{begin} {share(top, 1)} of them by its own columns alone {how}{largest}. No attack used the training."
    if alone is not None and not _above(trained.accuracy, alone):
        return (
            f"{begin} {share(alone, 1)} of them by its own columns alone {how}{largest}. Groups made with the training "
            f"agree no better: for {_share(trained)} ({trained.how})."
        )
    text = f"{begin} {_share(trained)} of them ({trained.how}; {how[1:]}{largest}."
    if alone is not None:
        text += f" Its own columns alone, without this training, give {share(alone, 1)}."
    return text


def _by_training(document: Document, party: Party) -> Iterator[_Reached]:
    """The largest accuracy of each attack on the training, after the number of trees where it is largest."""
    for name, it in party.attacks.items():
        if name != "cl" and (largest := it.largest("accuracy")) is not None:
            trees, accuracy = largest
            yield _Reached(accuracy, f"{ATTACKS[name].label} after {count(trees)} of {count(document.trees)} trees")


def _without_accuracy(party: Party) -> str:
    """Sentences on what the training tells where accuracy, by which rare classes count little, shows nothing."""
    strongest, own, signature = best(party), party.attacks.get("cl"), party.signature
    text = ""
    if strongest is not None:
        beside = "" if own is None or own.v_measure is None else f", of its own columns alone {score(own.v_measure)}"
        text += (
            f" Accuracy hides what groups tell about rare classes: their V-measure is {score(strongest[1].v_measure)}"
        )
        text += f" ({ATTACKS[strongest[0]].label}){beside}."
    if signature.label_entropy and signature.mutual_information is not None:
        told = share(max(0.0, signature.mutual_information - (signature.by_chance or 0.0)), signature.label_entropy)
        text += f" The sets of records that it knows tell {told} of the label's entropy beyond chance."
    return text


def _above(figure: float, floor: float) -> bool:
    """True if a figure is above another one as both are printed."""
    return round(figure, 3) > round(floor, 3)


def _share(it: _Reached) -> str:
    return share(it.accuracy, 1)


def _of_network(name: str, party: Party, figures: NetworkFigures) -> Sentence:
    """The sentence of a party of a split network."""
    parts = []
    if figures.gradient_labels is not None and figures.gradient_labels.inferred is not None:
        parts.append(_inferred(figures.gradient_labels, figures.gradient_labels.inferred.accuracy))
    if grouped := max(_of_gradients(party, figures), key=lambda it: it.accuracy, default=None):
        parts.append(_sorted(grouped, figures.gradient_labels))
    parts += _other_records(figures)
    if parts:
        return Sentence(name, " It ".join(parts), True)
    return Sentence(
        name,
        f"received gradients of {count(figures.epochs)} epochs; without labels the audit cannot say how far they agree "
        "with the label.",
        False,
    )


def _inferred(labels: LabelFigures, accuracy: float) -> str:
    """The labels of other training records that follow from gradients and known labels."""
    how = f"from the gradients that it was sent and {count(labels.known)} known labels"
    if labels.majority is not None and not _above(accuracy, labels.majority):
        return (
            "can name the labels of the other training records no better than by always naming their most frequent "
            f"class, which is right for {share(labels.majority, 1)}: {how} for {share(accuracy, 1)}."
        )
    return (
        f"can tell the labels of {share(accuracy, 1)} of the other training records {how}; the largest class is "
        f"{share(labels.majority or 0.0, 1)}."
    )


def _of_gradients(party: Party, figures: NetworkFigures) -> Iterator[_Reached]:
    """The accuracy of groups without a label, of each epoch and of all; and that of its own columns alone."""
    if (clusters := figures.gradient_clusters) is not None:
        steps = [(clusters.epoch, clusters.accuracy), *((it.epoch, it.accuracy) for it in clusters.by_epoch)]
        for epoch, accuracy in steps:
            if accuracy is not None:
                when = "all epochs together" if epoch is None else f"epoch {count(epoch + 1)}"
                yield _Reached(accuracy, f"gradients of {when}")
    if (own := party.attacks.get("cl")) is not None and own.accuracy is not None:
        yield _Reached(own.accuracy, "by its own columns alone")


def _sorted(reached: _Reached, labels: LabelFigures | None) -> str:
    """The groups that a party makes of the records without a label."""
    most = None if labels is None else labels.majority
    if most is not None and not _above(reached.accuracy, most):
        return (
            "can sort the records, without a label, into groups that agree with it no better than always naming the "
            f"most frequent class, {share(most, 1)}: for {_share(reached)} of them ({reached.how}; {MATCHED})."
        )
    text = f"can sort the records into groups that agree with the label for {_share(reached)} of them"
    return f"{text}, without a label ({reached.how}; {MATCHED})."


def _other_records(figures: NetworkFigures) -> list[str]:
    """The labels of records outside of the training that a party can name, beside what needs no federation."""
    labels, completion = figures.gradient_labels, figures.completion
    named = [] if completion is None else list(_completed(completion))
    if labels is not None and labels.own_model is not None:
        named.append(_Reached(labels.own_model, "a model of its own columns, fitted to the inferred labels"))
    if not named:
        return []
    top = max(named, key=lambda it: it.accuracy)
    # floors: what a party reaches without this training, by the most frequent class or by its own columns
    floors = [] if completion is None else [_Reached(completion.majority, "always naming the most frequent class")]
    for row in [] if completion is None else completion.rows:
        known = f"its own columns and {count(row.known)} labels, without the federation"
        measured = [(row.untrained, known), (row.scratch, known), (row.scratch_all, "the same with all labels")]
        floors += [_Reached(figure.accuracy, how) for figure, how in measured if figure is not None]
    floor = max(floors, key=lambda it: it.accuracy, default=None)
    if floor is not None and not _above(top.accuracy, floor.accuracy):
        return [
            f"can name the labels of other records no better than without the training, {_share(floor)} ({floor.how}): "
            f"what it learned gives {_share(top)} ({top.how})."
        ]
    beside = "" if floor is None else f"; {floor.how}: {_share(floor)}"
    return [f"can name the labels of {_share(top)} of other records ({top.how}{beside})."]


def _completed(completion: CompletionFigures) -> Iterator[_Reached]:
    """The ways to complete the published model."""
    for row in completion.rows:
        yield _Reached(row.completed.accuracy, f"its published model, completed with {count(row.known)} labels")


def _unscored(document: Document, party: Party) -> str:
    """The sentence of a party without a score."""
    known, every = known_nodes(party)
    text = (
        f"knows the records of {count(known)} of {count(every)} nodes, which part the records into "
        f"{count(party.signature.signatures)} sets; "
    )
    if not document.labelled:
        return text + "without labels the audit cannot say how far groups made of them agree with the label."
    if unscored(document):
        return text + "the label is a number, and what these sets tell about numbers is not measured."
    return text + "no attack has made groups of them, so how far these would agree with the label is not known."
