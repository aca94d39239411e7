"""Obesity levels, seven classes in one ciphertext per record: ciphertexts, seconds and bytes of a federated forest.

    python benchmarks/forest.py [--table obesity] [--scheme NAME …] [--binning global per-node] [--encode ordinal]
                                [--key-bits 2048] [--trees 5] [--depth 6] [--json]

Needs TREETAP_DATA, the folder with obesity.parquet and credit_default.parquet. Three parties with a random part of the
columns each, the label holder among them; the centralised forest on the same rows and columns stands beside the
federation.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

from treetap import terminal
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table
from treetap.lab.experiment.run import run_seed
from treetap.protocols.key_options import LATTICE, PAILLIER, SCHEMES

#: File and label.
TABLES = {
    "obesity": ("obesity.parquet", "NObeyesdad"),
    "credit": ("credit_default.parquet", "default.payment.next.month"),
}
#: From the accepted job to the stored shards, without key generation and alignment.
TRAINING = ("prepare", "bin", "train", "publish")


def experiment(given: argparse.Namespace, scheme: str, binning: str) -> ExperimentFile:
    """The benchmark's federation."""
    file, label = TABLES[given.table]
    data = {"path": f"$TREETAP_DATA/{file}", "label": label, "encode": given.encode, "compare": True}
    shares = {"label-holder": 0.3, "feature-b": 0.4, "feature-c": 0.3}
    parties = [{"name": name, "share": share, "labels": name == "label-holder"} for name, share in shares.items()]
    job = {"protocol": "forest", "binning": binning, "scheme": scheme}
    job |= {} if scheme == LATTICE else {"key_bits": given.key_bits}
    job |= {"n_estimators": given.trees, "max_depth": given.depth}
    return ExperimentFile.model_validate({"data": data, "party": parties, "job": job})


def run(given: argparse.Namespace, scheme: str, binning: str) -> dict[str, Any]:
    """One federation from start to end."""
    setting = experiment(given, scheme, binning)
    table = read_table(setting, Path())
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as folder:
        result = run_seed(setting, table, 0, Path(folder) / "federation")
    return {
        "binning": binning,
        "scheme": scheme,
        "key_bits": 0 if scheme == LATTICE else given.key_bits,
        "records": result.records["train"],
        "wall_s": sum(result.seconds[phase] for phase in TRAINING),
        "keys_s": result.seconds["keys"],
        "cpu_s": sum(result.cpu_seconds.values()),
        "largest_process_mb": max(result.peak_rss_mb.values()),
        "bytes": sum(row.bytes for row in result.traffic),
        "ciphertexts": result.ciphertexts,
        "operations": result.operations,
        "accuracy": result.metrics["test"]["accuracy"],
        "centralised_accuracy": result.metrics["centralised, test"]["accuracy"],
        "alone_accuracy": result.metrics["label holder alone, test"]["accuracy"],
        "seconds_by_step": result.seconds_by_step,
    }


def report(runs: list[dict[str, Any]]) -> None:
    """The figures for a person."""
    names = ("binning", "scheme", "wall s", "cpu s", "labels", "candidates", "sent", "MiB", "accuracy", "centralised")
    table = Table(*names, "alone")
    for each in runs:
        table.add_row(
            each["binning"],
            f"{each['scheme']} {each['key_bits'] or ''}",
            f"{each['wall_s']:.1f}",
            f"{each['cpu_s']:.1f}",
            str(sum(each["ciphertexts"].get(kind, 0) for kind in ("encrypted_labels", "encrypted_words"))),
            str(each["ciphertexts"]["candidate_sums"]),
            terminal.size(each["bytes"]),
            f"{each['largest_process_mb']:.0f}",
            *(f"{each[name]:.4f}" for name in ("accuracy", "centralised_accuracy", "alone_accuracy")),
        )
    terminal.out.print(table)
    for each in runs:
        terminal.out.print({each["binning"]: each["operations"]})


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=list(TABLES), default="obesity")
    parser.add_argument("--scheme", nargs="*", choices=list(SCHEMES), default=[PAILLIER])
    parser.add_argument("--binning", nargs="*", default=["global", "per-node"])
    parser.add_argument("--encode", default="ordinal")
    parser.add_argument("--key-bits", type=int, default=2048)
    parser.add_argument("--trees", type=int, default=5)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    if "TREETAP_DATA" not in os.environ:
        sys.exit(f"forest: set TREETAP_DATA to the folder with {TABLES[given.table][0]}")
    runs = [run(given, scheme, binning) for scheme in given.scheme for binning in given.binning]
    if given.as_json:
        print(json.dumps({"runs": runs}, indent=1))
    else:
        report(runs)


if __name__ == "__main__":
    main()
