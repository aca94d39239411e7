"""A published model as XGBoost's JSON: all parts of an experiment's run, or a label holder's that stands alone.

A model in XGBoost's JSON, for a reader who knows the meaning of all its splits: XGBoost 3 predicts the same by it.

XGBoost keeps numbers in 32 bits. A threshold becomes one that divides the values of the training as it did; where two
of them are one number in 32 bits there is none. Weights are rounded. A forest's trees add up to its mean.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from treetap.arrays import Floats
from treetap.errors import BadInput, DataError, did_you_mean
from treetap.lab.experiment.joint_model import JointModel, OpenModel, open_shards, shards_in, table_of_model
from treetap.lab.experiment.party_tables import ID
from treetap.models.durable import write_whole
from treetap.models.own_split import OwnSplit
from treetap.models.store import WEIGHTS, read_manifest
from treetap.party.config import read
from treetap.protocols.registry import training
from treetap.tables.config import CATEGORICAL, TableConfig
from treetap.tables.reading import Table
from treetap.trees.ensemble import Ensemble, Split, Tree, deciding_splits, deciding_tree
from treetap.trees.job_params import BINARY, REGRESSIONS, UNBOUNDED
from treetap.trees.loss import largest_step

#: The release whose format this is.
VERSION = (3, 2, 0)
#: In the place of a threshold above every value.
_LARGEST = float(np.finfo(np.float32).max)
_NO_PARENT = 2**31 - 1
#: Letters that XGBoost has in no name of a feature.
_NOT_IN_NAMES = str.maketrans("[]<", "()_")


@dataclass(frozen=True)
class Column:
    """A feature of a party: its name, and where they are known the values (n,) that it was trained on.

    `categorical`: its values are codes of categories.
    """

    name: str
    values: Floats | None = field(default=None, repr=False)
    categorical: bool = False


def feature_names(columns: Mapping[str, Sequence[Column]]) -> list[str]:
    """`party.column` of every feature, in the order of XGBoost's matrix; letters that it refuses are replaced.

    Raises:
        BadInput: two features would have one name.
    """
    names = [f"{party}.{column.name}".translate(_NOT_IN_NAMES) for party, own in columns.items() for column in own]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(
            f"two features would be called {twice[0]!r} in XGBoost, whose names have no [, ] and <: rename one"
        )
    return names


def xgboost_model(
    ensemble: Ensemble,
    meaning: Callable[[Split], OwnSplit],
    columns: Mapping[str, Sequence[Column]],
    attributes: Mapping[str, str],
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Json:
    """The content of XGBoost's file.

    Args:
        ensemble: of boosting or a forest; only the trees that predictions use are written.
        meaning: of the splits, by the tables of their owners.
        columns: party → its features in the order of its splits; parties are in the order of the matrix.
        attributes: further texts in the model, by name.
        options: parameters of the training, of which an objective may have some.

    Raises:
        BadInput: training values on both sides of a threshold are one number in 32 bits, or two features would have
            one name.
    """
    names, trees = feature_names(columns), ensemble.used_trees
    width = len(ensemble.base_margin)
    base, shift = _base(ensemble)
    # scores are sums over trees, so that one tree can carry what the base score cannot hold
    made = [
        _nodes(tree, number, meaning, columns, ensemble.divisor, 0.0 if number else shift)
        for number, tree in enumerate(trees)
    ]
    groups = [tree.outputs[0] if len(tree.outputs) == 1 else 0 for tree in trees]
    per_round = ensemble.trees_per_round
    last = {"best_iteration": str(len(trees) // per_round - 1)} if ensemble.best_round is not None else {}
    classes = ensemble.objective == "multi:softprob"
    return {
        "learner": {
            "attributes": {**last, **attributes},
            "feature_names": names,
            "feature_types": ["c" if column.categorical else "float" for own in columns.values() for column in own],
            "gradient_booster": {
                "model": {
                    "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
                    "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
                    "iteration_indptr": list(range(0, len(trees) + 1, per_round)),
                    "tree_info": groups,
                    "trees": made,
                },
                "name": "gbtree",
            },
            "learner_model_param": {
                "base_score": f"[{','.join(f'{value:.9E}' for value in base)}]",
                "boost_from_average": "0",
                "num_class": str(width if classes else 0),
                "num_feature": str(len(names)),
                "num_target": str(1 if classes else width),
            },
            "objective": _objective(ensemble, width, options),
        },
        "version": list(VERSION),
    }


def threshold_of(split: OwnSplit, column: Column, party: str) -> float:
    """The threshold in 32 bits that sends the same training values left.

    Of a column that is not known, or whose values all have 32 bits, it is the least that is not below the threshold,
    which is right for every value of 32 bits. Of others it is the nearest, which values of 64 bits are rounded to
    together with the threshold; where training values are rounded across that, it is moved between them.

    Raises:
        BadInput: the nearest values on both sides are one number in 32 bits.
    """
    if math.isinf(split.threshold):
        return math.copysign(_LARGEST, split.threshold)
    nearest, values = np.float32(split.threshold), column.values
    if values is None or np.array_equal(values, values.astype(np.float32), equal_nan=True):
        below = float(nearest) < split.threshold
        return float(np.nextafter(nearest, np.float32(np.inf)) if below else nearest)
    left, right = values[values < split.threshold], values[values >= split.threshold]
    lower = np.float32(left.max()) if left.size else np.float32(-np.inf)
    upper = np.float32(right.min()) if right.size else np.float32(np.inf)
    if lower >= upper:
        raise BadInput(
            f"column {column.name!r} of {party}: values on both sides of the threshold {split.threshold!r} are one "
            "number in 32 bits, in which XGBoost keeps them: train on a column with fewer digits"
        )
    return float(nearest if lower < nearest else np.nextafter(lower, np.float32(np.inf)))


def _base(ensemble: Ensemble) -> tuple[list[float], float]:
    """XGBoost's base score of each output, and what the first tree has to add: logistic ones are probabilities."""
    if ensemble.averaged:
        return [0.0] * len(ensemble.base_margin), 0.0
    if ensemble.objective in UNBOUNDED:  # XGBoost has their exponentials
        (margin,) = ensemble.base_margin
        score = np.float32(math.exp(margin))
        return [float(score)], margin - float(np.log(score))
    if ensemble.objective not in BINARY:
        return [float(np.float32(value)) for value in ensemble.base_margin], 0.0
    (margin,) = ensemble.base_margin
    chance = np.float32(1 / (1 + math.exp(-margin))) if abs(margin) < 80 else np.float32(0.5)
    if not 0 < chance < 1:
        chance = np.float32(0.5)
    return [float(chance)], margin + float(np.log(np.float32(1) / chance - np.float32(1)))


def _objective(ensemble: Ensemble, width: int, options: Mapping[str, Any]) -> Json:
    if ensemble.objective in UNBOUNDED:
        step = largest_step(ensemble.objective, options.get("max_delta_step"))
        own: Json = {
            "poisson_regression_param": {"max_delta_step": str(step)},
            "tweedie_regression_param": {"tweedie_variance_power": str(options.get("tweedie_variance_power", 1.5))},
            "aft_loss_param": {
                "aft_loss_distribution": str(options.get("aft_loss_distribution", "normal")),
                "aft_loss_distribution_scale": str(options.get("aft_loss_distribution_scale", 1.0)),
            },
            "reg_loss_param": {"scale_pos_weight": "1"},
        }
        return {"name": ensemble.objective, **own}
    if ensemble.averaged or ensemble.objective in REGRESSIONS:
        return {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}}
    if ensemble.objective in BINARY:
        return {"name": ensemble.objective, "reg_loss_param": {"scale_pos_weight": "1"}}
    return {"name": ensemble.objective, "softmax_multiclass_param": {"num_class": str(width)}}


def _nodes(
    tree: Tree,
    number: int,
    meaning: Callable[[Split], OwnSplit],
    columns: Mapping[str, Sequence[Column]],
    divisor: int,
    shift: float,
) -> Json:
    """The nodes of a tree that decide values, from the root on level by level, as XGBoost has them.

    Of several outputs, leaves have places among their weights. `divisor`: of the weights; `shift`: what they have in
    addition.
    """
    deciding, several = deciding_tree(tree), len(tree.outputs) > 1
    splits = {split.node: split for split in deciding.splits}
    cover = {split.node: split.cover for split in deciding.splits} | {it.node: it.cover for it in deciding.leaves}
    leaves = sorted(leaf.node for leaf in deciding.leaves)
    weights = {leaf.node: np.asarray(leaf.weights, dtype=np.float64) / divisor + shift for leaf in deciding.leaves}
    # a split's own weight is not kept; children have larger numbers than their parent, hence are done before it
    for node in sorted(splits, reverse=True):
        a, b = cover[2 * node], cover[2 * node + 1]
        shares = (a / (a + b), b / (a + b)) if a + b > 0 else (0.5, 0.5)
        weights[node] = np.asarray(shares[0] * weights[2 * node] + shares[1] * weights[2 * node + 1])
    numbers = sorted(cover)
    place = {node: k for k, node in enumerate(numbers)}
    first = dict(zip(columns, np.cumsum([0, *map(len, columns.values())]).tolist(), strict=False))
    own = {node: meaning(split) for node, split in splits.items()}
    # XGBoost reads no condition of categories
    conditions = {node: 0.0 if several else float(np.float32(weights[node][0])) for node in leaves}
    for node, split in splits.items():
        by_number, of = own[node].categories is None, columns[split.owner][own[node].feature]
        conditions[node] = threshold_of(own[node], of, split.owner) if by_number else 0.0
    # the categories that go right, node after node, and where those of each begin
    of_categories = {place[node]: codes for node in sorted(own) if (codes := own[node].categories) is not None}
    sizes = [len(codes) for codes in of_categories.values()]
    right_of_leaves = {node: k if several else -1 for k, node in enumerate(leaves)}
    no_parent = -1 if several else _NO_PARENT
    vectors = {"leaf_weights": _singles([weights[node] for node in leaves])} if several else {}
    return {
        "base_weights": _singles([weights[node] for node in numbers]),
        "categories": [code for codes in of_categories.values() for code in codes],
        "categories_nodes": list(of_categories),
        "categories_segments": np.cumsum([0, *sizes])[: len(sizes)].tolist(),
        "categories_sizes": sizes,
        "default_left": [int(node in own and own[node].missing_left) for node in numbers],
        "id": number,
        **vectors,
        "left_children": [place[2 * node] if node in own else -1 for node in numbers],
        "loss_changes": [splits[node].gain if node in splits else 0.0 for node in numbers],
        "parents": [place[node >> 1] if node > 1 else no_parent for node in numbers],
        "right_children": [place[2 * node + 1] if node in own else right_of_leaves[node] for node in numbers],
        "split_conditions": [conditions[node] for node in numbers],
        "split_indices": [first[splits[node].owner] + own[node].feature if node in own else 0 for node in numbers],
        "split_type": [int(k in of_categories) for k in range(len(numbers))],
        "sum_hessian": [cover[node] for node in numbers],
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(sum(map(len, columns.values()))),
            "num_nodes": str(len(numbers)),
            "size_leaf_vector": str(len(tree.outputs)),
        },
    }


def _singles(weights: Sequence[Floats]) -> list[float]:
    singles: list[float] = np.concatenate(weights).astype(np.float32).astype(float).tolist()
    return singles


Json = dict[str, Any]
#: The attribute of XGBoost's model with the columns behind its features, as JSON.
ATTRIBUTE = "treetap"
#: A party's part of the model in the folder of an experiment's run, and the table on which it was trained.
_TRAINED_ON = "train.parquet"


def check_exportable(protocol: str) -> None:
    """`BadInput` where XGBoost has no place for models of a training protocol."""
    described = training(protocol)
    if not described.grows_trees:
        raise BadInput(f"--export: protocol {protocol!r} trains networks, and XGBoost's models are trees; leave it out")
    if described.one_role:
        raise BadInput(f"--export: {_no_holder(protocol)}; leave it out")


def _no_holder(protocol: str) -> str:
    return (
        f"a model of protocol {protocol!r} has no label holder: its leaf weights lie apart, some of them without the "
        "splits above them"
    )


def export_run(folder: Path, out: Path) -> list[str]:
    """Write the joint model of an experiment's run; returns the parties.

    Raises:
        BadInput: the folder is not that of one run, or the model has no place in XGBoost; `out` cannot be written.
    """
    run, shards = shards_in(folder)
    # thresholds are of 64 bits: the values tell which number of 32 bits divides them alike
    tables = {party: run / party / _TRAINED_ON for party in shards}
    if gone := [str(path) for path in tables.values() if not path.is_file()]:
        raise BadInput(f"{gone[0]}: is not there, and by its values thresholds are rounded to 32 bits; bring it back")
    joint = JointModel(shards)
    manifests = {party: joint.manifests[party] for party in (joint.label_holder, *joint.manifest["feature_parties"])}
    trained = {
        party: table_of_model(own, TableConfig(path=str(tables[party]), id=ID)) for party, own in manifests.items()
    }
    _write(out, _content(joint.opened, manifests, trained))
    return list(manifests)


def export_alone(folder: Path, table: TableConfig | None, out: Path) -> str:
    """Write a label holder's model whose splits are all its own; returns the party.

    `table`: on which it was trained; without it thresholds are right for values of 32 bits.

    Raises:
        BadInput: other parties own splits of it, or it has no place in XGBoost; `out` cannot be written.
    """
    manifest = read_manifest(folder)
    party = str(manifest["party"])
    if WEIGHTS in manifest["files"]:
        raise BadInput(f"{folder}: model {manifest['job']} is a network, and XGBoost's models are trees")
    if manifest["role"] == "party":
        raise BadInput(f"{folder}: {_no_holder(manifest['protocol'])}")
    if manifest["role"] != "label_holder":
        raise BadInput(f"{folder}: is a feature party's part of a model; the label holder's is the one to export")
    trained = {} if table is None else {party: table_of_model(manifest, table)}
    _write(out, _content(open_shards({party: folder}), {party: manifest}, trained))
    return party


def trained_table(config: Path | None, name: str | None) -> TableConfig | None:
    """A table of a party's configuration by its name, which may be none."""
    if config is None or name is None:
        return None
    tables = read(config).tables
    if name not in tables:
        raise BadInput(
            f"{config}: has no table {name!r} (it has {', '.join(tables) or 'none'}){did_you_mean(name, tables)}"
        )
    return tables[name]


def _content(opened: OpenModel, manifests: Mapping[str, Json], trained: Mapping[str, Table]) -> Json:
    splits = [split for tree in opened.published.used_trees for split in deciding_splits(tree)]
    if others := Counter(split.owner for split in splits if split.owner not in manifests):
        raise BadInput(
            f"{sum(others.values())} of {len(splits)} splits are those of {', '.join(others)}, whose columns and "
            "thresholds no other party knows: a label holder's part stands alone only if all splits are its own"
        )
    columns = {
        party: [
            Column(
                name,
                trained[party].features[:, place] if party in trained else None,
                categorical=manifest.get("categories", {}).get(name, {}).get("encode") == CATEGORICAL,
            )
            for place, name in enumerate(manifest["columns"])
        ]
        for party, manifest in manifests.items()
    }
    described = json.dumps(_described(manifests, columns), ensure_ascii=False)
    return xgboost_model(
        opened.published, opened.meaning, columns, {ATTRIBUTE: described}, next(iter(manifests.values()))["params"]
    )


def _described(manifests: Mapping[str, Json], columns: Mapping[str, list[Column]]) -> Json:
    """The columns behind the features, in the order of XGBoost's matrix, and the classes."""
    (holder, first), *_ = manifests.items()
    names = iter(feature_names(columns))
    features = []
    for party, manifest in manifests.items():
        made = {
            feature: (source, category)
            for source, category in manifest.get("categories", {}).items()
            for feature in category["features"]
        }
        for column in manifest["columns"]:
            source, encoding = made.get(column, (column, {}))
            kept = {key: value for key, value in encoding.items() if key != "features"}
            features.append({"feature": next(names), "party": party, "column": source, "made": column, **kept})
    return {
        "job": first["job"],
        "protocol": first["protocol"],
        "label_holder": holder,
        "objective": first["objective"],
        "classes": first["classes"],
        "missing": first["missing"],
        "features": features,
    }


def _write(out: Path, content: Json) -> None:
    """Thresholds and weights are private, hence the file is its owner's alone."""
    try:
        write_whole(out, (json.dumps(content, allow_nan=False) + "\n").encode())
    except OSError as failure:
        raise BadInput(f"--out {out}: cannot be written: {failure.strerror}") from None
    except ValueError:
        raise DataError(f"{out}: a weight or a gain is no finite number, which JSON cannot have") from None
