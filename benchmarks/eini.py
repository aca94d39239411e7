"""Fed-EINI on credit default: wall time, records/s, bytes per record; beside interactive inference as it was published.

    python benchmarks/eini.py speed [--records 1000] [--key-bits 2048] [--parties 2] [--repeat 1]
    python benchmarks/eini.py paper [--records 200] [--singles 2] [--delay-ms 20]

Needs TREETAP_DATA (the folder with credit_default.parquet). 100 trees of depth 4, the label holder with 5 columns, as
in the Fed-EINI paper (Chen et al. 2021). Training is not measured: the centralised trainer's trees are cut into shards
by owner, put on the parties' disks, and kept in --workdir for the next time. Predictions are those of real processes
over mutual TLS, and are compared with the centralised scores.

`speed` predicts with Fed-EINI and with the batched interactive form. `paper` has the paper's key of 512 bits, which
protects nothing and is for comparison only: Fed-EINI ÷ interactive one tree after the other, for batches and for one
record at a time, on loopback and with a proxy before every party that delivers each chunk of bytes so much later.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from delay import DelayProxy
from rich.table import Table

from coordinator.journal import packed
from party.store import Store
from party.vault import OwnSplit
from treetap import show
from treetap.federation import LocalFederation
from treetap.jobfile import JobTable
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.centralised import CentralModel, train
from treetap.trees.ensemble import Tree
from treetap.trees.params import BoostingParams
from treetap.wire.v1 import jobs_pb2, setup_pb2

LABEL = "default.payment.next.month"
HOLDER = "label-holder"
JOB, SUBMISSION = "credit", "benchmark"
TREES, DEPTH, OWN_COLUMNS = 100, 4, 5
EXTRAPOLATED = 30_000
Floats = np.ndarray[Any, np.dtype[np.float64]]


class Model:
    """The centralised model of a split of the columns, and the rows to predict."""

    def __init__(self, folder: Path, others: int, trees: int = TREES) -> None:
        table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet")
        names = [name for name in table.column_names if name != LABEL]
        parts = np.array_split(np.array(names[OWN_COLUMNS:]), others)
        self.columns = {HOLDER: names[:OWN_COLUMNS]} | {
            f"feature-{k + 1}": [str(name) for name in part] for k, part in enumerate(parts)
        }
        self.raw = {
            party: np.stack([table.column(name).to_numpy() for name in own], axis=1).astype(np.float64)
            for party, own in self.columns.items()
        }
        labels = table.column(LABEL).to_numpy()
        order = np.random.default_rng(0).permutation(table.num_rows)
        self.training, self.test = np.sort(order[: table.num_rows * 6 // 10]), order[table.num_rows * 8 // 10 :]
        params = BoostingParams(n_estimators=trees, max_depth=DEPTH)
        self._binned = [
            (party, bin_table(raw[self.training], self.columns[party], params.max_bin))
            for party, raw in self.raw.items()
        ]
        self.folder = folder / f"credit-{others}-{trees}"
        self.spec = JobTable(n_estimators=trees, max_depth=DEPTH).spec(HOLDER, list(self.columns)[1:], "train")
        if not (self.folder / "expected.npy").is_file():
            model = train(self._binned, labels[self.training], params)
            self._store(model)
        self.expected: Floats = np.load(self.folder / "expected.npy")

    def _store(self, model: CentralModel) -> None:
        """Shards by owner, and the scores of the test rows, which show that all is there."""
        splits = {party: _own_splits(party, dict(self._binned)[party], model) for party in self.columns}
        for party in self.columns:
            job = Store(self.folder / party).job(JOB)
            job.claim(SUBMISSION)
            for number, tree in enumerate(model.ensemble.trees):
                ordered = _left_to_right(tree)
                own = [splits[party][s.handle].to_dict() for s in ordered.splits if s.owner == party]
                if party == HOLDER:
                    job.add_tree({"tree": ordered.to_dict(), "own": own}, number)
                else:
                    leaves = [_turns(ordered, leaf.node, party) for leaf in ordered.leaves]
                    job.add_tree({"tree": number, "splits": own, "leaves": leaves}, number)
            manifest: dict[str, Any] = {"party": party, "columns": self.columns[party], "missing": None}
            if party == HOLDER:
                manifest |= {
                    "role": "label_holder",
                    "feature_parties": list(self.columns)[1:],
                    "classes": ["0", "1"],
                    "objective": model.ensemble.objective,
                    "base_margin": list(model.ensemble.base_margin),
                    "trees_per_round": model.ensemble.trees_per_round,
                    "best_round": None,
                }
            else:
                manifest |= {"role": "feature_party", "label_holder": HOLDER}
            job.publish(manifest)
        encoded = [(party, binned.encode(self.raw[party][self.test])) for party, binned in self._binned]
        np.save(self.folder / "expected.npy", model.predict(encoded)[:, 0])

    def write_tables(self, folder: Path, records: int) -> dict[str, Path]:
        """Each party's table of the first test rows."""
        rows = self.test[:records]
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
    for handle, candidate in enumerate(model.splits[party]):
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


def _turns(tree: Tree, leaf: int, party: str) -> list[list[int]]:
    splits = {split.node: split for split in tree.splits if split.owner == party}
    ups = range(leaf.bit_length() - 1, 0, -1)
    return [[splits[leaf >> up].handle, int((leaf >> (up - 1)) % 2 == 0)] for up in ups if leaf >> up in splits]


@contextmanager
def serving(
    model: Model,
    tables: Mapping[int, dict[str, Path]],
    key_bits: int,
    delay_s: float,
    more: Mapping[str, Any] | None = None,
) -> Iterator[LocalFederation]:
    """The federation with the shards on its disks, as if it had trained them; `more` settings of the label holder."""
    with tempfile.TemporaryDirectory(prefix="treetap-eini-") as name:
        folder = Path(name)
        settings = {
            party: {
                "policy": {"min_key_bits": key_bits},
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
        journal = folder / "coordinator" / "state" / "journal" / f"{JOB}.jsonl"
        journal.parent.mkdir(parents=True)
        ended = jobs_pb2.JobStatus(job=JOB, kind="train", state="finished", attempt=1)
        events: list[dict[str, Any]] = [
            {"event": "submitted", "kind": "train", "spec": packed(spec), "word": SUBMISSION},
            {"event": "attempt", "number": 1},
            {"event": "ended", "attempt": 1, "status": packed(ended)},
        ]
        journal.write_text("".join(json.dumps(event) + "\n" for event in events))
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
    """One prediction: seconds of its main phase and in all, bytes between parties, ciphertexts, largest difference."""
    operator = federation.operator
    request = jobs_pb2.PredictRequest(model=JOB, table=f"rows-{records}", **asked)
    with show.live(asked.get("form") or asked["protocol"]) as update:
        status = operator.watch(operator.predict(request), update)
    if status.state != "finished":
        sys.exit(f"eini: {status.error}")
    found = pq.read_table(status.predictions).column("score").to_numpy()
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
        "max_difference": float(np.abs(found - model.expected[:records]).max()),
    }


def speed(given: argparse.Namespace, workdir: Path) -> list[dict[str, Any]]:
    """Fed-EINI and the batched interactive form on the same rows."""
    model = Model(workdir, given.parties - 1)
    tables = {given.records: model.write_tables(workdir, given.records)}
    runs = []
    with serving(model, tables, given.key_bits, 0.0) as federation:
        for _ in range(given.repeat):
            eini = predict(federation, model, given.records, protocol="eini", key_bits=given.key_bits)
            plain = predict(federation, model, given.records, protocol="interactive")
            extrapolated = eini["keys_s"] + eini["seconds"] * EXTRAPOLATED / given.records
            runs.append({"way": "eini", "key_bits": given.key_bits, **eini, f"{EXTRAPOLATED}_records_s": extrapolated})
            runs.append({"way": "interactive, batched", **plain})
    return runs


def paper(given: argparse.Namespace, workdir: Path) -> list[dict[str, Any]]:
    """Fed-EINI ÷ interactive per tree, in batches and one record at a time, without and with delay."""
    show.err.print("a 512-bit key protects nothing: these figures are for comparison with the paper only")
    model = Model(workdir, 1)
    tables = {count: model.write_tables(workdir, count) for count in {given.records, given.singles}}
    runs = []
    for delay_ms in (0, given.delay_ms):
        with serving(model, tables, 512, delay_ms / 1000) as federation:
            for batch, records in (("one batch", given.records), ("one record at a time", given.singles)):
                block = 1 if batch != "one batch" else 0
                eini = predict(federation, model, records, protocol="eini", key_bits=512, block=block)
                ours = predict(federation, model, records, protocol="interactive", block=block)
                theirs = predict(federation, model, records, protocol="interactive", form="per-tree", block=block)
                runs.append(
                    {
                        "records": f"{records}, {batch}",
                        "delay_ms": delay_ms,
                        "eini_s": eini["seconds"],
                        "per_tree_s": theirs["seconds"],
                        "batched_s": ours["seconds"],
                        "eini ÷ per tree": eini["seconds"] / theirs["seconds"],
                        "eini_bytes_per_record": eini["bytes_per_record"],
                        "per_tree_bytes_per_record": theirs["bytes_per_record"],
                        "max_difference": max(each["max_difference"] for each in (eini, ours, theirs)),
                    }
                )
    return runs


def report(runs: list[dict[str, Any]]) -> None:
    """The figures for a person, a column per run."""
    names = dict.fromkeys(name for run in runs for name in run)
    table = Table("", *(str(number + 1) for number in range(len(runs))))
    for name in names:
        table.add_row(name, *(_shown(run.get(name, "")) for run in runs))
    show.out.print(table)
    walls = [run["seconds"] for run in runs if run.get("way") == "eini"]
    if len(walls) > 1:
        show.out.print(f"eini: median {statistics.median(walls):.2f} s")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "paper"])
    parser.add_argument("--records", type=int, help="1000 for speed, 200 for paper")
    parser.add_argument("--singles", type=int, default=2, help="records that are predicted one at a time")
    parser.add_argument("--key-bits", type=int, default=2048)
    parser.add_argument("--parties", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()) / "treetap-eini")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    if "TREETAP_DATA" not in os.environ:
        sys.exit("eini: set TREETAP_DATA to the folder with credit_default.parquet")
    given.workdir.mkdir(parents=True, exist_ok=True)
    if given.records is None:
        given.records = 1000 if given.what == "speed" else 200
    runs = (speed if given.what == "speed" else paper)(given, given.workdir.resolve())
    if given.as_json:
        print(json.dumps({"runs": runs}, indent=1, ensure_ascii=False))
    else:
        report(runs)


if __name__ == "__main__":
    main()
