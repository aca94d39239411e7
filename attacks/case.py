"""One attacker with all that the auditor has on it, and the evidence of its attacks by the views that these need.

Groups of records with the training beside what needs none of it, record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from treetap.arrays import Bools, Ints
from treetap.attacks.audit_file import AuditFile
from treetap.attacks.files import AuditedParty
from treetap.attacks.id2graph.attack import Outcome
from treetap.attacks.id2graph.clustering import left_out
from treetap.attacks.id2graph.schema import AttackResult, KnownLabelFigures, KnownSettings, Settings, usual_discount
from treetap.attacks.known_labels.evidence import SignatureEvidence, compared_names, of_others
from treetap.attacks.known_labels.names import labels_at_hand
from treetap.attacks.networks.schema import NetworkFigures, NetworkSettings
from treetap.attacks.pivodl.evidence import SharedLabelEvidence, Weights
from treetap.attacks.predictions.evidence import ScoreEvidence, read_scores
from treetap.attacks.published.schema import DecodingSettings, PredictionFigures
from treetap.attacks.registry import GROUPING, OWN_CUTS, Attack, Needs, attack, rows
from treetap.attacks.scores import matched, scores
from treetap.attacks.verdict import Compared, compared_right
from treetap.attacks.view.own_table import load_labels, load_own_table
from treetap.attacks.view.view import View
from treetap.errors import BadInput
from treetap.protocols.libraries import require_library
from treetap.protocols.registry import training
from treetap.tables.labels import Labels
from treetap.tables.reading import Table


def compared_groups(case: Case, results: Mapping[str, AttackResult]) -> Iterator[Compared]:
    """The attack of the largest accuracy beside own columns (CL) or the most frequent class; none without an attack."""
    if case.labels is None or not (trained := [name for name in case.right if name != "cl"]):
        return
    right, tries = {}, 0
    for name in trained:
        # of each attack the numbers of trees after which it was scored
        tries += sum(value is not None for value in results[name].accuracy_by_tree or []) or 1
        most = results[name].largest("accuracy")
        after = "" if most is None or most[0] is None else f" after {most[0]} trees"
        right[f"{GROUPING[name].label}{after}"] = case.right[name]
    yield compared_right(case.labels.values, right, case.right.get("cl"), tries=tries, details="attacks")


#: Told what is done next.
Say = Callable[[str], None]
#: Numbers of trees after which records are grouped: each, all alone (False), or few of them.
ByTree = bool | Literal["few"]
#: Least weight of a tree, beside the first one's, that makes a further number of trees worth the time.
LEAST_WEIGHT = 0.05


@dataclass(frozen=True)
class Case:
    """An attacker on labels.

    Attributes:
        table: its own columns, in the order of the common records.
        labels: of these records, for scoring alone.
        classes: the number of groups to look for.
        exact: of PIVODL, exact weights that some audited party received.
        columns: of PIVODL, the bins of all audited parties' columns, for scoring alone.
        compared: guesses of labels without and with the training, which attacks write down for the verdict.
        right: attack that groups records → those (N,) that it names right after the number of trees where most are.
    """

    file: AuditFile
    party: AuditedParty
    view: View
    table: Table | None = field(repr=False)
    labels: Labels | None = field(repr=False)
    classes: int | None
    exact: Weights = field(default_factory=dict, repr=False)
    columns: Mapping[str, Ints] = field(default_factory=dict, repr=False)
    compared: list[Compared] = field(default_factory=list, repr=False)
    right: dict[str, Bools] = field(default_factory=dict, repr=False)

    @property
    def features(self) -> Any:
        """Its own columns (N, d)."""
        return None if self.table is None else self.table.features

    @property
    def settings(self) -> Settings:
        """Settings of attacks that group records; the discount is the paper's for the protocol, unless it is given."""
        return Settings.read({"discount": usual_discount(self.view.protocol)} | self.file.settings)

    def leaves(self) -> Any:
        """The attacker's leaves, by tree."""
        return self.view.leaves(drawn_only=self.file.drawn_only)

    def reason(self, name: str) -> str:
        """Why an attack that groups records uses nothing or a part of this view, as a clause; empty of all."""
        if name == OWN_CUTS:
            if not any(tree.won for tree in self.view.trees):
                return "has nothing to use: the party won no split"
            return left_out(self.view.own_cuts(), self.view.records, self.settings.max_entries)
        if GROUPING[name].by_leaves and not any(self.view.leaves()):
            owned = " with instance spaces withheld, since it owns no root" if self.view.withheld else ""
            return f"has nothing to use: the party knows no node but roots{owned}"
        return ""

    @property
    def reasons(self) -> dict[str, str]:
        """The attacks that group records and use nothing or a part of this view, each with the clause that says why."""
        return {name: reason for name in self.grouping() if (reason := self.reason(name))}

    def usual(self) -> list[str]:
        """The attacks that group records which run unless the file names others."""
        own = self.table is not None and bool(self.table.columns)
        return [
            name
            for name, row in rows(Needs.COLUMNS, Needs.SETS).items()
            if row.usual_up_to is None or self.view.records <= row.usual_up_to
            if row.needs != Needs.COLUMNS or own
        ]

    def grouping(self) -> list[str]:
        """The attacks that group records to run on this view; none of a regression, whose labels are no groups."""
        names = self.file.attacks or self.usual()
        possible = rows(*(needs for needs in (Needs.COLUMNS, Needs.SETS) if needs.given_by(self.view)))
        return [] if self.classes is None else [name for name in names if name in possible]


def held(party: AuditedParty, view: View, file: AuditFile) -> tuple[Table | None, Labels | None]:
    """The party's own columns, and the labels of its records for scoring.

    Raises:
        BadInput: a file cannot be used, or labels are given and no table by whose ids to find them.
    """
    if view.of_columns:  # the attacks of a label holder are on others' columns
        return None, None
    if party.table is None:
        if file.label is not None:
            raise BadInput(f"{party.name}: labels are found by the ids of the party's table: say table = …")
        return None, None
    table = load_own_table(party.table, view, party.id, party.columns)
    if file.label is None or view.regression:
        return table, None
    return table, load_labels(file.label.path, file.label.column, table, file.label.id)


def grouped(case: Case, names: Collection[str], say: Say, *, by_tree: ByTree) -> dict[str, AttackResult]:
    """The attacks that group records, by name."""
    results = {}
    for name in names:
        say(name)
        results[name], clusters = _grouped(case, name, by_tree=by_tree)
        if case.labels is not None:
            case.right[name] = matched(case.labels.values, clusters)
    case.compared.extend(compared_groups(case, results))
    return results


def numbers_of_trees(trees: int, by_tree: ByTree, discount: float) -> list[int]:
    """The numbers of trees after which records are grouped, ascending.

    Few are 1, 2, 5, 10, 20, … and all, as long as the last tree's weight is not next to nothing.
    """
    if by_tree == "few" and trees:
        steps = [one * 10**power for power in range(7) for one in (1, 2, 5)]
        few = [*(size for size in steps if size < trees), trees]
        return [size for size in few if discount ** (size - 1) >= LEAST_WEIGHT]
    return list(range(1 if by_tree and trees else trees, trees + 1))


def _grouped(case: Case, name: str, *, by_tree: ByTree) -> tuple[AttackResult, Ints]:
    """One attack's result after the number of trees where its V-measure is largest (the first).

    And its groups (N,) after the number where its accuracy is.
    """
    assert case.classes is not None  # without a number of clusters no attack runs
    leaves, uses_trees, scored = case.leaves(), name in rows(Needs.SETS), case.labels is not None
    every, cuts = len(leaves), case.view.own_cuts() if name == OWN_CUTS else []
    steps: dict[int, dict[str, float | None]] = {}
    best: tuple[int, Outcome] | None = None
    largest: tuple[float, Ints] | None = None
    # without labels there is nothing to choose by, and without trees nothing to choose
    for trees in numbers_of_trees(every, by_tree, case.settings.discount) if uses_trees and scored else [every]:
        outcome = attack(
            *(name, leaves[:trees], case.view.records, case.features),
            *(case.classes, case.settings, cuts[:trees]),
        )
        steps[trees] = scores(case.labels, outcome.clusters)
        if best is None or (steps[trees]["v_measure"] or 0.0) > (steps[best[0]]["v_measure"] or 0.0):
            best = trees, outcome
        if largest is None or (steps[trees]["accuracy"] or 0.0) > largest[0]:
            largest = steps[trees]["accuracy"] or 0.0, outcome.clusters
    assert best is not None  # the range has the number of all trees
    assert largest is not None

    def after_each(measure: str) -> list[float | None] | None:
        if not uses_trees:
            return [steps[every][measure]] * every if scored else None
        return [steps[trees][measure] if trees in steps else None for trees in range(1, every + 1)] if scored else None

    after, outcome = best
    result = AttackResult(
        after_trees=after if uses_trees else None,
        **steps[after],
        seconds=sum(outcome.seconds.values()),
        groups=outcome.found,
        clusters=len(set(outcome.clusters.tolist())),
        parameters=outcome.parameters,
        by_tree=after_each("v_measure"),
        accuracy_by_tree=after_each("accuracy"),
    )
    return result, largest[1]


def shared_labels(case: Case, attacks: Mapping[str, Attack]) -> dict[str, Any]:
    """The attacks on a PIVODL job, by name."""
    assert case.view.pivodl is not None
    evidence = SharedLabelEvidence(
        *(case.view.pivodl, case.view.records, case.features, case.labels, case.exact, case.columns, case.compared)
    )
    return {name: row.run(evidence) for name, row in attacks.items()}


def by_known_labels(case: Case, attacks: Mapping[str, Attack]) -> KnownLabelFigures:
    """The attacks by known labels and the nodes of trees. Raises BadInput where the known labels cannot be read."""
    view, file = case.view, case.file
    known = labels_at_hand(view, case.table, case.labels, file.known)
    if view.pivodl is not None:
        known = of_others(known, view.pivodl.own)
    settings = KnownSettings.read(file.known_labels)
    evidence = SignatureEvidence(view.trees, known, case.features, settings, view.regression)
    results = {**dict.fromkeys(rows(Needs.KNOWN_LABELS)), **{name: row.run(evidence) for name, row in attacks.items()}}
    case.compared.extend(compared_names(evidence))
    return KnownLabelFigures.model_validate({"drawn": evidence.described(), **results, "reasons": evidence.reasons})


def on_network(case: Case, attacks: Mapping[str, Attack]) -> NetworkFigures:
    """The attacks on gradients and the own model. Raises BadInput where PyTorch is not installed."""
    require_library(case.view.protocol, training(case.view.protocol))
    from treetap.attacks.networks.evidence import compared_network, described, evidence_of, runnable

    file, settings = case.file, NetworkSettings.read(case.file.network)
    evidence = evidence_of(
        case.view, case.party, case.table, case.labels, file.known, file.evaluation, file.classes, settings
    )
    every = dict.fromkeys(rows(Needs.GRADIENTS))
    results = {name: row.run(evidence) for name, row in attacks.items() if runnable(evidence, name)}
    figures = NetworkFigures.model_validate({**described(evidence), **every, **results})
    case.compared.extend(compared_network(evidence, figures, case.features, case.right.get("cl")))
    return figures


def scored_predictions(file: AuditFile, say: Callable[[str], None]) -> dict[str, PredictionFigures]:
    """The attacks on each [[prediction]], by its name. Raises as `read_scores` does."""
    settings, attacks = DecodingSettings.read(file.decoding), rows(Needs.SCORES)
    results = {}
    for prediction in file.prediction:
        say(f"prediction {prediction.job}")
        results[prediction.job] = on_scores(read_scores(prediction, settings, file.ca, file.revoked), attacks)
    return results


def on_scores(evidence: ScoreEvidence, attacks: Mapping[str, Attack]) -> PredictionFigures:
    """The findings of attacks on one prediction; None, with a reason, of an attack that is on other protocols."""
    findings = {name.replace("-", "_"): row.run(evidence) for name, row in attacks.items()}
    return PredictionFigures(
        recipient=evidence.recipient,
        model=evidence.model,
        protocol=evidence.protocol,
        records=len(evidence.sums),
        **findings,
        reasons=evidence.reasons,
        faults=list(evidence.faults),
        signed=evidence.signed,
    )
