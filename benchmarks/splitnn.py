"""Split networks over real processes: an epoch beside the same epoch in one graph, its bytes, and equal weights.

    python benchmarks/splitnn.py [images | tables] [--epochs 3] [--records N] [--repeat 3] [--json]

Two parties and a coordinator on loopback under mutual TLS, one thread each, trained in pairs with
`treetap.neural.centralised` on the same tables in this process. `images` needs TREETAP_DATA (fashion_mnist.npz).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from data import image_table
from rich.table import Table as Shown

from treetap import terminal
from treetap.lab.local_federation import LocalFederation
from treetap.models.arrays import read_arrays
from treetap.models.store import WEIGHTS
from treetap.neural.centralised import central_network
from treetap.neural.params import DEFAULT, Bottom, SplitnnParams, Top
from treetap.protocols.job_spec import put_params
from treetap.tables.config import TableConfig
from treetap.tables.labels import read_labels
from treetap.tables.reading import read_table
from treetap.wire.v2 import jobs_pb2, setup_pb2

HOLDER, FEATURE, JOB = "label-holder", "feature-b", "network"
#: Records of a run where none are asked for.
RECORDS = {"images": 6400, "tables": 20_000}


def params_of(setting: str, epochs: int) -> SplitnnParams:
    """The job of a setting."""
    common: dict[str, Any] = {"epochs": epochs, "batch_size": 64, "schedule": "cosine", "reproducible": True}
    if setting == "images":
        bottom = Bottom(kind="cnn", channels=(16, 32), width=64, norm="batch")
        return SplitnnParams(objective="multi:softprob", bottom={DEFAULT: bottom}, top=Top((128,)), **common)
    return SplitnnParams(bottom={DEFAULT: Bottom(hidden=(64,), width=32)}, top=Top((64,)), **common)


def tables_of(setting: str, records: int) -> tuple[dict[str, pa.Table], str]:
    """Party → its table with the column `id`, and the name of the label's column."""
    if setting == "images":
        whole = image_table(Path(os.environ["TREETAP_DATA"]) / "fashion_mnist.npz", "train", records, halves=True)
        return {HOLDER: whole.select(["id", "left", "label"]), FEATURE: whole.select(["id", "right"])}, "label"
    draws = np.random.default_rng(0)
    values = draws.normal(size=(records, 16))
    columns = {f"x{j}": values[:, j] for j in range(16)}
    label = (values @ draws.normal(size=16) + np.sin(3 * values[:, 0] * values[:, 15]) > 0).astype(np.int64)
    ids = [f"r{i:06d}" for i in range(records)]
    own = {name: column for name, column in columns.items() if int(name[1:]) < 8}
    others = {name: column for name, column in columns.items() if name not in own}
    return {HOLDER: pa.table({"id": ids, **own, "label": label}), FEATURE: pa.table({"id": ids, **others})}, "label"


def run(setting: str, epochs: int, records: int) -> dict[str, Any]:
    """One pair: the training in one graph, then the federation."""
    params = params_of(setting, epochs)
    tables, label = tables_of(setting, records)
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as folder:
        configs = {}
        for party, table in tables.items():
            path = Path(folder) / f"{party}.parquet"
            pq.write_table(table, path)
            columns = [name for name in table.column_names if name not in ("id", label)]
            configs[party] = TableConfig(path=path, id="id", columns=columns, label=label if party == HOLDER else None)
        centralised, weights = _centralised(configs, params)
        found = _federated(Path(folder) / "federation", configs, params, weights)
    batches = -(-records // params.batch_size)
    numbers = 2 * records * params.bottom_of(FEATURE).width * 4
    allowed = 1.5 * centralised + 0.006 * batches
    return {
        "setting": setting,
        "records": records,
        "batches": batches,
        "centralised_epoch_s": centralised,
        "epoch_s": found["epoch_s"],
        "allowed_s": allowed,
        "share_of_allowed": found["epoch_s"] / allowed,
        "bytes_per_epoch": found["bytes"],
        "numbers_bytes": numbers,
        "bytes_above_numbers": found["bytes"] / numbers - 1,
        "largest_difference": found["difference"],
        "cpu_s": found["cpu_s"],
    }


def _centralised(configs: dict[str, TableConfig], params: SplitnnParams) -> tuple[float, dict[str, dict[str, Any]]]:
    """Seconds of an epoch in one graph, and the weights after the last."""
    read = {
        party: read_table(config, with_label=config.label is not None, missing=None)
        for party, config in configs.items()
    }
    labels = read_labels(read[HOLDER], "label", params.objective)
    network, _ = central_network(list(read.items()), labels.values, len(labels.classes), params)
    start = time.perf_counter()
    network.train()
    return (time.perf_counter() - start) / params.epochs, network.weights()


def _federated(
    folder: Path, configs: dict[str, TableConfig], params: SplitnnParams, weights: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Seconds, bytes and processor time of the same training by real processes, and how far its weights are off."""
    emits = {HOLDER: {"EMBEDDING_GRADIENT": [FEATURE]}, FEATURE: {"EMBEDDING": [HOLDER]}}
    parties = {
        party: {
            "tables": {"train": config.model_dump(mode="json", exclude_none=True)},
            "policy": {"networks": {"reproducible": True}, "emits": emits[party]},
        }
        for party, config in configs.items()
    }
    spec = setup_pb2.JobSpec(table="train", aggregator=HOLDER, feature_parties=[FEATURE], alignment="sorted-ids")
    put_params(spec, params)
    with LocalFederation(folder, parties) as federation:
        operator = federation.operator
        operator.submit(jobs_pb2.SubmitRequest(job=JOB, spec=spec))
        status = operator.watch(JOB, lambda _: None)
        if status.state != "finished":
            raise SystemExit(status.error)
        models = {party: read_arrays(federation.state(party) / "models" / JOB / WEIGHTS) for party in configs}
    largest = max(float(np.abs(each).max()) for party in weights.values() for each in party.values() if each.size)
    difference = max(
        float(np.abs(models[party][name].astype(np.float64) - each.astype(np.float64)).max())
        for party, own in weights.items()
        for name, each in own.items()
        if each.size
    )
    rows = [row for account in status.accounts for row in account.account.traffic]
    between = [row for row in rows if row.step in ("embeddings", "embedding_gradients")]
    return {
        "epoch_s": next(phase.amount for phase in status.phases if phase.name == "train") / params.epochs,
        "bytes": sum(row.bytes for row in between) / params.epochs,
        "difference": difference / largest,
        "cpu_s": sum(each.amount for account in status.accounts for each in account.account.cpu_seconds),
    }


def main() -> int:
    """Print one line per run and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", nargs="?", choices=tuple(RECORDS), help="default: both")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--records", type=int)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    settings = [given.setting] if given.setting else list(RECORDS)
    found = [
        run(setting, given.epochs, given.records or RECORDS[setting])
        for setting in settings
        for _ in range(given.repeat)
    ]
    if given.json:
        json.dump(found, sys.stdout, indent=1)
        return 0
    shown = Shown(
        "setting",
        "epoch, one graph",
        "epoch, federation",
        "of 1.5 × + 6 ms a batch",
        "bytes above numbers",
        "largest difference",
    )
    for setting in settings:
        runs = [each for each in found if each["setting"] == setting]
        middle = {name: statistics.median(each[name] for each in runs) for name in runs[0] if name != "setting"}
        shown.add_row(
            f"{setting}, {runs[0]['records']} records",
            f"{middle['centralised_epoch_s']:.2f} s",
            f"{middle['epoch_s']:.2f} s",
            f"{middle['share_of_allowed']:.2f}",
            f"{middle['bytes_above_numbers']:.2%}",
            f"{max(each['largest_difference'] for each in runs):.1e}",
        )
    terminal.out.print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
