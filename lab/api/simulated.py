"""A fit without processes, `simulate = True`: the parties' tables in a folder, read as parties read theirs."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treetap.commands.jobs.job_file import JobTable
from treetap.errors import BadInput, ConfigError, DataError, naming
from treetap.lab.api.frames import ID, InvalidInput
from treetap.lab.api.loopback import OwnTable, to_caller
from treetap.lab.api.parameters import Parameters
from treetap.lab.experiment.party_tables import read_as_party
from treetap.lab.local_federation import dealer_of, keep_table
from treetap.models.line_file import plain_lines
from treetap.models.own_split import OwnSplit
from treetap.models.store import HIDES_CONSTANTS, HISTORY, JOIN, REFERENCES, SPACES, TRAINED_ON, TREES, described
from treetap.party.defences.checks import check_own, check_own_trees
from treetap.party.defences.settings import Defences
from treetap.party.policy import Policy
from treetap.party.setup import labelled_table
from treetap.party.setup.steps import refuse_bins
from treetap.protocols.job_spec import params_of
from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import LEFT, aligned_apart
from treetap.protocols.prediction import predicting
from treetap.protocols.registry import Rounds, training, training_name
from treetap.tables.binned import EXACT_RECORDS, JobRecords, refuse_columns
from treetap.tables.config import TableConfig
from treetap.tables.labels import label_column, read_classes, read_labels, read_targets
from treetap.tables.references import reference_values
from treetap.trees.centralised import CentralTrees
from treetap.trees.ensemble import Tree, deciding_splits, importance_by_owner
from treetap.trees.job_params import REGRESSIONS
from treetap.trees.metrics import finite
from treetap.trees.params import BoostingParams, TreeParams
from treetap.trees.withholding import NOTHING
from treetap.wire.v2 import setup_pb2

#: Names of a job's tables, the training's and, where there is one, the eval table.
TRAIN, EVAL = "train", "eval"
#: The job's name in the manifests of its shards.
JOB_NAME = "simulated"
#: Party → name of a file of its shard → content.
Shards = dict[str, dict[str, bytes]]
#: Party → name of a table → its settings in a party's file.
Tables = Mapping[str, Mapping[str, Mapping[str, Any]]]


def check(given: Parameters, base_model: Any) -> None:
    """Raise InvalidInput for what a training without processes cannot have."""
    lacking = {
        "base_model": (base_model, "train with more n_estimators, at the same cost"),
        "federation": (given.federation, "no federation trains; leave it out"),
        "policy": (given.policy, "there is no party to keep it; leave it out"),
        "workdir": (given.workdir, "there are no processes whose files it would keep; leave it out"),
    }
    for name, (value, remedy) in lacking.items():
        if value is not None:
            raise InvalidInput(f"{name} and simulate do not go together: {remedy}")
    if given.prediction not in (None, predicting(given.protocol, withheld=False)[0]):
        raise InvalidInput(
            f"prediction = {given.prediction!r} and simulate do not go together: it rounds scores; leave it out"
        )


def train(
    tables: Mapping[str, OwnTable],
    job: JobTable,
    label_holder: str,
    evaluated: Mapping[str, OwnTable] | None,
    defences: Mapping[str, Any],
) -> Shards:
    """The shards that a federation would publish.

    `evaluated`: tables by which it is measured, if there are some. `defences`: the label holder's.

    Raises:
        InvalidInput: a table or the job cannot be used, or the federation's model would be another one.
    """
    order = [label_holder, *(party for party in tables if party != label_holder)]
    with tempfile.TemporaryDirectory(prefix="treetap-tables-") as folder:
        placed: dict[str, dict[str, Any]] = {party: {} for party in order}
        for name, of_parties in ((TRAIN, tables), (EVAL, evaluated or {})):
            for party, own in of_parties.items():
                path, records = Path(folder) / f"{party}.{name}.parquet", own.records
                if job.join == LEFT:
                    records = _left_joined(of_parties[label_holder].records[ID], records)
                keep_table(records, path)
                keys = {key: value for key, value in own.keys.items() if value is not None}
                placed[party][name] = {"path": str(path), "id": ID, **keys}
        try:
            return simulated(job, placed, defences)
        except BadInput as failure:
            said = re.sub(rf"{re.escape(folder)}/\S+?\.parquet: ", "", str(failure))
            raise InvalidInput(to_caller(said)) from None


def _left_joined(ids: pa.ChunkedArray, records: pa.Table) -> pa.Table:
    """A row of a party's records for each of these ids, of empty cells where it has none.

    Raises:
        DataError: it has none of them.
    """
    places = pc.index_in(ids.cast(pa.string()), records[ID].cast(pa.string()))
    if places.null_count == len(places):
        raise DataError("a party has no record of the label holder's: do all of them hold the same ids?")
    return records.take(places).set_column(records.column_names.index(ID), ID, ids)


def simulated(job: JobTable, tables: Tables, defences: Mapping[str, Any]) -> Shards:
    """The shards of all parties of a training.

    Args:
        job: its parameters.
        tables: the label holder's first.
        defences: the label holder's table of defences.

    Raises:
        ConfigError: the job cannot be, or its model would not be the federation's bit for bit.
        DataError: a table or its labels cannot be used.
    """
    holder, *others = tables
    further = EVAL in tables[holder]
    spec = job.spec(holder, others, TRAIN, EVAL if further else "", dealer_of(job))
    params = _params(job, spec)
    own = Defences.model_validate(defences)
    if own.label_dp is not None:  # noise that no other training repeats
        raise ConfigError(
            "label_dp and simulate do not go together: noisy labels are drawn once, in secret, and charged to the "
            "label holder's ledger; leave one of them out"
        )
    for party in tables:
        configs = {name: TableConfig.model_validate(given) for name, given in tables[party].items()}
        rules = Policy.permissive({"people": {"label_holders": [name for name in tables if name != party]}})
        check_own(party, own if party == holder else Defences(), rules, configs[TRAIN], configs.get(EVAL), spec)
    records, data = _read(tables, spec, params)
    data, aligned = _aligned(records, data, job.alignment, params)
    classes, labels = data.labels.classes, data.labels.values
    check_own_trees(holder, own, params, len(classes))
    centrally = training(job.protocol).centrally
    assert centrally.train is not None  # `_params` has seen to it
    assert centrally.rounds is not None
    least, measured = rules.labels.min_evaluated_records, data.measured
    if measured is not None:
        values, weighed, _ = measured
        weighing = len(values) if weighed is None else np.count_nonzero(weighed)
        if weighing < least:
            raise DataError(f"the eval set has fewer than {least} records that all parties have, with a weight above 0")
    weights = data.table.weights
    rounds = centrally.rounds(params, len(classes), labels, weights, measured)
    given = {} if weights is None else {"weights": weights}
    before = [(party, own.table) for party, own in aligned.items()]
    model = centrally.train(before, labels, len(classes), params, own.withholding, rounds=rounds, **given)
    return _shards(model, rounds, spec, data, aligned, hides=own.withholding != NOTHING)


def _params(job: JobTable, spec: setup_pb2.JobSpec) -> TreeParams:
    """The parameters of a job that can be simulated."""
    params, protocol = params_of(spec), training(job.protocol)
    if protocol.centrally.rounds is None or not isinstance(params, TreeParams):
        raise ConfigError(
            f"protocol = {job.protocol!r} and simulate do not go together: its parties compute scores with roundings "
            "of their own, which one trainer does not repeat to the last bit; leave simulate out"
        )
    if params.withheld:
        raise ConfigError(
            f"privacy = {job.privacy!r} and simulate do not go together: such a model predicts by encrypted scores, "
            "which are rounded; leave one of them out"
        )
    return params


def _read(
    tables: Tables, spec: setup_pb2.JobSpec, params: TreeParams
) -> tuple[dict[str, JobRecords], labelled_table.LabelledTable]:
    """The records of all parties as they read them, and the label holder's with their labels."""
    holder = spec.aggregator
    column = str(tables[holder][TRAIN]["label"])
    records: dict[str, JobRecords] = {}
    data: labelled_table.LabelledTable | None = None
    for party, own in tables.items():
        with naming(party):
            table = read_as_party(own[TRAIN], params.missing)
            refuse_columns(table, params.one_hot_below)
            further = read_as_party(own[EVAL], params.missing, table) if EVAL in own else None
            records[party] = JobRecords.of(table, further)
            if party != holder:
                refuse_bins(table, KeyKind.of(spec))
                continue
            labels = read_labels(table, column, params.objective)
            measured = behind = None
            if further is not None:
                targets = (
                    read_targets(further, column, params.objective)
                    if params.objective in REGRESSIONS
                    else read_classes(further, column, labels.classes)  # by the classes of the training
                )
                measured = labelled_table.EvaluatedLabels(targets, label_column(further, column), further.weights)
                behind = records[party]
            bare = replace(table, label=None)
            data = labelled_table.LabelledTable(party, bare, labels, column, params.objective, None, behind, measured)
    assert data is not None
    return records, data


def _aligned(
    records: Mapping[str, JobRecords], data: labelled_table.LabelledTable, alignment: str, params: TreeParams
) -> tuple[labelled_table.LabelledTable, dict[str, JobRecords]]:
    """The common records, in the order of their ids."""
    common = records[data.party].ids
    for party, own in records.items():
        if alignment == "sorted-ids" and own.ids != common:
            raise DataError(
                f"{party} has other records than {data.party}, and alignment = 'sorted-ids' asks for the same ones: "
                "set alignment = 'psi'"
            )
        common = common.take(np.flatnonzero(own.ids.places_of(common) >= 0))
    places = {party: own.ids.places_of(common) for party, own in records.items()}
    taken = {party: own.take(places[party]) for party, own in records.items()}
    if not taken[data.party].training:
        raise DataError("no record is common to all parties: do all of them hold the same ids?")
    if data.further is not None and taken[data.party].training == len(common):
        raise DataError("no record of the eval set is common to all parties: do all of them hold the same ids there?")
    if alignment != "sorted-ids" and (reason := order_counts(params, taken[data.party])):
        raise ConfigError(
            f"{reason} and simulate do not go together where records are aligned by private set intersection: its "
            "order of records is the parties' secret, and the model follows from it; set alignment = 'sorted-ids', "
            "for which all parties have the same records, or leave one of them out"
        )
    return data.take(places[data.party]), taken


def order_counts(params: TreeParams, records: JobRecords) -> str:
    """The part of a job by which its model follows from the order of its records; empty if none does.

    Draws go by places. A mean, and the loss by which training stops, are sums of floating point, whose last bit depends
    on the order; so does a sketch of quantiles.
    """
    boosting = params if isinstance(params, BoostingParams) else None
    mean = params.objective in REGRESSIONS and boosting is not None and boosting.base_score is None
    reasons = {
        "early_stopping_rounds": boosting is not None and boosting.sets_aside,
        "a draw of records by subsample or bootstrap": params.draws_records,
        "a regression without base_score": mean,
        f"more than {EXACT_RECORDS} records": records.training > EXACT_RECORDS,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _shards(
    model: CentralTrees,
    rounds: Rounds,
    spec: setup_pb2.JobSpec,
    data: labelled_table.LabelledTable,
    aligned: Mapping[str, JobRecords],
    *,
    hides: bool,
) -> Shards:
    trees, params = model.ensemble.trees, model.params
    per_round = model.ensemble.trees_per_round
    deciding = (replace(tree, splits=deciding_splits(tree)) for tree in model.ensemble.used_trees)
    shards: Shards = {}
    for party, records in aligned.items():
        plain = {
            "job": JOB_NAME,
            "party": party,
            "protocol": training_name(spec),
            "missing": None if np.isnan(params.missing) else params.missing,
            **(data.table if party == data.party else records.table).described(),
            **labelled_table.described(spec),
            **({SPACES: "withheld"} if params.withheld else {}),
            **({JOIN: spec.join} if spec.join else {}),
            REFERENCES: reference_values(records),
            "trees": len(trees),
        }
        if party != data.party:
            lines = [_feature_line(model, tree, party) for tree in trees]
            files = {TREES: plain_lines(lines)}
            manifest = {"role": "feature_party", "label_holder": data.party, **plain}
        else:
            own = [
                {"tree": _with_sides(model, tree, spec).to_dict(), "own": _own(model, tree, party)} for tree in trees
            ]
            history = [
                {"round": number, "trees": (number + 1) * per_round, "metrics": finite(row)}
                for number, row in enumerate(rounds.history)
            ]
            files = {TREES: plain_lines(own), HISTORY: plain_lines(history)}
            manifest = {
                "role": "label_holder",
                "feature_parties": list(spec.feature_parties),
                "classes": data.labels.classes,
                "class_type": str(data.labels.kind),
                **plain,
                TRAINED_ON: records.training,
                **({HIDES_CONSTANTS: True} if hides or any(tree.local for tree in trees) else {}),
                **rounds.summary(),
                "importance_by_party": {
                    name: {"weight": part.weight, "gain": part.gain, "cover": part.cover}
                    for name, part in importance_by_owner(deciding).items()
                },
            }
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        shards[party] = {**files, **described({"submission": JOB_NAME, "digest": ""}, digests, manifest)}
    return shards


def _with_sides(model: CentralTrees, tree: Tree, spec: setup_pb2.JobSpec) -> Tree:
    """A tree as its label holder has it, with the sides of records that parties lack where these are trained on."""
    if not aligned_apart(spec):
        return tree
    others = (split for split in tree.splits if split.owner != spec.aggregator)
    return replace(tree, missing_left=tuple(split.node for split in others if model.entry(split)[0].missing_left))


def _own(model: CentralTrees, tree: Tree, party: str) -> list[dict[str, Any]]:
    """A party's splits in a tree, those that it grew alone too, in the order of their handles."""
    splits = [*tree.splits, *(split for part in tree.local for split in part.splits)]
    mine = sorted((split for split in splits if split.owner == party), key=lambda split: split.handle)
    return [OwnSplit.of(split.handle, split.node, *model.entry(split)).to_dict() for split in mine]


def _feature_line(model: CentralTrees, tree: Tree, party: str) -> dict[str, Any]:
    """A feature party's line of a tree: its splits, and its branches on the path to each leaf."""
    handles = {split.node: split.handle for split in tree.splits if split.owner == party}
    leaves = []
    for leaf in tree.leaves:
        path = [leaf.node >> level for level in range(leaf.node.bit_length() - 1, -1, -1)]
        steps = pairwise(path)
        leaves.append([[handles[node], int(child == 2 * node)] for node, child in steps if node in handles])
    return {"tree": tree.index, "splits": _own(model, tree, party), "leaves": leaves}
