"""Fed-EINI on credit default: wall time, records/s, bytes per record; beside interactive inference as it was published.

    python benchmarks/eini.py speed [--records 1000] [--key-bits 2048] [--parties 2] [--repeat 1] [--attributions]
                                    [--arithmetic gmpy2 auto …]
    python benchmarks/eini.py lattice [--records 30000] [--parties 2] [--workers 1] [--repeat 1] [--paillier 0]
    python benchmarks/eini.py paper [--records 200] [--singles 2] [--delay-ms 20]

Needs TREETAP_DATA (the folder with credit_default.parquet). 100 trees of depth 4, the label holder with 5 columns, as
in the Fed-EINI paper (Chen et al. 2021). Training is not measured: the centralised trainer's trees are cut into shards
by owner, put on the parties' disks, and kept in --workdir for the next time. Predictions are those of real processes
over mutual TLS, and are compared with the centralised scores.

`speed` predicts with Fed-EINI and with the batched interactive form; with `--attributions` also with Fed-EINI and
attributions, which are checked against the scores; by each of the names after --arithmetic, gmpy2 and auto by default,
in turn, beside a product of gmpy2 modulo 4,096 bits measured before each, with ratios to gmpy2. `lattice` predicts with
the lattice backend, more records than there are test rows by repeating them, then the first 1, 20 and 200 of them; with
--paillier N also N of them under Paillier, from which the time of all is extrapolated. `paper` has the paper's key of
512 bits, which protects nothing and is for comparison only: Fed-EINI ÷ interactive one tree after the other, for
batches and for one record at a time, on loopback and with a proxy before every party that delivers each chunk of bytes
so much later.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from backends import add_arithmetic, backends, machine, print_machine, print_ratios
from he_blocks import gmpy2_product
from measured_trainings import PRODUCT_BITS, PRODUCT_US
from rich.table import Table
from shards import Model, Setting, predict, serving

from treetap import terminal
from treetap.lab.local_federation import LocalFederation
from treetap.native import arithmetic

EXTRAPOLATED = 30_000
#: Records of small requests.
FEW = (1, 20, 200)


def speed(given: argparse.Namespace, workdir: Path) -> list[dict[str, Any]]:
    """Fed-EINI and the batched interactive form on the same rows."""
    model = Model(workdir, Setting(others=given.parties - 1))
    tables = {given.records: model.write_tables(workdir, given.records)}
    runs = []
    for _ in range(given.repeat):
        for backend in backends(given.arithmetic):
            with serving(model, tables, given.key_bits, 0.0, arithmetic=backend) as federation:
                runs += _speed(given, model, federation, backend)
    return runs


def _speed(
    given: argparse.Namespace, model: Model, federation: LocalFederation, backend: arithmetic.Name
) -> list[dict[str, Any]]:
    """The same predictions by one backend."""
    product = gmpy2_product(PRODUCT_BITS)
    eini = predict(federation, model, given.records, protocol="eini", key_bits=given.key_bits)
    plain = predict(federation, model, given.records, protocol="interactive")
    cpu = eini["cpu_s"] / given.records
    runs = [
        {
            "way": "eini",
            "arithmetic": backend,
            "key_bits": given.key_bits,
            **eini,
            f"{EXTRAPOLATED}_records_s": eini["keys_s"] + eini["seconds"] * EXTRAPOLATED / given.records,
            "cpu_s_per_record": cpu,
            "product_us": product,
            "scaled_cpu_s_per_record": cpu * PRODUCT_US / product,
        },
        {"way": "interactive, batched", "arithmetic": backend, **plain},
    ]
    if given.attributions:
        more = predict(federation, model, given.records, protocol="eini", key_bits=given.key_bits, attributions=True)
        runs.append({"way": "eini, attributions", "arithmetic": backend, "key_bits": given.key_bits, **more})
    return runs


def lattice(given: argparse.Namespace, workdir: Path) -> list[dict[str, Any]]:
    """The lattice backend: a large table, few records, and what Paillier would take for the large one."""
    model = Model(workdir, Setting(others=given.parties - 1))
    counts = [given.records, *FEW]
    tables = {count: model.write_tables(workdir, count) for count in {*counts, given.paillier} - {0}}
    runs = []
    with serving(model, tables, given.key_bits, 0.0, given.workers) as federation:
        for _ in range(given.repeat):
            for count in counts:
                runs.append({"way": "eini-lattice", **predict(federation, model, count, protocol="eini-lattice")})
        if given.paillier:
            eini = predict(federation, model, given.paillier, protocol="eini", key_bits=given.key_bits)
            whole = eini["keys_s"] + eini["seconds"] * given.records / given.paillier
            ours = min(run["keys_s"] + run["seconds"] for run in runs if run["records"] == given.records)
            cpu = min(run["cpu_s"] for run in runs if run["records"] == given.records)
            cpu_of_all = eini["cpu_s"] * given.records / given.paillier
            ratios = {"÷ lattice, wall": whole / ours, "÷ lattice, CPU": cpu_of_all / cpu}
            runs.append({"way": "eini", "key_bits": given.key_bits, **eini, "all_records_s": whole, **ratios})
    return runs


def paper(given: argparse.Namespace, workdir: Path) -> list[dict[str, Any]]:
    """Fed-EINI ÷ interactive per tree, in batches and one record at a time, without and with delay."""
    terminal.err.print("a 512-bit key protects nothing: these figures are for comparison with the paper only")
    model = Model(workdir, Setting())
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


#: What → how it is run, and how many records it takes unless told.
WAYS = {"speed": (speed, 1000), "lattice": (lattice, 30_000), "paper": (paper, 200)}


def report(runs: list[dict[str, Any]], asked: list[str]) -> None:
    """The figures for a person, a column per run."""
    print_machine(asked)
    names = dict.fromkeys(name for run in runs for name in run)
    table = Table("", *(str(number + 1) for number in range(len(runs))))
    for name in names:
        table.add_row(name, *(_shown(run.get(name, "")) for run in runs))
    terminal.out.print(table)
    for backend in dict.fromkeys(run.get("arithmetic") for run in runs if run.get("way") == "eini"):
        some = [run for run in runs if run.get("way") == "eini" and run.get("arithmetic") == backend]
        if len(some) > 1:
            middle = statistics.median(run["seconds"] for run in some)
            terminal.out.print(f"eini{f' by {backend}' if backend else ''}: median {middle:.2f} s")
    by_backend = [run for run in runs if run.get("way", "").startswith("eini") and "arithmetic" in run]
    print_ratios(by_backend, ("way",), {"wall": "seconds", "CPU": "cpu_s"})


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(WAYS))
    parser.add_argument("--records", type=int, help="1000 for speed, 30000 for lattice, 200 for paper")
    parser.add_argument("--singles", type=int, default=2, help="records that are predicted one at a time")
    parser.add_argument("--key-bits", type=int, default=2048)
    parser.add_argument("--parties", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--workers", type=int, help="of lattice: worker processes per party; without it, one per core")
    parser.add_argument("--paillier", type=int, default=0, help="of lattice: records to predict under Paillier as well")
    add_arithmetic(parser)
    parser.add_argument("--attributions", action="store_true", help="speed: a third run, with attributions")
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()) / "treetap-eini")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    if "TREETAP_DATA" not in os.environ:
        sys.exit("eini: set TREETAP_DATA to the folder with credit_default.parquet")
    given.workdir.mkdir(parents=True, exist_ok=True)
    if given.records is None:
        given.records = WAYS[given.what][1]
    runs = WAYS[given.what][0](given, given.workdir.resolve())
    if given.as_json:
        print(json.dumps({"machine": machine(given.arithmetic), "runs": runs}, indent=1, ensure_ascii=False))
    else:
        report(runs, given.arithmetic)


if __name__ == "__main__":
    main()
