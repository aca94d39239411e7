"""The model card in the order of the AI Act's Annex IV, and the questions of NIST SP 800-226 for every ε.

Regulation (EU) 2024/1689, Annex IV, has nine headings; what no state of a party backs is left to the provider. NIST
Special Publication 800-226, "Guidelines for Evaluating Differential Privacy Guarantees" (2025), asks of a guarantee its
unit, its parameters, the mechanism, how losses add up, whom one has to trust, and what it does not cover. Figures are
those that the training left in the model's manifest and in the ledger; the words about a mechanism are this release's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from treetap.commands.model.view import BASE
from treetap.models.store import CELLS, COLUMN_PRIVACY, MANIFEST, SPACES, TREES, VALUES
from treetap.ops.evidence.facts import Fact, Heading, Kept, Paper, written
from treetap.party.runtime.ledger import LEDGER, Kind
from treetap.privacy.column_privacy import sentences
from treetap.privacy.zcdp import statement
from treetap.trees.pivodl_params import PivodlParams

#: What SP 800-226 asks of each ε, in the order of a section.
QUESTIONS = ("Unit of privacy", "ε and δ", "Mechanism", "Accounting", "Trust model", "Not covered")
#: Those that words of the release answer.
_OF_RELEASE = (QUESTIONS[0], QUESTIONS[4], QUESTIONS[5])


def model_card(kept: Kept) -> Paper:
    """The nine headings, with what the state backs."""
    described, place = kept.described, f"models/{kept.name}/{MANIFEST}"
    metrics = kept.of_manifest(within="training_metrics") if "training_metrics" in kept.manifest else []
    sizes = [
        Fact(f"trees, {key}", written(value), f"models/{kept.name}/{TREES}")
        for key, value in described.get("trees", {}).items()
    ]
    shares = [
        Fact(f"splits of {row['name']}", written(row["weight"]), f"{place}#importance_by_party.{row['name']}.weight")
        for row in described.get("importance", {}).get("parties", ())
    ]
    approved = [fact for fact in kept.approvals() if not fact.what.endswith("in words")]
    classes = [Fact("classes", str(len(described["classes"])), f"{place}#classes")] if "classes" in described else []
    return Paper(
        "model-card",
        f"Model card: {kept.name}, the part of {kept.party.name}",
        "In the order of Annex IV of Regulation (EU) 2024/1689. The provider writes what the software does not record.",
        [
            Heading(
                "1. General description of the AI system",
                [
                    Fact("treetap, of this evidence", kept.release.partition(" ")[2], kept.release),
                    *kept.of_manifest("job", "version", "protocol", "objective", "party", "role"),
                    *kept.of_manifest("label_holder", "feature_parties", "aggregator", "parties"),
                    *classes,
                    *kept.of_config("serve.clients", "serve.gateway"),
                ],
            ),
            Heading(
                "2. Elements of the AI system and the process of its development",
                [
                    *kept.of_manifest("job_digest", BASE, "weighted", "labelled_records", CELLS, SPACES, VALUES),
                    *kept.of_manifest(
                        "best_round", "trees_per_round", "epochs", "best_epoch", "widths", "reproducible"
                    ),
                    *(kept.of_manifest(within="params") if "params" in kept.manifest else []),
                    *(*sizes, *shares, *metrics),
                    *kept.of_ledger(Kind.TRAINING, Kind.RECORDS),
                ],
            ),
            Heading(
                "3. Monitoring, functioning and control of the AI system",
                [*metrics, *approved, *kept.answers(), *kept.of_config("serve.decision_days")],
            ),
            Heading("4. Appropriateness of the performance metrics", []),
            Heading("5. Risk management system (Article 9)", []),
            Heading("6. Changes made through the lifecycle", kept.of_manifest(BASE)),
            Heading("7. Harmonised standards applied", []),
            Heading("8. EU declaration of conformity (Article 47)", []),
            Heading("9. Evaluation in the post-market phase (Article 72)", []),
        ],
    )


def epsilons(kept: Kept) -> Paper | None:
    """A heading for each ε of the model; None where no mechanism with one was used."""
    headings = [*_of_labels(kept), *_of_columns(kept), *_of_weights(kept), *_of_networks(kept)]
    about = "Questions of NIST SP 800-226 for every mechanism with an ε that the training used."
    return Paper("epsilon", f"Differential privacy of model {kept.name}", about, headings) if headings else None


def _asked(kept: Kept, title: str, place: str, *answers: str, more: Sequence[Fact] = ()) -> Heading:
    """A heading: an answer to each question, then `more`. Those with figures are of `place`, words of the release."""
    asked = zip(QUESTIONS, answers, strict=True)
    facts = [Fact(what, said, kept.release if what in _OF_RELEASE else place) for what, said in asked]
    return Heading(title, [*facts, *more])


def _of_labels(kept: Kept) -> Iterator[Heading]:
    """The draw of noisy labels on which the label holder trained."""
    costs = [one.amount for one in kept.charges if one.kind in (Kind.NOISY_LABELS, Kind.NOISED_WEIGHTS)]
    for number, charge in enumerate(kept.charges):
        if charge.kind == Kind.NOISY_LABELS and charge.details["labels"] == kept.job.get("labels"):
            said = charge.details
            yield _asked(
                kept,
                "Noisy labels",
                f"{LEDGER}#{number}",
                "the label of one record of the table",
                f"ε = {charge.amount:g}, δ = 0",
                f"{said['mechanism']}: randomised response by priors, in {said['stages']} stages, of {said['records']} "
                f"labels of {said['classes']} classes, drawn once",
                f"basic composition: {len(costs)} draws of this party cost ε = {sum(costs):.10g} in all",
                f"{kept.party.name} draws before it trains; whoever reads its table reads labels as they are",
                "columns, ids and who is in the table; measures that this party releases by labels as they are",
                more=kept.of_ledger(Kind.CLEAN_LABELS, job=""),
            )


def _of_columns(kept: Kept) -> Iterator[Heading]:
    """The noise on sums of feature parties, by the manifest: at one of them its own."""
    noise, own = kept.manifest.get(COLUMN_PRIVACY) or {}, kept.described["role"] == "feature_party"
    for party, said in ({kept.party.name: noise} if own and noise else noise).items():
        yield _asked(
            kept,
            f"Noise on sums of {party} (column_privacy)",
            f"models/{kept.name}/{MANIFEST}#{COLUMN_PRIVACY}{'' if own else f'.{party}'}",
            f"one record's bin in one column of {party}, given the left sets of the splits that it won",
            f"ε = {said['epsilon']:g}, δ = {said['delta']:g}",
            sentences({party: said})[0],
            f"zero-concentrated: ρ = {said['rho']:.4g} in one attempt of {said['trees']:g} trees; attempts add up",
            f"{party} draws its own noise before its sums leave; the label holder reads noised sums alone",
            f"left sets of splits that {party} won, which are exact; a record that differs in several columns; labels",
            more=kept.of_ledger(Kind.NOISED_SUMS),
        )


def _of_weights(kept: Kept) -> Iterator[Heading]:
    """The noise on leaf weights of PIVODL."""
    known, given = {field.name for field in fields(PivodlParams)}, kept.manifest.get("params", {})
    if kept.described["role"] == "party" and given.get("epsilon") is not None:
        said = statement(PivodlParams(**{name: value for name, value in given.items() if name in known}))
        yield _asked(
            kept,
            "Noise on leaf weights (epsilon)",
            f"models/{kept.name}/{MANIFEST}#params",
            "one record's label",
            f"ε = {given['epsilon']:g}, δ = {given['delta']:g}",
            *said[:2],
            "the party that keeps a leaf knows its weight, and draws the noise for the party that split its parent",
            " ".join(said[2:]),
            more=kept.of_ledger(Kind.NOISED_WEIGHTS),
        )


def _of_networks(kept: Kept) -> Iterator[Heading]:
    """DP-SGD of a feature party's own weights."""
    if said := kept.manifest.get("dp_sgd"):
        yield _asked(
            kept,
            f"Noise on gradients of {kept.party.name} (dp_sgd)",
            f"models/{kept.name}/{MANIFEST}#dp_sgd",
            "one record of the training, whose gradient counts as 0 in one of two neighbours",
            f"ε = {said['epsilon']:.4g}, δ = {said['delta']:g}",
            f"discrete Gaussian of {said['noise']:g} times the clip {said['clip']:g} on every batch's sum of gradients",
            f"{written(kept.manifest['epochs'])} epochs as so many Gaussian mechanisms, in closed form",
            f"{kept.party.name} draws its own noise; gradients that return to it are taken as given",
            "embeddings, which are computed from the records and sent without noise",
        )
