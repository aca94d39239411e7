"""One trial of the ID2Graph paper's experiments: a model, what the other party sees of it, the attacks, their scores.

The model is trained by a real federation, whose transcripts `treetap audit` attacks, or centrally, where the attacker's
view is expected_views from the open model. Both give the same leaves.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from id2graph_sets import SETS, left_share, stored, table_of

from treetap.arrays import Ints
from treetap.attacks.id2graph.clustering import Leaves
from treetap.attacks.id2graph.schema import Settings, usual_discount
from treetap.attacks.registry import EXACT_UP_TO, attack
from treetap.attacks.scores import score
from treetap.attacks.view.known_trees import expected_views
from treetap.attacks.view.view import read_view
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table, split
from treetap.lab.experiment.party_tables import ID, Split
from treetap.lab.experiment.run import run_seed
from treetap.lab.local_federation import clean_end, working_folder
from treetap.tables.features import Held
from treetap.tables.label_columns import LabelCells
from treetap.tables.labels import read_labels
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids
from treetap.trees import centralised
from treetap.trees.binning import bin_table
from treetap.trees.centralised import train_forest
from treetap.trees.params import BoostingParams, ForestParams

HOLDER, ATTACKER = "label-holder", "attacker"
WAYS = ("wire", "centralised")
KEY_BITS = 1024
MAX_BIN = 32
BASELINES = ("cl", "uni", "uni+cl")
QUOTIENT = "id2graph-quotient"
#: The chunked graph with edges between chunks as the paper's text has them, not as its algorithm prints them.
LINKED = "id2graph-chunked, linked"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Trial:
    """What is asked. `top`: the attacker has the most informative so many percent of the columns, not a random half."""

    set: str
    model: str
    seed: int
    over: str
    depth: int = 6
    trees: int = 5
    top: int | None = None


def attacks_of(trial: Trial) -> tuple[str, ...]:
    """The attacks of a trial: the exact graph where it fits, both readings of chunks where the paper has chunks."""
    if (trial.depth, trial.trees, trial.top) != (6, 5, None):
        return (*BASELINES, QUOTIENT)
    exact = ["id2graph"] if table_of(trial.set).num_rows <= EXACT_UP_TO else []
    chunked = ["id2graph-chunked", LINKED] if SETS[trial.set].chunked else []
    return (*BASELINES, *exact, *chunked, QUOTIENT)


def run(trial: Trial) -> dict[str, Any]:
    """The result of a trial: V-measure and other scores by attack, a digest of the attacker's leaves, seconds."""
    start = time.perf_counter()
    found = (_over_wire if trial.over == "wire" else _centralised)(trial)
    return {"trial": asdict(trial), **found, "seconds": round(time.perf_counter() - start, 2)}


def experiment(trial: Trial) -> ExperimentFile:
    """The trial as an experiment: parties, columns, job, audit."""
    given = SETS[trial.set]
    audited = [name for name in attacks_of(trial) if name != LINKED]
    return ExperimentFile.model_validate(
        {
            "data": {"path": str(stored(trial.set)), "label": given.label, "seed": trial.seed},
            "party": [
                {"name": HOLDER, "labels": True, **_columns(trial, HOLDER)},
                {"name": ATTACKER, **_columns(trial, ATTACKER)},
            ],
            "job": {"key_bits": KEY_BITS, **_job(trial)},
            "audit": {"attacks": audited, "by_tree": False, "settings": {"seed": trial.seed}},
        }
    )


def _job(trial: Trial) -> dict[str, Any]:
    """The paper's parameters; λ, γ, bins, least leaf and the forest's share of records are those of its program."""
    common = {
        "protocol": trial.model,
        "n_estimators": trial.trees,
        "max_depth": trial.depth,
        "max_bin": MAX_BIN,
        "colsample_bytree": 0.8,
    }
    if trial.model == "forest":
        return common | {"subsample": 0.8, "min_samples_leaf": 1, "binning": "per-node"}
    many = {"objective": "multi:softprob", "multi_strategy": "multi_output_tree"}
    softmax = many if SETS[trial.set].classes > 2 else {}
    return common | softmax | {"learning_rate": 0.3, "reg_lambda": 1.0, "gamma": 0.0, "min_child_weight": 0.0}


def _columns(trial: Trial, party: str) -> dict[str, Any]:
    given = SETS[trial.set]
    if trial.top is None and not given.images:
        return {"share": 0.5}
    every = [name for name in table_of(trial.set).column_names if name != given.label]
    if given.images:
        chosen = left_share(every, trial.top or 50)
    else:
        assert trial.top is not None
        ranked = sorted(every, key=importance(trial.set).__getitem__, reverse=True)
        chosen = ranked[: min(len(ranked) - 1, max(1, round(len(ranked) * trial.top / 100)))]
    return {"columns": [name for name in every if (name in chosen) == (party == ATTACKER)]}


@cache
def importance(name: str) -> dict[str, float]:
    """Mutual information (nats) of each column with the label.

    Columns of whole numbers with at most 100 values count as categories; of the others nearest neighbours estimate it
    (Kraskov, Stögbauer and Grassberger 2004), on at most 10,000 records.
    """
    from sklearn.feature_selection import mutual_info_classif

    table = table_of(name)
    label = SETS[name].label
    names = [column for column in table.column_names if column != label]
    x = np.stack([table.column(column).to_numpy() for column in names], axis=1).astype(np.float64)
    y = np.unique(np.asarray(table.column(label).to_pylist()), return_inverse=True)[1]
    kept = np.sort(np.random.default_rng(0).permutation(len(y))[:10_000])
    x, y = x[kept], y[kept]
    discrete = np.array([np.array_equal(column, np.rint(column)) and len(np.unique(column)) <= 100 for column in x.T])
    found = mutual_info_classif(x, y, discrete_features=discrete, random_state=0)
    return dict(zip(names, map(float, found), strict=True))


def _over_wire(trial: Trial) -> dict[str, Any]:
    """A federation of two parties and a coordinator, processes and sockets, and the audit of its transcripts."""
    asked, table = experiment(trial), _joined(trial.set)
    with clean_end(), working_folder(None, "treetap-id2graph-") as folder:
        audit = run_seed(asked, table, trial.seed, folder).audit
        assert audit is not None  # the experiment asks for it
        leaves = read_view(folder / ATTACKER / "state" / "transcripts" / "experiment", party=ATTACKER).leaves()
    drawn = split(asked, table, trial.seed)
    attacks = {
        name: {key: results[key] for key in ("v_measure", "ari", "accuracy", "groups", "seconds")}
        for name, results in audit[ATTACKER].items()
        if "v_measure" in results  # no figures of known labels
    }
    if LINKED in attacks_of(trial):
        x, y = _block(table, drawn, drawn.columns[ATTACKER]), _labels(asked, table, drawn)
        attacks[LINKED] = _attacked(LINKED, trial, leaves, x, y)
    return _found(drawn, leaves, attacks)


def _centralised(trial: Trial) -> dict[str, Any]:
    """The same model trained on the joined table, and the view that follows from it."""
    asked, table = experiment(trial), _joined(trial.set)
    drawn = split(asked, table, trial.seed)
    x = {name: _block(table, drawn, columns) for name, columns in drawn.columns.items()}
    y = _labels(asked, table, drawn)
    params = asked.job.model_copy(update={"seed": asked.job.seed + trial.seed}).params()
    bins = [
        (name, bin_table(block, drawn.columns[name], MAX_BIN, may_be_constant=drawn.columns[name]))
        for name, block in x.items()
    ]
    model: Any
    if isinstance(params, ForestParams):
        model = train_forest(list(x.items()), y, params, SETS[trial.set].classes, bins)
    else:
        assert isinstance(params, BoostingParams)
        model = centralised.train(bins, y, params, SETS[trial.set].classes)
    views = expected_views(model, list(x.items()), ATTACKER, drawn.columns[ATTACKER])
    leaves = [[leaf.records for leaf in view.leaves()] for view in views]
    attacks = {name: _attacked(name, trial, leaves, x[ATTACKER], y) for name in attacks_of(trial)}
    return _found(drawn, leaves, attacks)


def _attacked(name: str, trial: Trial, leaves: Leaves, x: Floats, y: Ints) -> dict[str, Any]:
    """Figures of one attack on the attacker's leaves and columns x (N, d), scored against y (N,)."""
    discount = usual_discount(trial.model)
    edges = {"chunk_edges": "linked"} if name == LINKED else {}
    settings = Settings.read({"discount": discount, "seed": trial.seed, **edges})
    kind = "id2graph-chunked" if name == LINKED else name
    outcome = attack(kind, leaves, len(y), x, SETS[trial.set].classes, settings)
    measured = score(y, outcome.clusters)
    return {
        "v_measure": measured.v_measure,
        "ari": measured.ari,
        "accuracy": measured.accuracy,
        "groups": outcome.found,
        "seconds": sum(outcome.seconds.values()),
    }


def _found(drawn: Split, leaves: Leaves, attacks: dict[str, Any]) -> dict[str, Any]:
    return {
        "records": len(drawn.train),
        "columns": {name: len(columns) for name, columns in drawn.columns.items()},
        "leaves": _digest(leaves),
        "attacks": attacks,
    }


@cache
def _joined(name: str) -> pa.Table:
    """The set with ids, checked as parties check it."""
    return read_table(experiment(Trial(name, "forest", 0, "centralised")), Path())


def _block(table: pa.Table, drawn: Split, columns: list[str]) -> Floats:
    """Columns of the training records (N, d), in the order of their ids."""
    part = table.select(columns).take(pa.array(drawn.train))
    return np.stack([part.column(name).to_numpy() for name in columns], axis=1).astype(np.float64)


def _labels(asked: ExperimentFile, table: pa.Table, drawn: Split) -> Ints:
    """Class numbers of the training records (N,), as the label holder would number them."""
    part = table.take(pa.array(drawn.train))
    ids = Ids.of_column(part.column(ID))
    none = Held(np.empty((len(ids), 0)))
    alone = Table(Path(asked.data.title), ids, [], none, LabelCells(part.column(asked.data.label)), drawn.train)
    return read_labels(alone, asked.data.label, asked.job.params().objective).values.astype(np.int64)


def _digest(leaves: Leaves) -> str:
    """SHA-256 over all leaves of all trees, to compare views."""
    sha = hashlib.sha256()
    for tree in leaves:
        for leaf in tree:
            sha.update(f"{len(leaf)},".encode() + leaf.astype("<i8").tobytes())
        sha.update(b";")
    return sha.hexdigest()[:16]
