"""The attacks, a row each: name, the view that it needs, function, schemas of settings and findings, and its words.

`treetap audit` runs the rows whose view a transcript gives, `treetap attack` one of them by name. A further attack is a
module of its own and a row here. Its module is imported when it runs: commands list attacks without their libraries.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from treetap.attacks.id2graph.schema import (
    CHUNKS,
    KMEANS,
    LOUVAIN,
    AttackResult,
    KnownLabelResult,
    KnownSettings,
    RankedResult,
    Settings,
)
from treetap.attacks.networks.schema import (
    Attribute,
    ClusterFigures,
    CompletionFigures,
    FeatureSettings,
    LabelFigures,
    NetworkSettings,
    Reconstruction,
    ScoreFigures,
)
from treetap.attacks.pivodl.schema import (
    DifferentialFigures,
    DisclosedFigures,
    GainInversionFigures,
    LabelGuess,
    SourceColumns,
)
from treetap.attacks.published.schema import ColumnGuess, DecodedPaths, DecodingSettings, InvertedWeights, Membership
from treetap.attacks.schema import Findings, RangedSettings
from treetap.attacks.sums.schema import ColumnFigures, MarkedCells, SumsSettings
from treetap.errors import BadInput, did_you_mean
from treetap.protocols.registry import training

if TYPE_CHECKING:
    from treetap.attacks.id2graph.attack import Outcome
    from treetap.attacks.id2graph.clustering import Leaves, OwnCuts
    from treetap.attacks.view.view import View

#: Most records for which the exact graph, whose size grows with their square, is attacked by an audit too.
EXACT_UP_TO = 3000


class Needs(Enum):
    """Kinds of views, each with the transcripts that give it."""

    COLUMNS = "any feature party's"
    SETS = "trainings of trees"
    KNOWN_LABELS = "trainings of trees, by a party that knows some labels, or none"
    SHARED_LABELS = "pivodl"
    GRADIENTS = "splitnn"
    EMBEDDINGS = "label holders of splitnn, in an audit with [[victim]]"
    SUMS = "label holders of trees that record their sums, in an audit with [[victim]]"
    SCORES = "predictions by masked sums"
    PUBLISHED = "none, but a published model, in an audit with --model"

    def given_by(self, view: View) -> bool:
        """True if the view of a training is of this kind."""
        grows_trees = training(view.protocol).grows_trees
        return {
            Needs.COLUMNS: not view.of_columns,
            Needs.SETS: grows_trees and not view.of_columns,
            Needs.KNOWN_LABELS: grows_trees and not view.of_columns,
            Needs.SHARED_LABELS: view.pivodl is not None,
            Needs.GRADIENTS: view.network is not None,
            Needs.EMBEDDINGS: view.embeddings is not None,
            Needs.SUMS: view.opened is not None,
            Needs.SCORES: False,
            Needs.PUBLISHED: False,
        }[self]


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
        label: its name in a report.
        line: what it does, for help and reports.
        needs: the view; its evidence is what `run` is given.
        findings: schema of its results.
        settings: schema of its settings, None: it has none.
        reads: of these settings those that its results name.
        limit: the figure that --fail-above is on, empty: it has none.
        usual_up_to: most records with which an audit runs it unasked; None: any number.
    """

    name: str
    label: str
    line: str
    run: Callable[[Any], Any]
    findings: type[Findings]
    needs: Needs
    settings: type[RangedSettings] | None = None
    reads: tuple[str, ...] = ()
    limit: str = ""
    usual_up_to: int | None = None

    @property
    def by_leaves(self) -> bool:
        """True if it sorts records by the leaves that a party knows."""
        return self.groups and self.needs is Needs.SETS and self.name != OWN_CUTS

    @property
    def groups(self) -> bool:
        """True if it sorts records into groups that should share a label."""
        return self.findings is AttackResult


def _later(module: str, name: str) -> Callable[[Any], Any]:
    """A function of a module that is imported, with its libraries, when it runs: commands list attacks at once.

    `name`: of the function, or of a method behind its class and a dot.
    """

    def run(evidence: Any) -> Any:
        return attrgetter(name)(importlib.import_module(module))(evidence)

    run.__module__, run.__qualname__ = module, name
    return run


#: The attack that needs own splits alone.
OWN_CUTS = "own-cuts"
#: Figures of --fail-above of several attacks.
_V_MEASURE, _RECORDS = "its V-measure", "SSIM of images; of tables the share of the mean record's error that is removed"
_AUC = "its AUC by the nodes that a party knows, with or without the party's own columns"


_grouping = partial(Attack, needs=Needs.SETS, findings=AttackResult, settings=Settings, limit=_V_MEASURE)
_by_known_labels = partial(
    Attack, needs=Needs.KNOWN_LABELS, findings=KnownLabelResult, settings=KnownSettings, limit=_AUC
)
_without_labels = partial(_by_known_labels, findings=RankedResult, limit="its AUC by what the training told")
_on_shared_labels = partial(Attack, needs=Needs.SHARED_LABELS)
_on_gradients = partial(Attack, needs=Needs.GRADIENTS, settings=NetworkSettings)
_on_columns = partial(Attack, needs=Needs.EMBEDDINGS, settings=FeatureSettings)
_on_sums = partial(Attack, needs=Needs.SUMS, settings=SumsSettings)
_on_scores = partial(Attack, needs=Needs.SCORES, settings=DecodingSettings)
_on_published = partial(Attack, needs=Needs.PUBLISHED)
#: All attacks, in the order of a report.
ROWS: tuple[Attack, ...] = (
    _grouping(
        "cl",
        "CL",
        "k-means on the attacker's own features: what it knows without the protocol",
        _later("treetap.attacks.id2graph.grouping", "cl"),
        needs=Needs.COLUMNS,
        reads=KMEANS,
    ),
    _grouping(
        "uni",
        "UNI",
        "union–find: records that a chain of the attacker's leaves joins share a label",
        _later("treetap.attacks.id2graph.grouping", "uni"),
    ),
    _grouping(
        "uni+cl",
        "UNI+CL",
        "k-means on own features and the groups of uni",
        _later("treetap.attacks.id2graph.grouping", "uni_cl"),
        reads=("alpha", *KMEANS),
    ),
    _grouping(
        "id2graph",
        "ID2Graph",
        "communities of the graph of records that share leaves, then k-means; memory grows with N²",
        _later("treetap.attacks.id2graph.grouping", "id2graph"),
        reads=(*LOUVAIN, "max_entries"),
        limit="its V-measure, and those of its other forms",
        usual_up_to=EXACT_UP_TO,
    ),
    _grouping(
        "id2graph-chunked",
        "ID2Graph, chunked",
        "the same on leaves cut into chunks of chunk_size records, as the paper does for large N",
        _later("treetap.attacks.id2graph.grouping", "id2graph_chunked"),
        reads=(*LOUVAIN, *CHUNKS),
        usual_up_to=0,
    ),
    _grouping(
        "id2graph-quotient",
        "ID2Graph, quotient",
        "the same as id2graph with records in the same leaves merged: same modularity, any N",
        _later("treetap.attacks.id2graph.grouping", "id2graph_quotient"),
        reads=LOUVAIN,
    ),
    _grouping(
        OWN_CUTS,
        "Own winning splits",
        "k-means on the sides of the party's own splits, of all trees, for records that may lie in their nodes",
        _later("treetap.attacks.id2graph.grouping", "own_cuts"),
        reads=("discount", "max_entries", *KMEANS[1:]),
    ),
    _by_known_labels(
        "known-neighbours",
        "Known labels: nearest neighbours",
        "the labels of the nearest known records, by the nodes that records lie in over all trees",
        _later("treetap.attacks.known_labels.naming", "known_neighbours"),
    ),
    _by_known_labels(
        "known-regression",
        "Known labels: logistic regression",
        "a logistic regression on the nodes that records lie in over all trees, fitted to known labels",
        _later("treetap.attacks.known_labels.naming", "known_regression"),
    ),
    _without_labels(
        "first-component",
        "First component",
        "order of records by the first principal component of own splits, of leaves and of nodes, without a label",
        _later("treetap.attacks.known_labels.naming", "first_component"),
    ),
    _without_labels(
        "vote",
        "Vote of own splits",
        "order of records by the weighted sides of own splits, each turned to agree with the heaviest, without a label",
        _later("treetap.attacks.known_labels.naming", "vote"),
    ),
    _without_labels(
        "heaviest-cut",
        "Heaviest own split",
        "the sides of the own split of the largest weight, without a label",
        _later("treetap.attacks.known_labels.naming", "heaviest_cut"),
    ),
    _on_shared_labels(
        "label_guess",
        "Guesses of other parties' labels",
        "sign of the leaf weights that a party received, over records that it does not label",
        _later("treetap.attacks.pivodl.label_guess", "label_guess"),
        LabelGuess,
        limit="the AUC of the guess of other parties' labels by received leaf weights",
    ),
    _on_shared_labels(
        "gain_inversion",
        "Gain inversion",
        "exact leaf weights from announced gains",
        _later("treetap.attacks.pivodl.evidence", "gain_inversion"),
        GainInversionFigures,
    ),
    _on_shared_labels(
        "differential",
        "Differential attack",
        "labels from sums over sets that differ in few records",
        _later("treetap.attacks.pivodl.evidence", "differential"),
        DifferentialFigures,
    ),
    _on_shared_labels(
        "disclosed",
        "What the messages disclose",
        "counts of what the messages disclose: bins, records of nodes, sums",
        _later("treetap.attacks.pivodl.evidence", "disclosed"),
        DisclosedFigures,
    ),
    _on_shared_labels(
        "source_columns",
        "Columns of other parties",
        "bins of records that a party does not label, from exact bins of those that it does, left sets and opened sums",
        _later("treetap.attacks.pivodl.evidence", "source_columns"),
        SourceColumns,
        limit="the share of any party's cells, of records that another one does not label, that this one places right",
    ),
    _on_gradients(
        "gradient-clusters",
        "Gradients: clusters",
        "k-means on the directions of the gradients of an epoch, without a label",
        _later("treetap.attacks.networks.gradients", "cluster_figures"),
        ClusterFigures,
        limit="the V-measure of the clusters of gradients",
    ),
    _on_gradients(
        "gradient-labels",
        "Gradients: inferred labels",
        "labels of all training records from gradients and few known labels, and a model of one's own",
        _later("treetap.attacks.networks.gradients", "label_figures"),
        LabelFigures,
        limit="the share of other training labels that follow from gradients and the known ones",
    ),
    _on_gradients(
        "norm-scoring",
        "Gradients: norm-based scoring",
        "two classes: AUC of the length of gradients",
        _later("treetap.attacks.networks.gradients", "norm_scoring"),
        ScoreFigures,
    ),
    _on_gradients(
        "direction-scoring",
        "Gradients: direction-based scoring",
        "two classes: AUC of the cosine with the gradient of one known record of the second class",
        _later("treetap.attacks.networks.gradients", "direction_scoring"),
        ScoreFigures,
    ),
    _on_gradients(
        "completion",
        "Model completion",
        "a head on the own published bottom model, beside untrained bottoms and training from scratch",
        _later("treetap.attacks.networks.completion", "completion_figures"),
        CompletionFigures,
    ),
    _on_columns(
        "attributes",
        "Columns, one by one",
        "a classifier or regression for each column, from embeddings and columns of auxiliary records",
        _later("treetap.attacks.features.guesses", "Attacker.attributes"),
        Attribute,
        limit="the accuracy of the guess of any column, of numbers its R²",
    ),
    _on_columns(
        "decode",
        "Whole records: inverse network",
        "an inverse network from embeddings to records, fitted to auxiliary records",
        _later("treetap.attacks.features.guesses", "Attacker.decode"),
        Reconstruction,
        limit=f"by an inverse network: {_RECORDS}",
    ),
    _on_columns(
        "match",
        "Whole records: surrogate",
        "records whose embedding by a surrogate of the party's own model is nearest to the one received",
        _later("treetap.attacks.features.guesses", "Attacker.match"),
        Reconstruction,
        limit=f"by a surrogate of the feature party's model: {_RECORDS}",
    ),
    _on_columns(
        "match-exact",
        "Whole records: published model",
        "the same with the published model: an upper bound for a prediction, whose embeddings it made",
        _later("treetap.attacks.features.guesses", "Attacker.match_exact"),
        Reconstruction,
        limit=f"by the feature party's published model: {_RECORDS}",
    ),
    _on_sums(
        "columns",
        "Columns by opened sums",
        "bins of a feature party's records, from the sums and left sets that the label holder of trees gets",
        _later("treetap.attacks.sums.attack", "read_columns"),
        ColumnFigures,
        limit="the share of a feature party's cells that the label holder placed in their bins",
    ),
    _on_sums(
        "reverse-sum",
        "Columns by marks in g and h",
        "bins of records that a label holder of trees has marked by bits of g and h; none where it is honest",
        _later("treetap.attacks.sums.reverse_sum", "read_marks"),
        MarkedCells,
    ),
    _on_scores(
        "path-decoding",
        "Path decoding",
        "the leaves, and so other parties' splits, behind each score of eini or lattice, by the label holder's weights",
        _later("treetap.attacks.predictions.evidence", "path_decoding"),
        DecodedPaths,
        limit="the share of the records of a prediction whose whole path is known",
    ),
    _on_scores(
        "prediction-inversion",
        "Prediction inversion",
        "exact leaf weights from the scores that the recipient of a masked prediction got, then its records' leaves",
        _later("treetap.attacks.predictions.evidence", "prediction_inversion"),
        InvertedWeights,
        limit="the share of leaf weights that came with noise and follow exactly from scores",
    ),
    _on_published(
        "membership",
        "Membership",
        "was a record in the training: likelihood ratios under shadow models with and without it, and confidence alone",
        _later("treetap.attacks.published.membership", "membership"),
        Membership,
        limit="the AUC by any published artefact",
    ),
    _on_published(
        "member-columns",
        "Columns of training records",
        "each column from all others and the score, or by the value that fits the record's label and its score best",
        _later("treetap.attacks.published.membership", "member_columns"),
        ColumnGuess,
        limit="accuracy, or R² of a number, by any published artefact",
    ),
)
_BY_NAME = {attack.name: attack for attack in ROWS}


def row(name: str) -> Attack:
    """The attack of this name. Raises BadInput for an unknown one."""
    if name not in _BY_NAME:
        raise BadInput(f"attack {name!r}: unknown; known are {', '.join(_BY_NAME)}{did_you_mean(name, _BY_NAME)}")
    return _BY_NAME[name]


def rows(*needs: Needs) -> dict[str, Attack]:
    """Name → attack, of those that need one of these views."""
    return {name: attack for name, attack in _BY_NAME.items() if attack.needs in needs}


#: The attacks that group records.
GROUPING = rows(Needs.COLUMNS, Needs.SETS)


def chosen(names: list[str], what: str, *needs: Needs) -> list[str]:
    """The names, each once, in the order of the rows. ValueError, with the word for `what`, for one of another view."""
    known = rows(*needs)
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}; known are {', '.join(known)}{did_you_mean(name, known)}")
    return [name for name in known if name in names]


def attack(
    name: str,
    leaves: Leaves,
    records: int,
    features: npt.ArrayLike | None,
    clusters: int,
    settings: Settings | None = None,
    cuts: OwnCuts = (),
) -> Outcome:
    """Run one of the attacks that group records; the arguments are those of `GroupEvidence`.

    Raises:
        BadInput: an unknown attack, C outside 2..N, wrong leaves or features, a graph too large for the exact form.
    """
    if name not in GROUPING:
        raise BadInput(f"attack {name!r}: unknown; known are {', '.join(GROUPING)}")
    from treetap.attacks.id2graph.grouping import GroupEvidence

    evidence = GroupEvidence(leaves, records, features, clusters, settings or Settings(), cuts)
    outcome: Outcome = row(name).run(evidence)
    return replace(outcome, parameters=evidence.settings.of(*row(name).reads))
