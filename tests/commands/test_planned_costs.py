"""What a job will cost, by layout, and the scheme of a draft that leaves it open."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.commands.command import write
from treetap.commands.jobs import cli, planned_costs
from treetap.commands.jobs.client import Operator
from treetap.commands.jobs.job_file import JobFile, JobTable
from treetap.commands.jobs.planned_costs import CPU_S, cost_of, planned
from treetap.errors import BadInput, ConfigError
from treetap.lab.experiment import kept
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lattice import histogram_ways
from treetap.protocols.key_options import LATTICE, PAILLIER, bits_per_second
from treetap.strict import load
from treetap.wire.v2 import jobs_pb2

ROOT = Path(__file__).parents[2]
AUTO = {"label_holder": "bank", "feature_parties": ["telco"], "scheme": "auto", "n_estimators": 2, "max_depth": 3}


def _draft(folder: Path, records: int, columns: int, **keys: Any) -> JobFile:
    job = {**AUTO, "records": records, "columns": {"telco": columns}, **keys}
    return load(write(folder / "job.toml", {"job": job}), JobFile)


def _planned(file: JobFile) -> tuple[list[str], list[str]]:
    job = file.job
    drafts, said = planned(job, job.drafts(file.to_spec), job.records or 0, [*(job.columns or {}).values()])
    specs = [file.to_spec(draft) for draft in drafts]
    assert all((spec.line > 0) != (spec.key_bits > 0) for spec in specs)
    return [spec.scheme for spec in specs], said


def test_the_cheaper_scheme(tmp_path: Path) -> None:
    """By seconds of processors and of the line, said with both schemes' figures; keys of the other one are left out."""
    schemes, said = _planned(_draft(tmp_path, 5_000, 800, key_bits=2048))
    assert schemes == [LATTICE, PAILLIER]
    assert said[0] == "The cheaper scheme is taken. Estimated by layout, over a line of 1 Gbit/s:"
    lattice, paillier = (re.fullmatch(r"  (\w+): some (\d+\.\d) s", line) for line in said[1:3])
    assert lattice is not None
    assert paillier is not None
    assert float(lattice[2]) < float(paillier[2])
    schemes, said = _planned(_draft(tmp_path, 5_000, 800, line="20 Mbit/s"))
    assert schemes == [PAILLIER, LATTICE]
    assert len(said) == 3


def test_a_draft_that_one_scheme_alone_takes(tmp_path: Path) -> None:
    """What excludes a scheme, and sums that do not fit one, leave the other; `auto` is in no job that is submitted."""
    assert _planned(_draft(tmp_path, 9_000, 5, instance_spaces="withheld"))[0] == [LATTICE]
    assert _planned(_draft(tmp_path, 9_000, 5, max_bin=256))[0] == [PAILLIER]
    wide = {"objective": "multi:softprob", "multi_strategy": "multi_output_tree", "max_sample_weight": 1e4}
    assert _planned(_draft(tmp_path, 90_000, 5, **wide))[0][0] in (LATTICE, PAILLIER)
    with pytest.raises(ConfigError, match="scheme = 'auto': must be one of paillier, lattice"):
        _draft(tmp_path, 9_000, 5).to_spec()


def test_a_large_job_is_named(tmp_path: Path) -> None:
    """Above a gigabyte or two gibibytes, whether its scheme was open or not."""
    assert _planned(_draft(tmp_path, 1_000_000, 25, n_estimators=5, scheme=LATTICE))[1] == [
        *("an attempt will send at most 1.13 GB of ciphertexts", "a party will hold some 1.3 GiB"),
    ]
    assert _planned(_draft(tmp_path, 30_000, 11, scheme=PAILLIER))[1] == []


def test_formulas_are_those_of_the_page() -> None:
    """Processor time and memory; whoever renders the page anew sees here what else to change."""
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]*, (?:paillier|lattice)) \|(.*)\| \d+% \|$", page, re.MULTILINE))
    numbers = {name: [float(cell.strip() or 0) for cell in row.split("|")] for name, row in rows.items()}
    for scheme, formula in CPU_S.items():
        of_page = numbers[f"CPU s, {scheme}"]
        assert list(formula) == [*of_page[:2], *of_page[3:]]
    holder, party = histogram_ways.MIB
    for formula, name in (
        (planned_costs.MIB, "feature party, paillier"),
        (holder, "label holder, lattice"),
        (party, "feature party, lattice"),
    ):
        of_page = numbers[f"MiB, {name}"]
        assert list(formula) == [*of_page[:4], *of_page[5:]]


def test_bytes_are_those_that_were_sent() -> None:
    """At most a third more than eight trainings sent by either scheme, of which some columns had fewer bins."""
    for line in (ROOT / "benchmarks" / "measured" / "sizes.jsonl").read_text().splitlines():
        row = json.loads(line)
        trial = row["trial"]
        keys = {"scheme": trial["scheme"], "n_estimators": trial["trees"], "max_depth": trial["depth"]}
        cost = cost_of(JobTable.model_validate(keys), trial["records"], [trial["columns"] // 2])
        assert 0.93 < cost.sent / row["bytes"] < 4 / 3, trial


@pytest.mark.parametrize(("refused", "taken"), [("", LATTICE), (LATTICE, PAILLIER), ("both", PAILLIER)])
def test_policies_bound_the_choice(refused: str, taken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheaper scheme that no party refuses; where each is refused, one whose refusal comes then."""

    def check(_: object, asked: jobs_pb2.SubmitRequest) -> list[jobs_pb2.Checked]:
        return [jobs_pb2.Checked(party="telco", error="no" if refused in ("both", asked.spec.scheme) else "")]

    monkeypatch.setattr(Operator, "check", check)
    client, requests = object.__new__(Operator), [jobs_pb2.SubmitRequest() for _ in range(2)]
    requests[0].spec.scheme, requests[1].spec.scheme = LATTICE, PAILLIER
    assert cli._permitted(client, requests).spec.scheme == taken
    assert cli._permitted(client, requests[1:]).spec.scheme == PAILLIER


def test_an_experiment_knows_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no sizes; without kernels on this machine a lattice cannot be."""
    table = pa.table({"a": [*range(60)], "b": [*range(60)], "y": [k % 2 for k in range(60)]})
    content = {
        "data": {"path": "t.csv", "label": "y", "compare": False},
        "party": [{"name": "bank", "labels": True, "columns": ["a"]}, {"name": "telco", "columns": ["b"]}],
        "job": {"scheme": "auto", "n_estimators": 1, "max_depth": 2},
        "audit": {"run": False},
    }
    file = ExperimentFile.model_validate(content)
    assert kept.opened(file, tmp_path / "one", base=tmp_path, table=table).experiment.job.scheme == LATTICE

    def none() -> None:
        raise BadInput("no kernels")

    monkeypatch.setattr(planned_costs, "kernels", none)
    found = kept.opened(file, tmp_path / "two", base=tmp_path, table=table).experiment
    assert found.job.scheme == PAILLIER
    assert found.spec(found.job).scheme == PAILLIER


def test_speeds_of_lines() -> None:
    assert [bits_per_second(f"{it}bit/s") for it in ("1 G", "2.5 M", "0.5 k", "7 ")] == [10**9, 2_500_000, 500, 7]
