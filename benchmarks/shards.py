"""Benchmarks of predictions: a credit model that the centralised trainer grew, as shards on real parties' disks.

Training is thus not measured, and quick. The trees are cut by owner, as the federation does it; the processes, the
wire and the predictions are those of production.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from delay import DelayProxy

from treetap.commands.jobs import progress_view
from treetap.commands.jobs.job_file import JobTable
from treetap.coordinator.runtime.job_record import to_base64
from treetap.coordinator.runtime.journal import Journal
from treetap.errors import Interrupted
from treetap.lab.local_federation import LocalFederation
from treetap.models.own_split import OwnSplit
from treetap.models.store import TREES
from treetap.native.arithmetic import Choice
from treetap.party.growth.stored_trees import shard
from treetap.party.runtime.job_store import Store
from treetap.protocols.prediction import predict_request
from treetap.trees import metrics
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.centralised import CentralModel, train
from treetap.trees.ensemble import Tree
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2, setup_pb2

HOLDER = "label-holder"
JOB, SUBMISSION = "credit", "benchmark"
#: Set → its label.
LABELS = {"credit_default": "default.payment.next.month", "give_me_some_credit": "SeriousDlqin2yrs"}
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """What is trained on what; the defaults are those of the Fed-EINI paper (Chen et al. 2021, section VI).

    Attributes:
        data: name of the set, of which 60 % are for training, 20 % for the test (the others for validation, unused).
        share: part of its records that is drawn, before that.
        own: columns of the label holder.
        others: feature parties, which have the other columns.
        columns: columns of the set that are used, the first ones; None: all.
        trees, depth: of the model.
    """

    data: str = "credit_default"
    share: float = 1.0
    own: int = 5
    others: int = 1
    columns: int | None = None
    trees: int = 100
    depth: int = 4

    @property
    def folder(self) -> str:
        """A name for what is stored of it."""
        return "-".join(str(value) for value in (vars(self)).values())


class Model:
    """The centralised model of a setting, kept below `folder`, and the rows to predict."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        self.setting = setting
        table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / f"{setting.data}.parquet")
        label = LABELS[setting.data]
        names = [name for name in table.column_names if name != label][: setting.columns]
        parts = np.array_split(np.array(names[setting.own :]), setting.others)
        self.columns = {HOLDER: names[: setting.own]} | {
            f"feature-{k + 1}": [str(name) for name in part] for k, part in enumerate(parts)
        }
        self.raw = {
            party: np.stack([table.column(name).to_numpy() for name in own], axis=1).astype(np.float64)
            for party, own in self.columns.items()
        }
        self.labels = table.column(label).to_numpy()
        records = round(table.num_rows * setting.share)
        order = np.random.default_rng(0).permutation(table.num_rows)[:records]
        self.training, self.test = np.sort(order[: records * 6 // 10]), order[records * 8 // 10 :]
        params = self.params = BoostingParams(n_estimators=setting.trees, max_depth=setting.depth)
        self._binned = [
            (party, bin_table(raw[self.training], self.columns[party], params.max_bin))
            for party, raw in self.raw.items()
        ]
        self.folder = folder / setting.folder
        job = JobTable(n_estimators=setting.trees, max_depth=setting.depth)
        self.spec = job.spec(HOLDER, list(self.columns)[1:], "train")
        if not (self.folder / "expected.npy").is_file():
            model = train(self._binned, self.labels[self.training], params)
            self._store(model)
        self.expected: Floats = np.load(self.folder / "expected.npy")

    def _store(self, model: CentralModel) -> None:
        """Shards by owner, and the scores of the test rows, which show that all is there."""
        splits = {party: _own_splits(party, dict(self._binned)[party], model) for party in self.columns}
        for party in self.columns:
            job = Store(self.folder / party).job(JOB)
            job.claim(SUBMISSION, "")
            for number, tree in enumerate(model.ensemble.trees):
                ordered = _left_to_right(tree)
                own = [splits[party][s.handle].to_dict() for s in ordered.splits if s.owner == party]
                if party == HOLDER:
                    job.lines(TREES).put({"tree": ordered.to_dict(), "own": own}, number)
                else:
                    leaves = [_branches(ordered, leaf.node, party) for leaf in ordered.leaves]
                    job.lines(TREES).put({"tree": number, "splits": own, "leaves": leaves}, number)
            manifest: dict[str, Any] = {
                "party": party,
                "protocol": "boosting",
                "trees": len(model.ensemble.trees),
                "columns": self.columns[party],
                "source_columns": self.columns[party],
                "categories": {},
                "tensors": {},
                "empty_columns": [],
                "missing": None,
            }
            if party == HOLDER:
                manifest |= {
                    "role": "label_holder",
                    "feature_parties": list(self.columns)[1:],
                    "classes": ["0", "1"],
                    "class_type": "int64",
                    "params": self.params.to_dict(),
                    "objective": model.ensemble.objective,
                    "base_margin": list(model.ensemble.base_margin),
                    "trees_per_round": model.ensemble.trees_per_round,
                    "best_round": None,
                    "training_metrics": {},
                }
            else:
                manifest |= {"role": "feature_party", "label_holder": HOLDER}
            job.publish(manifest, shard(job.lines(TREES).read()))
        encoded = [(party, binned.encode(self.raw[party][self.test])) for party, binned in self._binned]
        np.save(self.folder / "expected.npy", model.predict(encoded)[:, 0])

    def write_tables(self, folder: Path, records: int) -> dict[str, Path]:
        """Each party's table of the first test rows, repeated where there are not as many."""
        rows = np.resize(self.test, records)
        paths = {}
        for party, names in self.columns.items():
            paths[party] = folder / f"{party}-{records}.parquet"
            content = {name: self.raw[party][rows, j] for j, name in enumerate(names)}
            pq.write_table(pa.table({"id": [f"r{i:06d}" for i in range(records)], **content}), paths[party])
        return paths


def _own_splits(party: str, binned: BinnedTable, model: CentralModel) -> dict[int, OwnSplit]:
    """What the handles of a party mean, with thresholds in the place of bins."""
    nodes = {s.handle: s.node for tree in model.ensemble.trees for s in tree.splits if s.owner == party}
    found = {}
    for handle, (candidate, _) in enumerate(model.splits[party]):
        cuts = binned.features[candidate.feature].cuts
        threshold = float(cuts[candidate.bin]) if candidate.bin < len(cuts) else float("inf")
        found[handle] = OwnSplit(
            handle, nodes[handle], candidate.feature, candidate.bin, threshold, candidate.missing_left
        )
    return found


def _left_to_right(tree: Tree) -> Tree:
    """The same tree with its leaves in the order in which the federation stores them."""
    leaves = tuple(sorted(tree.leaves, key=lambda leaf: f"{leaf.node:b}"))
    return Tree(tree.index, tree.outputs, tree.splits, leaves)


def _branches(tree: Tree, leaf: int, party: str) -> list[list[int]]:
    splits = {split.node: split for split in tree.splits if split.owner == party}
    ups = range(leaf.bit_length() - 1, 0, -1)
    return [[splits[leaf >> up].handle, int((leaf >> (up - 1)) % 2 == 0)] for up in ups if leaf >> up in splits]


@contextmanager
def serving(
    model: Model,
    tables: Mapping[int, dict[str, Path]],
    key_bits: int,
    delay_s: float,
    workers: int | None = None,
    arithmetic: Choice = "auto",
    more: Mapping[str, Any] | None = None,
) -> Iterator[LocalFederation]:
    """The federation with the shards on its disks, as if it had trained them; `more` settings of the label holder."""
    with tempfile.TemporaryDirectory(prefix="treetap-eini-") as name:
        folder = Path(name)
        settings = {
            party: {
                "policy": {
                    "keys": {"min_key_bits": key_bits},
                    "emits": {"EXPLANATION": ["parties"]},
                    "people": {"label_holders": [HOLDER] if party != HOLDER else []},
                },
                **({} if workers is None else {"workers": workers}),
                "arithmetic": arithmetic,
                "tables": {
                    f"rows-{records}": {"path": str(paths[party]), "id": "id", "columns": model.columns[party]}
                    for records, paths in tables.items()
                },
            }
            for party in model.columns
        }
        settings[HOLDER] |= dict(more or {})
        for party in model.columns:
            shard = model.folder / party / "models"
            state = folder / party / "state" / "models"
            state.parent.mkdir(parents=True)
            _copy(shard, state)
        spec = setup_pb2.JobSpec()
        spec.CopyFrom(model.spec)
        spec.alignment = "sorted-ids"
        journal = Journal(folder / "coordinator" / "state" / "journal")
        ended = jobs_pb2.JobStatus(job=JOB, kind="train", state="finished", attempt=1)
        journal.write_submitted(JOB, "train", spec, SUBMISSION)
        journal.write(JOB, "attempt", number=1)
        journal.write(JOB, "ended", attempt=1, status=to_base64(ended))
        proxies: list[DelayProxy] = []

        def through(address: str) -> str:
            proxies.append(DelayProxy(address, delay_s))
            return proxies[-1].address

        try:
            with LocalFederation(folder, settings, reached=through if delay_s else None) as federation:
                yield federation
        finally:
            for proxy in proxies:
                proxy.close()


def _copy(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())


def predict(federation: LocalFederation, model: Model, records: int, **asked: Any) -> dict[str, Any]:
    """One prediction of the first test rows, repeated where there are not as many; `asked`: of the request.

    Returns seconds of its main phase, of the keys and in all, bytes between parties, ciphertexts, CPU seconds, the
    largest process, AUC and KS, and the largest difference to the centralised scores.
    """
    operator = federation.operator
    request = predict_request(model=JOB, table=f"rows-{records}", **asked)
    with progress_view.live(asked.get("form") or asked["protocol"]) as update:
        status = operator.watch(operator.predict(request), update)
    if status.state != "finished":
        raise Interrupted(status.error)
    found = pq.read_table(status.predictions).column("score").to_numpy()
    truth = np.resize(model.labels[model.test], records)
    phases = {row.name: row.amount for row in status.phases}
    accounts = [each.account for each in status.accounts]
    parties = set(model.columns)
    ciphertexts: Counter[str] = Counter()
    for account in accounts:
        ciphertexts.update({count.name: count.count for count in account.ciphertexts})
    return {
        "records": records,
        "seconds": phases["predict"],
        "keys_s": phases.get("keys", 0.0),
        "all_s": status.seconds,
        "records_per_s": records / phases["predict"],
        "bytes_per_record": sum(row.bytes for a in accounts for row in a.traffic if row.to in parties) / records,
        "ciphertexts": dict(ciphertexts),
        "cpu_s": sum(used.amount for a in accounts for used in a.cpu_seconds),
        "largest_process_mb": max(peak.amount for a in accounts for peak in a.peak_rss_mb),
        "auc": metrics.auc(found, truth),
        "ks": metrics.ks(found, truth),
        "max_difference": float(np.abs(found - np.resize(model.expected, records)).max()),
    }
