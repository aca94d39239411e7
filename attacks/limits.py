"""Limits on what an audit may find, for a pipeline: `treetap audit --fail-above LIMIT=VALUE`.

An attacker may stop after any tree, so the largest figure over the number of trees counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from treetap.attacks.document import AttackName, Document, Party
from treetap.attacks.features.schema import VictimFigures, attribute_figure, record_strength
from treetap.attacks.id2graph.schema import AttackResult
from treetap.attacks.published.schema import PublishedDocument
from treetap.attacks.registry import ROWS, Needs, row
from treetap.errors import BadInput

#: Limit → what it is on. CL needs no training, so the limits on several attacks leave it out.
GENERAL = {
    "any": "the V-measure of every attack but cl",
    "accuracy": "the accuracy of every attack but cl",
    "information": "the share of the label's entropy that all known nodes of a party reveal together, chance included",
}
V_MEASURE, ACCURACY = "a V-measure", "an accuracy"
MEASURES = {"accuracy": ACCURACY, "explained": "an R²"}


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
        every = (*GENERAL, *(attack.name for attack in ROWS if attack.limit))
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
    above: list[str] = []
    for name, limit in limits.items():
        needs = None if name in GENERAL else row(name).needs
        if needs == Needs.EMBEDDINGS:
            above += _on_columns(document, name, limit)
        elif needs == Needs.SCORES:
            above += _on_scores(document, name, limit)
        elif needs == Needs.PUBLISHED:
            raise BadInput(f"--fail-above {name}: is on a published model: say --model FOLDER --table FILE")
        elif name == "source_columns":
            above += _read_in_pivodl(document, limit)
        elif needs == Needs.SUMS:
            above += _by_sums(document, name, limit)
        # attacks on columns and on scores need no labels of the training; all others are scored by them
        elif document.classes is None:
            why = "the label is a number, not a class" if document.labelled else "no [label] is given"
            raise BadInput(f"--fail-above {name}: nothing is scored: {why}")
        elif name == "information":
            above += _informed(document, limit)
        elif needs == Needs.KNOWN_LABELS:
            above += _by_known_labels(document, name, limit)
        elif needs == Needs.SHARED_LABELS:
            above += _guessed(document, limit)
        elif needs == Needs.GRADIENTS or (document.of_network and name in GENERAL):
            above += _of_networks(document, name, limit)
        else:
            above += _grouped(document, name, limit)
    return above


def exceeded_by_published(document: PublishedDocument, limits: Mapping[str, float]) -> list[str]:
    """Figures of a published model above their limit, a line each.

    Raises:
        BadInput: a limit is on transcripts, or nothing was measured.
    """
    figures: dict[str, list[tuple[str, str, float]]] = {
        "membership": [(it.artefact, "an AUC", it.auc) for it in document.membership],
        "member-columns": [
            (f"{it.artefact}, {it.column}", MEASURES[it.compared.measure], it.compared.after)
            for it in document.member_columns
        ],
    }
    above = []
    for name, limit in limits.items():
        if not (measured := figures.get(name)):
            why = "nothing was measured" if name in figures else "is on transcripts; leave out --model and --table"
            raise BadInput(f"--fail-above {name}: {why}")
        above += [
            f"{of}: {name} reaches {what} of {value:.3f}, above {limit:g}"
            for of, what, value in measured
            if value > limit
        ]
    return above


def _grouped(document: Document, name: str, limit: float) -> Iterator[str]:
    """Figures above a limit of attacks that group records."""
    kind: Literal["v_measure", "accuracy"] = "accuracy" if name == "accuracy" else "v_measure"
    what = ACCURACY if name == "accuracy" else V_MEASURE
    for party, attack, result in _results(document, name):
        figure = result.largest(kind)
        if figure is not None and figure[1] > limit:
            trees, value = figure
            after = "" if attack == "cl" else f" after {trees} of {document.trees} trees"
            yield f"{party}: {attack} reaches {what} of {value:.3f}{after}, above {limit:g}"


def _results(document: Document, name: str) -> list[tuple[str, AttackName, AttackResult]]:
    """Party, attack and result of every attack to which a limit applies."""

    def meant(attack: str) -> bool:
        if name in GENERAL:
            return attack != "cl"
        return attack == name or (name == "id2graph" and attack.startswith("id2graph-"))

    results = [
        (whose, attack, result)
        for whose, party in document.parties.items()
        for attack, result in party.attacks.items()
        if meant(attack)
    ]
    if not results:
        what = "no attack but cl" if name in GENERAL else "this attack"
        was = "was run" if name in GENERAL else "was not run"
        raise BadInput(f"--fail-above {name}: {what} {was}; name attacks in --attacks or in audit.toml")
    return results


def _by_known_labels(document: Document, name: str, limit: float) -> list[str]:
    """AUCs above a limit: by known nodes, the larger of those with and without own columns; of orders the largest."""
    figures = []
    for whose, party in document.parties.items():
        known = None if party.known_labels is None else party.known_labels.plain()
        if known is not None and (result := known[name]) is not None:
            if "by" in result:
                aucs = [by["auc"] for kind, by in result["by"].items() if not kind.startswith("columns")]
                figures.append((f"{whose}: {name} reaches an AUC", max(aucs)))
                continue
            aucs = [by["auc"]["mean"] for by in (result["nodes"], result["both"]) if by is not None]
            figures.append((f"{whose}: {name} with {known['drawn']['known']} labels reaches an AUC", max(aucs)))
    none = f"--fail-above {name}: the attack was run on no party; the document's reasons say why"
    return _above(figures, limit, none)


def _of_networks(document: Document, name: str, limit: float) -> list[str]:
    """Figures of a split network above a limit; `any` is on V-measures, `accuracy` on shares of records named right."""
    if not document.of_network:
        raise BadInput(f"--fail-above {name}: job {document.job} is one of {document.protocol}, no split network")
    measures = {"any": V_MEASURE, "accuracy": ACCURACY}
    figures = [
        (f"{whose}: {attack} reaches {measure}", value)
        for whose, party in document.parties.items()
        for attack, measure, value in _figures_of(party)
        if value is not None and (measure == measures[name] if name in measures else attack == name)
        if name != "gradient-clusters" or measure == V_MEASURE
    ]
    return _above(figures, limit, f"--fail-above {name}: no attack has such a figure; the document's reasons say why")


def _above(figures: Sequence[tuple[str, float]], limit: float, none: str) -> list[str]:
    """The figures above a limit, each after its words. Raises BadInput, `none`, without any figure."""
    if not figures:
        raise BadInput(none)
    return [f"{what} of {value:.3f}, above {limit:g}" for what, value in figures if value > limit]


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


def _on_columns(document: Document, name: str, limit: float) -> list[str]:
    """Figures of a label holder's attacks on columns above a limit, each on the scale that tells most."""
    if not document.victims:
        raise BadInput(
            f"--fail-above {name}: no label holder's attacks on columns are in this audit: name whose in [[victim]]"
        )
    figures = [
        (f"{victim}: {what}", value)
        for victim, of_victim in document.victims.items()
        for what, value in _figures_on(of_victim, name)
    ]
    none = f"--fail-above {name}: nothing is scored: the attack was not run, or [[victim]] has no truth = …"
    return _above(figures, limit, none)


def _by_sums(document: Document, name: str, limit: float) -> list[str]:
    """Shares above a limit of the cells that a label holder of trees placed, per feature party.

    By all that it read, and by left sets alone, which place more where columns of categories keep links from being put
    to use.
    """
    if not document.columns_read:
        raise BadInput(
            f"--fail-above {name}: no label holder's attack by opened sums is in this audit: let its policy record "
            "sums, and name whose columns it attacks in [[victim]]"
        )
    shares = [
        (f"{victim}: {document.label_holder} placed a share{how}", cells.placed)
        for victim, figures in document.columns_read.items()
        if figures.read is not None
        for how, cells in (("", figures.read), (", by left sets alone,", figures.left_sets))
    ]
    said = "; ".join(why for figures in document.columns_read.values() for why in figures.reasons.values())
    return _above(shares, limit, f"--fail-above {name}: nothing was attacked: {said}")


def _on_scores(document: Document, name: str, limit: float) -> list[str]:
    """Shares of a prediction's paths, or of hidden weights, above a limit."""
    shares = []
    for job, figures in (document.predictions or {}).items():
        if name == "path-decoding" and figures.path_decoding is not None:
            paths = figures.path_decoding
            known = paths.unique / max(1, paths.records)
            shares.append((f"prediction {job}: whole paths are known: a share", known))
        if name == "prediction-inversion" and figures.prediction_inversion is not None:
            weights = figures.prediction_inversion
            known = weights.solved / max(1, weights.unknown)
            shares.append((f"prediction {job}: weights that came with noise are known: a share", known))
    none = f"--fail-above {name}: the attack was run on no prediction: name one in [[prediction]]"
    return _above(shares, limit, none)


def _figures_on(figures: VictimFigures, name: str) -> Iterator[tuple[str, float]]:
    """Sentence and figure of each result of an attack on columns that is scored."""
    if name == "attributes":
        for column in figures.attributes:
            if column.headline is not None and (value := attribute_figure(column, column.headline)) is not None:
                measure = ACCURACY if column.kind == "class" else "an R²"
                yield f"attributes, {column.headline}, guesses {column.name} with {measure}", value
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
        aucs = {way: one.auc for way, one in ways.items() if one is not None and one.auc is not None}
        aucs |= {f"after {k} trees": auc for k, auc in enumerate(guess.auc_by_tree[:-1], 1) if auc is not None}
        # a guess that is wrong more often than right tells as much: the opposite one is right as often
        strengths = {way: max(auc, 1 - auc) for way, auc in aucs.items()}
        way = max(strengths, key=strengths.__getitem__, default=None)
        if way is not None and strengths[way] > limit:
            yield f"{name}: label_guess {way} reaches an AUC of {strengths[way]:.3f}, above {limit:g}"


def _read_in_pivodl(document: Document, limit: float) -> Iterator[str]:
    """Shares of a party's cells that another one places right above a limit. Raises BadInput where none is scored."""
    read = {name: party.source_columns for name, party in document.parties.items() if party.source_columns is not None}
    if not read:
        raise BadInput(f"--fail-above source_columns: job {document.job} is one of {document.protocol}, not of pivodl")
    scored = [
        (name, source, it)
        for name, columns in read.items()
        for source, it in columns.sources.items()
        if it.wrong is not None
    ]
    if not scored:
        raise BadInput(
            "--fail-above source_columns: nothing is scored: claims on a party's columns are compared with its table: "
            "say table = … in its [[party]]"
        )
    for name, source, it in scored:
        share = (it.placed - (it.wrong or 0)) / max(1, it.cells)
        if share > limit:
            yield f"{name}: source_columns places {share:.3f} of the cells of {source}, above {limit:g}"


def _informed(document: Document, limit: float) -> Iterator[str]:
    """Shares of the label's entropy above a limit. Raises BadInput for a job without trees."""
    if document.of_network:
        raise BadInput(f"--fail-above information: job {document.job} has no trees, whose nodes this limit is on")
    for name, party in document.parties.items():
        entropy = party.signature.label_entropy
        steps = [(k, step) for k, step in enumerate(party.signature.by_tree, 1) if step.mutual_information is not None]
        if not entropy or not steps:
            continue
        # the attacker may stop after any tree
        trees, step = max(steps, key=lambda step: step[1].mutual_information or 0.0)
        told, chance = ((nats or 0.0) / entropy for nats in (step.mutual_information, step.by_chance))
        if told > limit:
            yield (
                f"{name}: all known nodes together tell {told:.3f} of the label's entropy after {trees} of "
                f"{document.trees} trees ({chance:.3f} by chance), above {limit:g}"
            )
