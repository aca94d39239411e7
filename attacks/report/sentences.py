"""The first sentences of a report: what each party can tell of the label, in plain words."""

from __future__ import annotations

from typing import NamedTuple

from attacks.document import Document, Party
from attacks.features.results import VictimFigures
from attacks.networks.results import NetworkFigures
from attacks.report.columns import words
from attacks.report.glossary import count, share, unscored
from attacks.report.scores import best
from attacks.report.summary import known_nodes, largest_class


class Sentence(NamedTuple):
    """A party and what is said of it, which follows its name. `scored`: by comparison with labels."""

    party: str
    text: str
    scored: bool


def sentences(document: Document) -> list[Sentence]:
    """One for each audited party, and of a label holder one for each party whose columns it attacks."""
    found = [_sentence(document, name, party) for name, party in document.on_labels.items()]
    for holder, party in document.parties.items():
        found += [_of_columns(holder, name, figures) for name, figures in (party.victims or {}).items()]
    return found


def _of_columns(holder: str, victim: str, figures: VictimFigures) -> Sentence:
    """The sentence of a label holder on one party's columns."""
    return Sentence(holder, f"read embeddings of {victim}. {' '.join(words(figures))}", False)


def _sentence(document: Document, name: str, party: Party) -> Sentence:
    if party.network is not None:
        return _of_network(name, party.network)
    found, largest = best(party), largest_class(document)
    if found is None or found[1].accuracy is None or largest is None:
        return Sentence(name, _unscored(document, party), False)
    result, own = found[1], party.attacks.get("cl")
    named = result.named_accuracy
    sizes = "" if named is None else f"; named by published class sizes: {share(named, 1)}"
    text = (
        f"can sort the records into groups that agree with the label for {share(found[1].accuracy, 1)} of them (groups "
        f"matched to labels by the audit{sizes}); the largest class is {share(largest, 1)}."
    )
    if own is not None and own.accuracy is not None:
        text += f" Its own columns alone, without this training, give {share(own.accuracy, 1)}."
    return Sentence(name, text, True)


def _of_network(name: str, figures: NetworkFigures) -> Sentence:
    """The sentence of a party of a split network."""
    labels, clusters = figures.gradient_labels, figures.gradient_clusters
    parts = []
    if labels is not None and labels.inferred is not None:
        parts.append(
            f"can tell the labels of {share(labels.inferred.accuracy, 1)} of the other training records from the "
            f"gradients that it was sent and {count(labels.known)} known labels; the largest class is "
            f"{share(labels.majority or 0.0, 1)}."
        )
    if clusters is not None and clusters.accuracy is not None:
        begin = "Without a label it can" if parts else "can"
        parts.append(
            f"{begin} sort the records into groups that agree with the label for "
            f"{share(clusters.accuracy, 1)} of them (groups matched to labels by the audit)."
        )
    if parts:
        return Sentence(name, " ".join(parts), True)
    return Sentence(
        name,
        f"received gradients of {count(figures.epochs)} epochs; without labels the audit cannot say how far they agree "
        "with the label.",
        False,
    )


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
