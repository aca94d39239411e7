"""A model of trees with the shards of all its parties, which no party of a federation has, and its predictions.

The operator of an experiment or of a loopback federation holds all shards. Scores are those that the parties would
compute together, bit for bit, without a message. Gain and cost of a run are gathered from these shards and the parties'
accounts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.arrays import Bools, Floats, Ints
from treetap.errors import BadInput, DataError
from treetap.lab.experiment.results import Importance, Traffic
from treetap.models.own_split import OwnSplit
from treetap.models.store import JOIN, MANIFEST, TREES, VALUES, WEIGHTS, read_manifest, read_model, read_repaired
from treetap.party.prediction.scores_on_disk import Outcome
from treetap.tables.categories import Category
from treetap.tables.config import TableConfig
from treetap.tables.features import Held
from treetap.tables.label_columns import named_type, typed
from treetap.tables.reading import Table, read_table
from treetap.tables.record_ids import Ids, Unlike, check_values
from treetap.trees import ensemble
from treetap.trees.ensemble import Ensemble, Split, Tree, route, used_of
from treetap.trees.paths import RowsLeft, reached_values
from treetap.trees.shapley import Attributions, attributions
from treetap.wire.v2 import jobs_pb2

#: Classes that every job sends to every process; the tables for people leave them out or put them last.
PLAIN = ("CONTROL", "TOPOLOGY", "METRIC")


def collect(statuses: list[jobs_pb2.JobStatus], models: Mapping[str, Path]) -> dict[str, Any]:
    """The costs of jobs, as `RunResult` has them, and importances by feature."""
    ciphertexts, operations, cpu = Counter[str](), Counter[str](), defaultdict[str, float](float)
    steps, rss = defaultdict[str, defaultdict[str, float]](lambda: defaultdict(float)), dict[str, float]()
    for of_party in (row for status in statuses for row in status.accounts):
        account = of_party.account
        ciphertexts.update({it.name: it.count for it in account.ciphertexts})
        operations.update({it.name: it.count for it in account.operations})
        for sums, amounts in ((steps[of_party.party], account.seconds), (cpu, account.cpu_seconds)):
            for it in amounts:
                sums[it.name] += it.amount
        rss |= {it.name: max(rss.get(it.name, 0.0), it.amount) for it in account.peak_rss_mb}
    return {
        "traffic": traffic(statuses),
        "ciphertexts": dict(ciphertexts),
        "operations": dict(operations),
        "seconds_by_step": {party: dict(own) for party, own in steps.items() if own},
        "peak_rss_mb": rss,
        "cpu_seconds": dict(cpu),
        "importance": importance(models),
    }


def traffic(statuses: list[jobs_pb2.JobStatus]) -> list[Traffic]:
    """Bytes by sender, receiver and class in jobs, a row each."""
    sizes: Counter[tuple[str, str, str, str]] = Counter()
    messages: Counter[tuple[str, str, str, str]] = Counter()
    accounts = [of_party.account for status in statuses for of_party in status.accounts]
    for row in (row for account in accounts for row in account.traffic):
        key = (getattr(row, "from"), row.to, row.step, row.disclosure)
        sizes[key] += row.bytes
        messages[key] += row.messages
    return [
        Traffic.model_validate(
            {"from": a, "to": b, "step": step, "class": kind, "messages": messages[a, b, step, kind], "bytes": size}
        )
        for (a, b, step, kind), size in sorted(sizes.items())
    ]


def importance(models: Mapping[str, Path]) -> list[Importance]:
    """Gain, cover and number of splits by feature: needs every party's shard, which no party has. A network has none.

    Raises:
        DataError: a shard is of a newer format, or differs from the published one.
    """
    if any(WEIGHTS in read_manifest(folder)["files"] for folder in models.values()):
        return []
    read = {party: read_model(folder) for party, folder in models.items()}
    holders = [model for model in read.values() if model[0]["role"] == "label_holder"]
    if not holders:  # no party keeps gains
        counted = Counter(
            (party, manifest["columns"][split["feature"]])
            for party, (manifest, lines) in read.items()
            for line in lines
            for split in line["splits"]
        )
        return [
            Importance(party=party, feature=name, weight=weight, gain=None, cover=None)
            for (party, name), weight in counted.most_common()
        ]
    manifest, shard = holders[0]
    # a split is named by its owner and a handle; its feature stands in the owner's shard alone
    feature = {
        (party, split["handle"]): own["columns"][split["feature"]]
        for party, (own, lines) in read.items()
        for line in lines
        for split in (line["own"] if "own" in line else line["splits"])
    }
    trees = tuple(Tree.from_dict(line["tree"]) for line in shard)
    used = used_of(trees, manifest["best_round"], manifest["trees_per_round"])
    totals = ensemble.importance(used, lambda split: (split.owner, feature[split.owner, split.handle]))
    return [
        Importance(party=party, feature=name, weight=total.weight, gain=total.gain, cover=total.cover)
        for (party, name), total in sorted(totals.items(), key=lambda item: -item[1].total_gain)
    ]


def received(traffic: Sequence[Traffic]) -> tuple[dict[str, Counter[str]], list[str]]:
    """Class → receiver → bytes, and all receivers; what every job sends, and the coordinator, come last."""
    sizes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in traffic:
        sizes[row.disclosure][row.receiver] += row.bytes
    parties = sorted({name for row in sizes.values() for name in row}, key=lambda name: (name == "coordinator", name))
    return {kind: sizes[kind] for kind in sorted(sizes, key=lambda kind: (kind in PLAIN, kind))}, parties


def written(value: float | None) -> str:
    """A figure for a reader."""
    return "undefined" if value is None else f"{value:.4f}"


#: The meaning of a split's handle, by its owner's table.
Meaning = Callable[[Split], OwnSplit]
#: The model of noisy labels as it was trained, and its repairs by their names in a shard → names in a report.
AS_TRAINED = "label_dp"
REPAIRED = {"refit": "label_dp + refit", "grafting": "grafting", "grafting_refit": "grafting + refit"}


@dataclass(frozen=True)
class OpenModel:
    """A model in all variants that its label holder has.

    `trained`: as it was trained. `repairs`: name in a report → the same shapes with other values; none of a model whose
    labels were clean. `published`: the one that predictions use.
    """

    trained: Ensemble
    repairs: dict[str, Ensemble]
    published: Ensemble
    meaning: Meaning


def of_records(tables: Mapping[str, Table], holder: str, *, left: bool) -> dict[str, Table]:
    """The tables of the records of a job, by the label holder's order.

    `left`: they are all of the label holder's, and where a party lacks one its features are missing; else those that
    all have.
    """
    ids, taken = tables[holder].ids, dict[str, Table]()
    for table in () if left else tables.values():
        ids = ids.take(np.flatnonzero(table.ids.places_of(ids) >= 0))
    for party, table in tables.items():
        places = table.ids.places_of(ids)
        if (there := places >= 0).all():
            taken[party] = table.take(places)
            continue
        features = np.full((len(ids), len(table.columns)), np.nan)
        features[there] = table.features[places[there]]
        taken[party] = replace(table, ids=ids, values=Held(features), rows=places)
    return taken


def scores(ensemble: Ensemble, meaning: Meaning, features: Mapping[str, Floats]) -> Floats:
    """Scores (n, outputs) of n records; `features`: party → its columns (n, d), NaN where missing."""

    n, goes_left = router(meaning, features)
    reached = (reached_values(tree, route(tree.splits, n, goes_left), goes_left) for tree in ensemble.used_trees)
    return ensemble.summed(reached, n)


def router(meaning: Meaning, features: Mapping[str, Floats]) -> tuple[int, RowsLeft]:
    """The number of records with these features, and those of some that go left at a split."""

    def goes_left(split: Split, rows: Ints) -> Bools:
        own = meaning(split)
        return np.asarray(own.goes_left(features[split.owner][rows, own.feature]))

    return len(next(iter(features.values()))), goes_left


def hidden(ensemble: Ensemble) -> dict[str, int]:
    """How much of the trees is the label holder's alone.

    `local_subtrees`: subtrees that it grew alone; `hidden_nodes`: their nodes that no other party knows, all but the
    roots.
    """
    local = [subtree for tree in ensemble.trees for subtree in tree.local]
    below = sum(len(subtree.splits) + len(subtree.leaves) - 1 for subtree in local)
    return {"local_subtrees": len(local), "hidden_nodes": below}


def open_shards(models: Mapping[str, Path]) -> OpenModel:
    """The model of a finished job, from the shards of its parties below the folder of an experiment.

    `models`: party → its published model. Raises DataError: see `treetap.models.store.read_model`; BadInput where its
    scores begin with a column.
    """
    own: dict[tuple[str, int], OwnSplit] = {}
    opened: tuple[Ensemble, dict[str, Ensemble], Ensemble] | None = None
    for party, folder in models.items():
        manifest, lines = read_model(folder)
        repaired = read_repaired(folder)
        for split in (row for line in (*lines, *repaired) for row in line["own" if "own" in line else "splits"]):
            own[party, int(split["handle"])] = OwnSplit.from_dict(split)
        if manifest["role"] != "label_holder":
            continue
        if begins := manifest.get("offsets"):
            raise BadInput(
                f"{folder}: scores begin with {', '.join(f'{key} = {name!r}' for key, name in begins.items())}, which "
                "its parts alone do not have: predict by the coordinator that trained it"
            )
        trained = Ensemble(
            objective=manifest["objective"],
            classes=len(manifest["classes"]),
            base_margin=tuple(manifest["base_margin"]),
            trees=tuple(Tree.from_dict(line["tree"]) for line in lines),
            trees_per_round=manifest["trees_per_round"],
            best_round=manifest["best_round"],
            averaged=manifest.get("averaged", False),
        )
        repairs = {
            name: replace(trained, trees=tuple(Tree.from_dict(line[key]) for line in repaired))
            for key, name in REPAIRED.items()
            if repaired
        }
        opened = trained, repairs, repairs[REPAIRED[manifest[VALUES]]] if VALUES in manifest else trained
    assert opened is not None  # a job of one label holder
    return OpenModel(*opened, lambda split: own[split.owner, split.handle])


def shards_in(place: Path) -> tuple[Path, dict[str, Path]]:
    """The folder of the one model in a folder, and its shards, party → folder.

    Raises:
        BadInput: there is none there, there are several, or it is a network.
    """
    parts = sorted(place.glob(f"*/{MANIFEST}"))
    models = {place: {path.parent.name: path.parent for path in parts}} if parts else {}
    runs = {path.parents[4] for path in place.glob(f"*/state/models/*/{MANIFEST}")}
    runs |= {path.parents[4] for path in place.glob(f"*/*/state/models/*/{MANIFEST}")}
    models |= {run: _shards_of_run(run) for run in sorted(runs)}
    if not models:
        raise BadInput(f"{place}: has no model; name a folder of shards, of an experiment, or a party's model")
    if len(models) > 1:
        names = ", ".join(str(folder.relative_to(place)) for folder in list(models)[:5])
        raise BadInput(f"{place}: has {len(models)} models, in {names}: name the folder of one")
    return next(iter(models.items()))


def _shards_of_run(folder: Path) -> dict[str, Path]:
    """The shards below a federation's folder, of the one job that trained trees there."""
    by_job: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.glob(f"*/state/models/*/{MANIFEST}")):
        by_job.setdefault(path.parent.name, {})[path.parents[3].name] = path.parent
    if len(by_job) > 1:
        raise BadInput(f"{folder}: has models of several jobs, {', '.join(by_job)}: name a party's model of one")
    shards = next(iter(by_job.values()))
    if any(TREES not in read_manifest(shard)["files"] for shard in shards.values()):
        raise BadInput(f"{folder}: its model is a split network, which is not loaded as one model")
    return shards


class JointModel:
    """Published shards of one training, party → folder; read when they are needed.

    Raises:
        DataError: a shard is damaged, of another format, of another training, or no party of them has the leaves.
    """

    def __init__(self, shards: Mapping[str, Path]) -> None:
        self.shards = dict(shards)
        self.unlike: dict[str, Unlike] = {}  #: of the last prediction, by party
        self.says: list[str] = []  #: of the last prediction's tables, with the party's name
        self.manifests = {party: read_manifest(folder) for party, folder in self.shards.items()}
        holders = [party for party, manifest in self.manifests.items() if manifest["role"] == "label_holder"]
        if len(holders) != 1:
            roles = ", ".join(f"{party} is {manifest['role']}" for party, manifest in self.manifests.items())
            raise DataError(f"a joint model has the shard of one label holder and of every feature party; here {roles}")
        self.label_holder = holders[0]
        wanted = {self.label_holder, *self.manifest["feature_parties"]}
        if wanted != set(self.shards):
            raise DataError(
                f"the model has parties {', '.join(sorted(wanted))}, and these shards are of "
                f"{', '.join(sorted(self.shards))}"
            )

    @property
    def manifest(self) -> dict[str, Any]:
        """The label holder's manifest."""
        return self.manifests[self.label_holder]

    @property
    def classes(self) -> list[Any]:
        """The values of the label, in the type of its column; none of a regression."""
        return list(typed(self.manifest["classes"], self._class_type).to_pylist())

    def columns(self, party: str) -> list[str]:
        """The columns that a party's table must have."""
        return list(self.manifests[party]["source_columns"])

    def importances(self) -> list[Importance]:
        """Gain, cover and number of splits by party and feature, the largest total gain first."""
        return importance(self.shards)

    def predict(self, tables: Mapping[str, TableConfig]) -> pa.Table:
        """Predictions of the model's records of the tables, as a label holder's file has them, in the order of ids.

        Raises:
            DataError: a table cannot be read, or lacks a column.
        """
        ids, features = self.records(tables)
        values = scores(self.opened.published, self.opened.meaning, features)
        classes = self.manifest["classes"]
        outcome = Outcome.of(self.manifest["objective"], classes, values)
        return pa.table({**ids, **outcome.columns(classes, self._class_type)})

    def records(self, tables: Mapping[str, TableConfig]) -> tuple[dict[str, pa.Array], dict[str, Floats]]:
        """The records, in the order of ids: the id column by its name, and features by party.

        Raises as `predict`.
        """
        own, features = self.joined(tables)
        ((name, kind),) = own.id_types.items()  # of an experiment, one
        return {name: own.ids.array.cast(kind)}, features

    def joined(self, tables: Mapping[str, TableConfig]) -> tuple[Table, dict[str, Floats]]:
        """The label holder's part of the records, in the order of ids, and features by party.

        Of a model trained with `join = "left"` they are all of the label holder's; where a party lacks one its features
        are missing. Raises as `predict`.
        """
        read = of_records(self._encoded(tables), self.label_holder, left=bool(self.manifest.get(JOIN)))
        return read[self.label_holder], {party: table.features for party, table in read.items()}

    @property
    def features(self) -> list[tuple[str, str]]:
        """Party and feature of every column of `records`, the label holder's first, as in an exported model."""
        parties = [self.label_holder, *self.manifest["feature_parties"]]
        return [(party, str(name)) for party in parties for name in self.manifests[party]["columns"]]

    def attributions(self, features: Mapping[str, Floats]) -> Attributions:
        """Shapley values of the scores of `records`, each of `features` a player; see `treetap.trees.shapley`.

        Raises:
            DataError: a split has no cover, so that there is no mean to compare with.
        """
        meaning, published = self.opened.meaning, self.opened.published

        def goes_left(split: Split) -> Bools:
            own = meaning(split)
            return np.asarray(own.goes_left(features[split.owner][:, own.feature]))

        def player(split: Split) -> str:
            return f"{split.owner}.{self.manifests[split.owner]['columns'][meaning(split).feature]}"

        players = [f"{party}.{name}" for party, name in self.features]
        return attributions(published, player, goes_left, players, len(next(iter(features.values()))))

    def after_rounds(self, tables: Mapping[str, TableConfig]) -> tuple[Ids, list[Floats]]:
        """The records, and their outcome after each round of the training, the best or not.

        Raises as `predict`.
        """
        model, outcomes = self.opened.published, list[Floats]()
        own, features = self.joined(tables)
        n, goes_left = router(self.opened.meaning, features)
        sums = np.tile(np.array(model.base_margin, dtype=np.float64), (n, 1))
        for number, tree in enumerate(model.trees, start=1):
            sums[:, list(tree.outputs)] += reached_values(tree, route(tree.splits, n, goes_left), goes_left)
            if number % model.trees_per_round == 0:
                outcomes.append(model.outcome(sums / number if model.averaged else sums.copy()))
        return own.ids, outcomes

    def tables(self, tables: Mapping[str, TableConfig]) -> dict[str, Table]:
        """The records that all tables have, in the order of ids, as each party encodes its own. Raises as `predict`."""
        return of_records(self._encoded(tables), self.label_holder, left=False)

    def _encoded(self, tables: Mapping[str, TableConfig]) -> dict[str, Table]:
        """The tables as each party encodes its own, and what is to be said of them."""
        read = {party: table_of_model(self.manifests[party], config) for party, config in tables.items()}
        self.unlike = {party: table.unlike for party, table in read.items()}
        self.says = [f"{party}: {sentence}" for party, table in read.items() for sentence in table.says]
        return read

    @cached_property
    def opened(self) -> OpenModel:
        """The trees, with the meaning of all splits."""
        return open_shards(self.shards)

    @property
    def _class_type(self) -> pa.DataType:
        return named_type(self.manifest["class_type"])


def table_of_model(manifest: Mapping[str, Any], config: TableConfig, *, with_label: bool = False) -> Table:
    """A table with the columns of a party's model, encoded as in its training; weights come with labels.

    Raises:
        DataError: a column is not there, or all its values are unlike the training's.
    """
    labelled = {} if with_label else {"label": None, "weight": None}
    wanted = config.model_copy(update={"columns": manifest["source_columns"], "encode": None, **labelled})
    categories = {name: Category.from_dict(content) for name, content in manifest["categories"].items()}
    given = {"missing": manifest["missing"], "categories": categories, "empty": manifest["empty_columns"]}
    read = read_table(wanted, with_label=with_label, **given)
    check_values(read.path, read.seen, read.unlike, len(read.ids))
    return read
