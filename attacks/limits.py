"""Limits on what an audit may find, for a pipeline: `treetap audit --fail-above LIMIT=VALUE`.

An attacker may stop after any tree, so the largest figure over the number of trees counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from attacks.document import AttackName, AttackResult, Document, Party
from attacks.features.results import VictimFigures
from attacks.features.strength import attribute_figure, record_strength
from attacks.registry import ATTACKS
from treetap.errors import BadInput

#: Limit → what it is on. CL needs no training, so the limits on several attacks leave it out.
GENERAL = {
    "any": "the V-measure of every attack but cl",
    "accuracy": "the accuracy of every attack but cl",
    "information": "the share of the label's entropy that all known nodes of a party reveal together, chance included",
}
#: The same of split networks.
OF_NETWORKS = {
    "gradient-clusters": "the V-measure of the clusters of gradients",
    "gradient-labels": "the share of other training labels that follow from gradients and the known ones",
}
#: The same of a label holder's attacks on columns, which no labels score.
ON_COLUMNS = {
    "attributes": "the accuracy of the guess of any column, of numbers its R²",
    "decode": "by an inverse network: SSIM of images; of tables the share of the mean record's error that is removed",
    "match": "the same by a surrogate of the feature party's model",
    "match-exact": "the same by the feature party's published model",
}
V_MEASURE, ACCURACY = "a V-measure", "an accuracy"
#: The same of jobs of pivodl.
OF_PIVODL = {"label_guess": "the AUC of the guess of other parties' labels by received leaf weights"}


def parse(texts: Sequence[str]) -> dict[str, float]:
    """Limit → value, from texts such as `any=0.4`.

    Raises:
        BadInput: an unknown limit, one that is named twice, or a value outside 0 to 1.
    """
    limits: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if not 0 <= limit <= 1:
            raise BadInput(f"--fail-above {text!r}: say LIMIT=V with V from 0 to 1, as in any=0.4")
        every = (*GENERAL, *ATTACKS, *OF_PIVODL, *OF_NETWORKS, *ON_COLUMNS)
        if name not in every:
            known = ", ".join(every)
            raise BadInput(f"--fail-above {text!r}: unknown limit {name!r}; known are {known}")
        if name in limits:
            raise BadInput(f"--fail-above names {name} twice")
        limits[name] = limit
    return limits


def exceeded(document: Document, limits: Mapping[str, float]) -> list[str]:
    """Figures above their limit, a line each. `id2graph` stands for every form of it.

    Raises:
        BadInput: an attack was not run, or nothing was scored.
    """
    found: list[str] = []
    for name, limit in limits.items():
        if name in ON_COLUMNS:
            found += _on_columns(document, name, limit)
            continue
        if document.classes is None:
            why = "the label is a number, not a class" if document.labelled else "no [label] is given"
            raise BadInput(f"--fail-above {name}: nothing is scored: {why}")
        if name in OF_NETWORKS or (document.of_network and name in ("any", "accuracy")):
            found += _of_networks(document, name, limit)
            continue
        if document.of_network and name == "information":
            raise BadInput(f"--fail-above information: job {document.job} has no trees, whose nodes this limit is on")
        if name in ("information", "label_guess"):
            found += _informed(document, limit) if name == "information" else _guessed(document, limit)
            continue
        kind: Literal["v_measure", "accuracy"] = "accuracy" if name == "accuracy" else "v_measure"
        what = ACCURACY if name == "accuracy" else V_MEASURE
        for party, attack, result in _results(document, name):
            figure = result.largest(kind)
            if figure is not None and figure[1] > limit:
                trees, value = figure
                after = "" if attack == "cl" else f" after {trees} of {document.trees} trees"
                found.append(f"{party}: {attack} reaches {what} of {value:.3f}{after}, above {limit:g}")
    return found


def _results(document: Document, name: str) -> list[tuple[str, AttackName, AttackResult]]:
    """Party, attack and result of every attack to which a limit applies."""

    def meant(attack: str) -> bool:
        if name in GENERAL:
            return attack != "cl"
        return attack == name or (name == "id2graph" and attack.startswith("id2graph-"))

    rows = [
        (party, attack, result)
        for party, each in document.parties.items()
        for attack, result in each.attacks.items()
        if meant(attack)
    ]
    if not rows:
        what = "no attack but cl" if name in GENERAL else "this attack"
        was = "was run" if name in GENERAL else "was not run"
        raise BadInput(f"--fail-above {name}: {what} {was}; name attacks in --attacks or in audit.toml")
    return rows


def _of_networks(document: Document, name: str, limit: float) -> Iterator[str]:
    """Figures of a split network above a limit; `any` is on V-measures, `accuracy` on shares of records named right."""
    if not document.of_network:
        raise BadInput(f"--fail-above {name}: job {document.job} is one of {document.protocol}, no split network")
    found = [
        (f"{party}: {attack} reaches {measure}", value)
        for party, each in document.parties.items()
        for attack, measure, value in _figures_of(each)
        if name == attack or (name == "any" and measure == V_MEASURE) or (name == "accuracy" and measure == ACCURACY)
        if value is not None and (name != "gradient-clusters" or measure == V_MEASURE)
    ]
    if not found:
        raise BadInput(f"--fail-above {name}: no attack has such a figure; the document's reasons say why")
    yield from (f"{what} of {value:.3f}, above {limit:g}" for what, value in found if value > limit)


def _figures_of(party: Party) -> Iterator[tuple[str, str, float | None]]:
    """Attack, measure and figure of the attacks on a split network that a limit can be on."""
    if party.network is None:
        return
    clusters, labels = party.network.gradient_clusters, party.network.gradient_labels
    if clusters is not None:
        yield "gradient-clusters", V_MEASURE, clusters.v_measure
        yield "gradient-clusters", ACCURACY, clusters.accuracy
    if labels is not None and labels.inferred is not None:
        yield "gradient-labels", ACCURACY, labels.inferred.accuracy


def _on_columns(document: Document, name: str, limit: float) -> Iterator[str]:
    """Figures of a label holder's attacks on columns above a limit, each on the scale that tells most."""
    if not document.victims:
        raise BadInput(
            f"--fail-above {name}: no label holder's attacks on columns are in this audit: name whose in [[victim]]"
        )
    found = [(victim, *each) for victim, figures in document.victims.items() for each in _figures_on(figures, name)]
    if not found:
        raise BadInput(
            f"--fail-above {name}: nothing is scored: the attack was not run, or [[victim]] has no truth = …"
        )
    for victim, what, value in found:
        if value > limit:
            yield f"{victim}: {what} of {value:.3f}, above {limit:g}"


def _figures_on(figures: VictimFigures, name: str) -> Iterator[tuple[str, float]]:
    """Sentence and figure of each result of an attack on columns that is scored."""
    if name == "attributes":
        for each in figures.attributes:
            if each.headline is not None and (value := attribute_figure(each, each.headline)) is not None:
                measure = ACCURACY if each.kind == "class" else "an R²"
                yield f"attributes, {each.headline}, guesses {each.name} with {measure}", value
        return
    for guess in figures.reconstructions:
        if guess.attack == name and guess.headline is not None:
            scores, value = getattr(guess, guess.headline), record_strength(guess, guess.headline)
            what = "removes a share of the mean record's error" if scores.ssim is None else "reaches an SSIM"
            if value is not None:
                yield f"{name}, {guess.headline}, {what}", value


def _guessed(document: Document, limit: float) -> Iterator[str]:
    """Label guesses above a limit; an AUC below one half counts as that of the inverted guess."""
    guesses = {name: party.label_guess for name, party in document.parties.items() if party.label_guess is not None}
    if not guesses:
        raise BadInput(f"--fail-above label_guess: job {document.job} is one of {document.protocol}, not of pivodl")
    for name, guess in guesses.items():
        ways = {"as received": guess, "after gain inversion": guess.after_inversion}
        aucs = {way: each.auc for way, each in ways.items() if each is not None and each.auc is not None}
        aucs |= {f"after {k} trees": auc for k, auc in enumerate(guess.auc_by_tree[:-1], 1) if auc is not None}
        strengths = {way: max(auc, 1 - auc) for way, auc in aucs.items()}
        way = max(strengths, key=strengths.__getitem__, default=None)
        if way is not None and strengths[way] > limit:
            yield f"{name}: label_guess {way} reaches an AUC of {strengths[way]:.3f}, above {limit:g}"


def _informed(document: Document, limit: float) -> Iterator[str]:
    for name, party in document.parties.items():
        entropy = party.signature.label_entropy
        steps = [(k, each) for k, each in enumerate(party.signature.by_tree, 1) if each.mutual_information is not None]
        if not entropy or not steps:
            continue
        trees, step = max(steps, key=lambda step: step[1].mutual_information or 0.0)
        told, chance = ((nats or 0.0) / entropy for nats in (step.mutual_information, step.by_chance))
        if told > limit:
            yield (
                f"{name}: all known nodes together tell {told:.3f} of the label's entropy after {trees} of "
                f"{document.trees} trees ({chance:.3f} by chance), above {limit:g}"
            )
