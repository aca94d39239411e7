"""Private set intersection between real processes: seconds, ids per second, bytes per id, memory.

    python benchmarks/psi.py [--ids 1000000] [--parties 2] [--arithmetic auto …] [--proof] [--json]

Every party holds so many ids, of which one in a thousand is common to all; the job that follows is as small as a job
can be, so that its alignment is what takes time. Wall time is that of the phase `align` alone, processor time that of
the whole job. The names after --arithmetic (docs/deploy.md) are measured in turn; where gmpy2 is among them, which is
libsodium here, with ratios to it. With --proof each is measured without and with proofs that both of two parties ask
for (`alignment_proof`), in turn, and the ratio of processor time is printed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from backends import add_arithmetic, backends, machine, print_machine, print_ratios

from treetap.commands.jobs.job_file import JobTable
from treetap.lab.local_federation import LocalFederation
from treetap.native import arithmetic
from treetap.wire.v2 import jobs_pb2


def write_tables(folder: Path, ids: int, parties: int, choice: str, proof: bool) -> dict[str, dict[str, Any]]:
    """A table per party, and its settings."""
    rng = np.random.default_rng(0)
    common = max(30, ids // 1000)  # as many as a policy wants
    settings = {}
    for place in range(parties):
        own = [f"common-{i:08d}" for i in range(common)]
        own += [f"party-{place}-{i:08d}" for i in range(ids - common)]
        content = {"id": [own[i] for i in rng.permutation(ids)], "x": rng.normal(size=ids)}
        if place == 0:
            content["y"] = rng.integers(0, 2, size=ids)
        path = folder / f"{place}.parquet"
        pq.write_table(pa.table(content), path)
        table = {"path": str(path), "id": "id", "columns": ["x"]} | ({"label": "y"} if place == 0 else {})
        settings[f"party-{place}"] = {
            "tables": {"train": table},
            "policy": {"keys": {"min_key_bits": 1024, "alignment_proof": proof}},
            "silence_s": 600.0,
            "arithmetic": choice,
        }
    return settings


def measure(ids: int, parties: int, choice: arithmetic.Name, proof: bool = False) -> dict[str, Any]:
    """One alignment; `proof`: every party asks for proofs."""
    with tempfile.TemporaryDirectory(prefix="treetap-psi-") as name:
        settings = write_tables(Path(name), ids, parties, choice, proof)
        holder, *others = settings
        job = JobTable.model_validate(
            {"alignment": "psi", "key_bits": 1024, "n_estimators": 1, "max_depth": 1, "max_bin": 2}
        )
        with LocalFederation(Path(name) / "federation", settings) as federation:
            operator = federation.operator
            operator.submit(jobs_pb2.SubmitRequest(job="psi", spec=job.spec(holder, others, "train")))
            ended = operator.watch("psi", lambda _: None)
    if ended.state != "finished":
        raise SystemExit(f"psi: {ended.error}")
    seconds = {row.name: row.amount for row in ended.phases}["align"]
    rows = [row for each in ended.accounts for row in each.account.traffic]
    sent = sum(row.bytes for row in rows if row.disclosure == "BLINDED_ID")
    memory = {row.name: row.amount for each in ended.accounts for row in each.account.peak_rss_mb}
    cpu = {row.name: row.amount for each in ended.accounts for row in each.account.cpu_seconds}
    return {
        "parties": parties,
        "ids_per_party": ids,
        "arithmetic": choice,
        "proof": proof,
        "align_s": seconds,
        "cpu_s_of_the_whole_job": sum(cpu.values()),
        "ids_per_second": ids * parties / seconds,
        "bytes_per_id": sent / (ids * parties),
        "largest_process_mb": max(memory.values()),
        "sum_of_peaks_per_party_mb": max(
            sum(amount for name, amount in memory.items() if name.split(" ")[0] == party) for party in settings
        ),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=1_000_000, help="ids per party (default 1,000,000)")
    parser.add_argument("--parties", type=int, default=2, help="how many parties (default 2)")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    parser.add_argument("--proof", action="store_true", help="without and with proofs (default without)")
    add_arithmetic(parser, ["auto"])
    given = parser.parse_args()
    ways = [(backend, proof) for backend in backends(given.arithmetic) for proof in (False, True)[: 1 + given.proof]]
    runs = [measure(given.ids, given.parties, backend, proof) for backend, proof in ways]
    if given.as_json:
        print(json.dumps({"machine": machine(given.arithmetic), "runs": runs}, indent=1))
        return
    print_machine(given.arithmetic)
    for name in runs[0]:
        values = (run[name] for run in runs)
        print(f"{name:<28}", *(format(value, ".1f") if isinstance(value, float) else value for value in values))
    for without, proven in zip(runs[::2], runs[1::2], strict=False) if given.proof else ():
        ratio = proven["cpu_s_of_the_whole_job"] / without["cpu_s_of_the_whole_job"]
        print(f"{proven['arithmetic']}: {ratio:.3f} times the CPU of the job without proofs")
    print_ratios(runs, ("ids_per_party", "proof"), {"wall": "align_s", "CPU": "cpu_s_of_the_whole_job"})


if __name__ == "__main__":
    main()
