"""The defences, a row each: what lowers leakage of labels, of columns or by predictions, and where it is written.

docs/register.md prints the rows. A further defence is a module of its own, a setting, and a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tools.renderers import papers
from tools.renderers.papers import Paper
from treetap.protocols.exclusions import Feature
from treetap.protocols.registry import TRAINING, training


@dataclass(frozen=True)
class Defence:
    """One defence.

    Attributes:
        key: the setting, as a person writes it.
        of: what it protects: labels, columns, or paths of a prediction.
        where: the file that has it.
        line: what it does.
        module: the path of its code.
        feature: by which protocols declare that they have it; None: `protocols` names them.
        published: its name in its paper; empty: it is of this project.
    """

    key: str
    of: str
    where: str
    line: str
    module: str
    feature: Feature | None = None
    protocols: tuple[str, ...] = ()
    published: str = ""
    paper: Paper | None = None

    @property
    def had_by(self) -> tuple[str, ...]:
        """The protocols that have it."""
        if self.feature is None:
            return self.protocols
        return tuple(name for name in TRAINING if self.feature in training(name).capabilities)


_HOLDER, _FEATURE_PARTY, _JOB = "label holder's file", "feature party's file", "job"
_FEATURE_PARTY_POLICY = "feature party's policy"
_GRADIENTS = "treetap/neural/gradient_defences.py"
#: Kind of a change of gradients → its name in the paper, and what it does.
_KINDS: Mapping[str, tuple[str, str]] = {
    "noise": ("noisy gradients", "Laplace noise on every number of a gradient"),
    "compression": ("gradient compression", "the smallest numbers of a batch's gradients become 0"),
    "ppdl": ("privacy-preserving deep learning (PPDL)", "noise, and of the numbers the few that exceed a threshold"),
    "levels": ("DiscreteSGD", "numbers of gradients rounded to few levels"),
}
#: All defences, in the order of the register.
DEFENCES: tuple[Defence, ...] = (
    Defence(
        "id_lmid",
        "labels",
        _HOLDER,
        "no set of records is shown that says more than ξ nats about the label",
        "treetap/trees/withholding.py",
        Feature.ID_LMID,
        published="ID-LMID",
        paper=papers.ID2GRAPH,
    ),
    Defence(
        "label_dp",
        "labels",
        _HOLDER,
        "training on labels of which some were changed by lot, with an ε and a ledger",
        "party/defences/noisy_labels.py",
        Feature.LABEL_DP,
        published="LP-MST",
        paper=papers.NOISY_LABELS,
    ),
    Defence(
        "grafting",
        "labels",
        _HOLDER,
        "the label holder grows anew what noisy labels have spoilt",
        "treetap/trees/repair.py",
        Feature.GRAFTING,
        published="Grafting-LDP",
        paper=papers.ID2GRAPH,
    ),
    Defence(
        "refit",
        "labels",
        _HOLDER,
        "weights of leaves from clean labels, which stay at the label holder",
        "treetap/trees/repair.py",
        Feature.REFIT,
    ),
    Defence(
        "reduced_leakage",
        "labels",
        _HOLDER,
        "the first trees are grown by the label holder alone",
        "treetap/trees/withholding.py",
        Feature.REDUCED_LEAKAGE,
        published="Reduced-Leakage",
        paper=papers.SECUREBOOST,
    ),
    Defence(
        "max_leakage",
        "labels",
        "label holder's policy",
        "an account of all sets that a party comes to know; the job stops, or a set is withheld, above it",
        "party/growth/rules/released_sets.py",
        Feature.MAX_LEAKAGE,
    ),
    Defence(
        "epsilon",
        "labels",
        _JOB,
        "noise on the leaf weights that a source receives",
        "party/pivodl/leaf_weights.py",
        protocols=("pivodl",),
        published="partial differential privacy (section III-C)",
        paper=papers.PIVODL,
    ),
    Defence(
        'gain_comparison = "secure"',
        "labels",
        _JOB,
        "the best split is found without a gain that anybody sees",
        "party/pivodl/split_party.py",
        protocols=("pivodl",),
    ),
    Defence(
        "dimip",
        "labels",
        _HOLDER,
        "a term in the gradients that return, against what the party's own model says of labels",
        _GRADIENTS,
        Feature.DIMIP,
        published="DIMIP",
        paper=papers.DIMIP,
    ),
    *(
        Defence(
            f'gradient = {{kind = "{kind}"}}',
            "labels",
            _HOLDER,
            line,
            _GRADIENTS,
            Feature.GRADIENT,
            published=name,
            paper=papers.LABEL_INFERENCE,
        )
        for kind, (name, line) in _KINDS.items()
    ),
    Defence(
        "min_cell_records",
        "columns",
        _FEATURE_PARTY,
        "bins of few drawn records are merged before they are summed",
        "treetap/trees/cell_merging.py",
        Feature.MIN_CELL_RECORDS,
    ),
    Defence(
        "min_side_records",
        "columns",
        _FEATURE_PARTY,
        "no split of the party leaves few drawn records on a side, which is found on shares",
        "party/growth/shared_choice.py",
        Feature.MIN_SIDE_RECORDS,
    ),
    Defence(
        "column_privacy",
        "columns",
        _FEATURE_PARTY,
        "discrete Gaussian noise on every sum, accounted for over attempts",
        "treetap/privacy/column_privacy.py",
        Feature.COLUMN_PRIVACY,
    ),
    Defence(
        "sensitivity",
        "columns",
        _FEATURE_PARTY,
        "a penalty on how far embeddings follow their inputs",
        "treetap/neural/own_step.py",
        Feature.SENSITIVITY,
        published="SensFL",
        paper=papers.SENSFL,
    ),
    Defence(
        "dp_sgd",
        "columns",
        _FEATURE_PARTY,
        "clipped gradients and noise in the party's own steps",
        "treetap/neural/own_step.py",
        Feature.DP_SGD,
        published="DP-SGD",
        paper=papers.DP_SGD,
    ),
    Defence(
        'protocol = "eini"',
        "paths of a prediction",
        "prediction",
        "the label holder gets one sum per record, and no direction of a split",
        "party/eini/",
        protocols=("eini", "eini-lattice"),
        published="Fed-EINI",
        paper=papers.FED_EINI,
    ),
    Defence(
        'protocol = "masked"',
        "paths of a prediction",
        "prediction",
        "parties add up masked shares; masks cancel in the sum",
        "party/masked/",
        protocols=("masked",),
        published="secure aggregation (section 4.0.1)",
        paper=papers.SECURE_AGGREGATION,
    ),
    Defence(
        "min_candidate_bits",
        "paths of a prediction",
        _FEATURE_PARTY_POLICY,
        "no part in predictions whose scores tell paths",
        "party/policy_tables.py",
        protocols=("eini", "eini-lattice"),
    ),
)
