"""A published model as XGBoost's JSON: all parts of an experiment's run, or a label holder's that stands alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treetap.errors import BadInput, DataError
from treetap.lab.experiment.joined_table import ID
from treetap.lab.experiment.joint_model import open_shards
from treetap.lab.experiment.xgboost_json import Column, feature_names, xgboost_model
from treetap.models.durable import write_whole
from treetap.models.store import MANIFEST, WEIGHTS, read_manifest
from treetap.names import did_you_mean
from treetap.party.config import read
from treetap.protocols.registry import training
from treetap.tables.categories import Category
from treetap.tables.config import CATEGORICAL, TableConfig
from treetap.tables.reading import Table, read_table
from treetap.trees.ensemble import Ensemble, deciding_splits

Json = dict[str, Any]
#: The attribute of XGBoost's model with the columns behind its features, as JSON.
ATTRIBUTE = "treetap"
#: A party's part of the model in the folder of an experiment's run, and the table on which it was trained.
_SHARD, _TRAINED_ON = Path("state", "models", "experiment"), "train.parquet"


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
        BadInput: the folder is none of a run, or the model has no place in XGBoost; `out` cannot be written.
    """
    models = {path.parent.name: path.parent / _SHARD for path in sorted(folder.glob(f"*/{_SHARD.parts[0]}"))}
    models = {party: path for party, path in models.items() if (path / MANIFEST).is_file()}
    if not models:
        runs = [path.name for path in sorted(folder.glob("seed-*")) if path.is_dir()]
        more = f": name one of its runs, such as {folder / runs[0]}" if runs else ""
        raise BadInput(f"{folder}: is no folder of a published model, nor of an experiment's run{more}")
    # thresholds are of 64 bits: the values tell which number of 32 bits divides them alike
    tables = {party: folder / party / _TRAINED_ON for party in models}
    if gone := [str(path) for path in tables.values() if not path.is_file()]:
        raise BadInput(f"{gone[0]}: is not there, and by its values thresholds are rounded to 32 bits; bring it back")
    manifests = _in_order({party: _checked(path) for party, path in models.items()})
    trained = {party: _trained_on(manifests[party], TableConfig(path=str(tables[party]), id=ID)) for party in manifests}
    content = _content({party: models[party] for party in manifests}, manifests, trained)
    _write(out, content)
    return list(manifests)


def export_alone(folder: Path, table: TableConfig | None, out: Path) -> str:
    """Write a label holder's model whose splits are all its own; returns the party.

    `table`: on which it was trained; without it thresholds are right for values of 32 bits.

    Raises:
        BadInput: other parties own splits of it, or it has no place in XGBoost; `out` cannot be written.
    """
    manifest = _checked(folder)
    party = str(manifest["party"])
    if manifest["role"] != "label_holder":
        raise BadInput(f"{folder}: is a feature party's part of a model; the label holder's is the one to export")
    trained = {} if table is None else {party: _trained_on(manifest, table)}
    content = _content({party: folder}, {party: manifest}, trained)
    _write(out, content)
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


def _checked(folder: Path) -> Json:
    """A manifest of trees of a model with a label holder."""
    manifest = read_manifest(folder)
    if WEIGHTS in manifest["files"]:
        raise BadInput(f"{folder}: model {manifest['job']} is a network, and XGBoost's models are trees")
    if manifest["role"] == "party":
        raise BadInput(f"{folder}: {_no_holder(manifest['protocol'])}")
    return manifest


def _in_order(manifests: Mapping[str, Json]) -> dict[str, Json]:
    """The label holder, then the feature parties in the job's order; all of them are there."""
    holders = [party for party, manifest in manifests.items() if manifest["role"] == "label_holder"]
    if len(holders) != 1:
        raise BadInput(f"the parts of {', '.join(manifests)} have {len(holders)} label holders, not one")
    wanted = [holders[0], *manifests[holders[0]]["feature_parties"]]
    if absent := [party for party in wanted if party not in manifests]:
        raise BadInput(f"the part of {', '.join(absent)} is not there, without which no split of it has a meaning")
    return {party: manifests[party] for party in wanted}


def _trained_on(manifest: Json, table: TableConfig) -> Table:
    """The columns of a party's model in the table that it was trained on."""
    columns = manifest.get("source_columns", manifest["columns"])
    encoded = {name: Category.from_dict(content) for name, content in manifest.get("categories", {}).items()}
    config = table.model_copy(update={"columns": columns, "encode": None, "label": None})
    return read_table(config, with_label=False, missing=manifest["missing"], categories=encoded)


def _content(models: Mapping[str, Path], manifests: Mapping[str, Json], trained: Mapping[str, Table]) -> Json:
    opened = open_shards(models)
    _check_owners(opened.published, manifests)
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
    return xgboost_model(opened.published, opened.meaning, columns, {ATTRIBUTE: described})


def _check_owners(ensemble: Ensemble, manifests: Mapping[str, Json]) -> None:
    splits = [split for tree in ensemble.used_trees for split in deciding_splits(tree)]
    others = Counter(split.owner for split in splits if split.owner not in manifests)
    if others:
        raise BadInput(
            f"{sum(others.values())} of {len(splits)} splits are those of {', '.join(others)}, whose columns and "
            "thresholds no other party knows: a label holder's part stands alone only if all splits are its own"
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
