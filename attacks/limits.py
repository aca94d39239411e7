"""Limits on what an audit may find, for a pipeline: `treetap audit --fail-above LIMIT=VALUE`.

An attacker may stop after any tree, so the largest figure over the number of trees counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from treetap.attacks.document import Document
from treetap.attacks.networks.schema import attribute_figure, record_strength
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


#: Words before a figure, the figure, and words behind it.
Figure = tuple[str, float, str]


def exceeded(document: Document, limits: Mapping[str, float]) -> list[str]:
    """Figures above their limit, a line each. `id2graph` stands for every form of it.

    Raises:
        BadInput: an attack was not run, or nothing was scored.
    """
    return [line for name, limit in limits.items() for line in _above(name, limit, *_figures(document, name))]


def exceeded_by_published(document: PublishedDocument, limits: Mapping[str, float]) -> list[str]:
    """Figures of a published model above their limit, a line each.

    Raises:
        BadInput: a limit is on transcripts, or nothing was measured.
    """
    figures: dict[str, list[Figure]] = {
        "membership": [(f"{it.artefact}: membership reaches an AUC of", it.auc, "") for it in document.membership],
        "member-columns": [
            (
                f"{it.artefact}, {it.column}: member-columns reaches {MEASURES[it.compared.measure]} of",
                *(it.compared.after, ""),
            )
            for it in document.member_columns
        ],
    }
    above = []
    for name, limit in limits.items():
        none = "nothing was measured" if name in figures else "is on transcripts; leave out --model and --table"
        above += _above(name, limit, figures.get(name, []), none)
    return above


def _above(name: str, limit: float, figures: Sequence[Figure], none: str) -> list[str]:
    """The figures above a limit. Raises BadInput, with `none`, where there is no figure."""
    if none and not figures:
        raise BadInput(f"--fail-above {name}: {none}")
    return [f"{words} {value:.3f}{more}, above {limit:g}" for words, value, more in figures if value > limit]


def _figures(document: Document, name: str) -> tuple[list[Figure], str]:
    """The figures that a limit is on, and why there may be none; an empty reason: none is no fault."""
    needs = None if name in GENERAL else row(name).needs
    # attacks on columns and on scores need no labels of the training; all others are scored by them
    unlabelled = {Needs.EMBEDDINGS: _on_columns, Needs.SCORES: _on_scores, Needs.SUMS: _by_sums}
    labelled = {
        None: _of_networks if document.of_network else _grouped,
        Needs.KNOWN_LABELS: _by_known_labels,
        Needs.SHARED_LABELS: _guessed,
        Needs.GRADIENTS: _of_networks,
    }
    if needs == Needs.PUBLISHED:
        return [], "is on a published model: say --model FOLDER --table FILE"
    if name == "source_columns":
        return _read_in_pivodl(document)
    if needs in unlabelled:
        return unlabelled[needs](document, name)
    if document.classes is None:
        why = "the label is a number, not a class" if document.labelled else "no [label] is given"
        return [], f"nothing is scored: {why}"
    if name == "information":
        return _informed(document)
    return labelled.get(needs, _grouped)(document, name)


def _grouped(document: Document, name: str) -> tuple[list[Figure], str]:
    """Figures of attacks that group records."""
    kind: Literal["v_measure", "accuracy"] = "accuracy" if name == "accuracy" else "v_measure"
    what = ACCURACY if name == "accuracy" else V_MEASURE
    run, figures = False, list[Figure]()
    for party, of_party in document.parties.items():
        for attack, result in of_party.attacks.items():
            meant = attack == name or (name == "id2graph" and attack.startswith("id2graph-"))
            if (attack == "cl") if name in GENERAL else not meant:
                continue
            run = True
            if (figure := result.largest(kind)) is not None:
                after = "" if attack == "cl" else f" after {figure[0]} of {document.trees} trees"
                figures.append((f"{party}: {attack} reaches {what} of", figure[1], after))
    none = "no attack but cl was run" if name in GENERAL else "this attack was not run"
    return figures, "" if run else f"{none}; name attacks in --attacks or in audit.toml"


def _by_known_labels(document: Document, name: str) -> tuple[list[Figure], str]:
    """AUCs: by known nodes, the larger of those with and without own columns; of orders the largest."""
    figures: list[Figure] = []
    for whose, party in document.parties.items():
        known = None if party.known_labels is None else party.known_labels.plain()
        if known is not None and (result := known[name]) is not None:
            if "by" in result:
                aucs = [by["auc"] for kind, by in result["by"].items() if not kind.startswith("columns")]
                figures.append((f"{whose}: {name} reaches an AUC of", max(aucs), ""))
                continue
            aucs = [by["auc"]["mean"] for by in (result["nodes"], result["both"]) if by is not None]
            words = f"{whose}: {name} with {known['drawn']['known']} labels reaches an AUC of"
            figures.append((words, max(aucs), ""))
    return figures, "the attack was run on no party; the document's reasons say why"


def _of_networks(document: Document, name: str) -> tuple[list[Figure], str]:
    """Figures of a split network; `any` is on V-measures, `accuracy` on shares of records named right."""
    if not document.of_network:
        return [], f"job {document.job} is one of {document.protocol}, no split network"
    measures, figures = {"any": V_MEASURE, "accuracy": ACCURACY}, list[Figure]()
    for whose, network in ((whose, party.network) for whose, party in document.parties.items()):
        clusters = None if network is None else network.gradient_clusters
        inferred = None if network is None or network.gradient_labels is None else network.gradient_labels.inferred
        for attack, measure, value in (
            ("gradient-clusters", V_MEASURE, None if clusters is None else clusters.v_measure),
            ("gradient-clusters", ACCURACY, None if clusters is None else clusters.accuracy),
            ("gradient-labels", ACCURACY, None if inferred is None else inferred.accuracy),
        ):
            meant = measure == measures[name] if name in measures else attack == name
            if value is not None and meant and (name != "gradient-clusters" or measure == V_MEASURE):
                figures.append((f"{whose}: {attack} reaches {measure} of", value, ""))
    return figures, "no attack has such a figure; the document's reasons say why"


def _on_columns(document: Document, name: str) -> tuple[list[Figure], str]:
    """Figures of a label holder's attacks on columns that are scored, each on the scale that tells most."""
    if not document.victims:
        return [], "no label holder's attacks on columns are in this audit: name whose in [[victim]]"
    figures: list[Figure] = []
    for victim, of_victim in document.victims.items():
        for column in of_victim.attributes if name == "attributes" else ():
            if column.headline is not None and (value := attribute_figure(column, column.headline)) is not None:
                measure = ACCURACY if column.kind == "class" else "an R²"
                words = f"{victim}: attributes, {column.headline}, guesses {column.name} with {measure} of"
                figures.append((words, value, ""))
        for guess in of_victim.reconstructions:
            if guess.attack == name and guess.headline is not None:
                scores, strength = getattr(guess, guess.headline), record_strength(guess, guess.headline)
                what = "removes a share of the mean record's error" if scores.ssim is None else "reaches an SSIM"
                if strength is not None:
                    figures.append((f"{victim}: {name}, {guess.headline}, {what} of", strength, ""))
    return figures, "nothing is scored: the attack was not run, or [[victim]] has no truth = …"


def _by_sums(document: Document, _name: str) -> tuple[list[Figure], str]:
    """Shares of the cells that a label holder of trees placed, per feature party.

    By all that it read, and by left sets alone, which place more where columns of categories keep links from being put
    to use.
    """
    if not document.columns_read:
        return [], (
            "no label holder's attack by opened sums is in this audit: let its policy record sums, and name whose "
            "columns it attacks in [[victim]]"
        )
    shares = [
        (f"{victim}: {document.label_holder} placed a share{how} of", cells.placed, "")
        for victim, figures in document.columns_read.items()
        if figures.read is not None
        for how, cells in (("", figures.read), (", by left sets alone,", figures.left_sets))
    ]
    said = "; ".join(why for figures in document.columns_read.values() for why in figures.reasons.values())
    return shares, f"nothing was attacked: {said}"


def _on_scores(document: Document, name: str) -> tuple[list[Figure], str]:
    """Shares of a prediction's paths, or of hidden weights."""
    shares: list[Figure] = []
    for job, figures in (document.predictions or {}).items():
        if name == "path-decoding" and (paths := figures.path_decoding) is not None:
            words = f"prediction {job}: whole paths are known: a share of"
            shares.append((words, paths.unique / max(1, paths.records), ""))
        if name == "prediction-inversion" and (weights := figures.prediction_inversion) is not None:
            words = f"prediction {job}: weights that came with noise are known: a share of"
            shares.append((words, weights.solved / max(1, weights.unknown), ""))
    return shares, "the attack was run on no prediction: name one in [[prediction]]"


def _guessed(document: Document, _name: str) -> tuple[list[Figure], str]:
    """Label guesses; an AUC below one half counts as that of the inverted guess."""
    figures, none = list[Figure](), f"job {document.job} is one of {document.protocol}, not of pivodl"
    for name, guess in ((name, party.label_guess) for name, party in document.parties.items()):
        if guess is None:
            continue
        none, ways = "", {"as received": guess, "after gain inversion": guess.after_inversion}
        aucs = {way: one.auc for way, one in ways.items() if one is not None and one.auc is not None}
        aucs |= {f"after {k} trees": auc for k, auc in enumerate(guess.auc_by_tree[:-1], 1) if auc is not None}
        # a guess that is wrong more often than right tells as much: the opposite one is right as often
        strengths = {way: max(auc, 1 - auc) for way, auc in aucs.items()}
        if (way := max(strengths, key=strengths.__getitem__, default=None)) is not None:
            figures.append((f"{name}: label_guess {way} reaches an AUC of", strengths[way], ""))
    return figures, none


def _read_in_pivodl(document: Document) -> tuple[list[Figure], str]:
    """Shares of a party's cells that another one places right."""
    read = {name: party.source_columns for name, party in document.parties.items() if party.source_columns is not None}
    if not read:
        return [], f"job {document.job} is one of {document.protocol}, not of pivodl"
    shares = [
        (
            f"{name}: source_columns places",
            (it.placed - it.wrong) / max(1, it.cells),
            f" of the cells of {source}",
        )
        for name, columns in read.items()
        for source, it in columns.sources.items()
        if it.wrong is not None
    ]
    return shares, (
        "nothing is scored: claims on a party's columns are compared with its table: say table = … in its [[party]]"
    )


def _informed(document: Document) -> tuple[list[Figure], str]:
    """Shares of the label's entropy; none of a job without trees."""
    if document.of_network:
        return [], f"job {document.job} has no trees, whose nodes this limit is on"
    figures: list[Figure] = []
    for name, party in document.parties.items():
        entropy = party.signature.label_entropy
        steps = [(k, step) for k, step in enumerate(party.signature.by_tree, 1) if step.mutual_information is not None]
        if not entropy or not steps:
            continue
        # the attacker may stop after any tree
        trees, step = max(steps, key=lambda step: step[1].mutual_information or 0.0)
        told, chance = ((nats or 0.0) / entropy for nats in (step.mutual_information, step.by_chance))
        more = f" of the label's entropy after {trees} of {document.trees} trees ({chance:.3f} by chance)"
        figures.append((f"{name}: all known nodes together tell", told, more))
    return figures, ""
