"""`treetap model open-leaves` and `check-leaves`: to whom a leaf table is opened, and what an auditor sees of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from party.runtime import ledger
from party.runtime.ledger import Kind, Ledger
from tests.commands.command import Outcome, refused, treetap, write
from tests.replay import HERE, JOB
from tests.simulator import Federation, run
from tests.worlds import PARTIES, manifest
from treetap.commands.certs.authority import create_authority, issue
from treetap.errors import Interrupted
from treetap.models.leaf_table import COMMITMENT, commitment
from treetap.models.store import described, read_job
from treetap.wire.roles import Role

LABEL_HOLDER, B, _ = PARTIES


class Trained(NamedTuple):
    """State folders of a training, the label holder's configuration, an authority, and the commitment."""

    states: dict[str, Path]
    config: Path
    ca: Path
    commitment: str

    def open(self, out: Path, *, auditor: str = "regulator", model: str = "job") -> Outcome:
        return treetap("model", "open-leaves", model, "--config", self.config, "--for", auditor, "--out", out)

    def check(self, file: Path, *more: str | Path) -> Outcome:
        return treetap("model", "check-leaves", file, "--against", *(more or (self.commitment,)))


@pytest.fixture(scope="module")
def trained() -> Iterator[Trained]:
    with TemporaryDirectory() as name:
        folder = Path(name)

        async def main() -> dict[str, Path]:
            federation = Federation(folder, HERE.tables)
            for job in ("job", "other"):
                assert (await federation.train(JOB, job)).state == "finished"
            await federation.close()
            return dict(federation.states)

        states = run(main())
        create_authority(folder / "ca")
        files = issue(folder / "certificates", LABEL_HOLDER, Role.PARTY, days=2, ca_folder=folder / "ca")
        write(folder / "policy.toml", {"auditors": ["regulator"]})
        tls = {"ca": str(files.ca), "certificate": str(files.certificate), "key": str(files.key)}
        config = {"name": LABEL_HOLDER, "state": str(states[LABEL_HOLDER]), "policy": "policy.toml", "tls": tls}
        path = write(folder / "bank.toml", config)
        yield Trained(states, path, folder / "ca" / "ca.crt", str(manifest(states[B])[COMMITMENT]))


def test_an_auditor_compares_a_table_with_a_feature_partys_commitment(trained: Trained, tmp_path: Path) -> None:
    """By its folder or in hexadecimal, the signature by the authority; the opening is in the ledger beforehand."""
    out = tmp_path / "leaves.json"
    opened = trained.open(out)
    assert (opened.status, opened.out) == (0, f"{out}: opens the commitment {trained.commitment} to regulator\n")
    assert out.stat().st_mode & 0o077 == 0
    (charge,) = Ledger(trained.states[LABEL_HOLDER]).charges(Kind.OPENED_LEAVES)
    assert (charge.occasion.partners, charge.occasion.job, charge.amount) == (("regulator",), "job", 2)
    assert charge.details == {COMMITMENT: trained.commitment}
    listed = treetap("ledger", "--config", trained.config)
    assert (listed.status, "opened leaf table" in listed.out) == (0, True)
    checked = trained.check(out, trained.commitment, "--ca", trained.ca)
    assert (checked.status, checked.err) == (0, "")
    assert (
        f"leaf table of job job of {LABEL_HOLDER}, opened to regulator: fits the commitment, signed by it"
        in checked.out
    )
    assert "no sign of crafted leaves, which proves nothing" in checked.out
    as_json = trained.check(out, trained.states[B] / "models" / "job", "--json")
    document = json.loads(as_json.out)
    assert (document["party"], document["trees"], document["signature"], document["crafted"]) == (
        LABEL_HOLDER,
        2,
        False,
        [],
    )
    shown = treetap("model", "show", trained.states[B] / "models" / "job")
    assert f"commitment to the leaves: {trained.commitment}" in shown.out


def test_an_opening_needs_a_name_in_the_policy(trained: Trained, tmp_path: Path) -> None:
    """Another name, and another party's part of the model; nothing is written or charged."""
    before = len(Ledger(trained.states[LABEL_HOLDER]).charges())
    said = refused(trained.open(tmp_path / "leaves.json", auditor="regulatr"))
    assert f'{LABEL_HOLDER} opens no leaf table to regulatr: its policy says auditors = ["regulator"]' in said
    said = refused(trained.open(tmp_path / "leaves.json", model="nothing"))
    assert "there is no published model" in said
    write(tmp_path / "policy.toml", {"auditors": ["regulator"]})
    config = {"name": B, "state": str(trained.states[B]), "policy": "policy.toml", "insecure": True}
    other = trained._replace(config=write(tmp_path / "shop.toml", config))
    assert "has no key of a commitment to leaves: name the label holder's" in refused(
        other.open(tmp_path / "leaves.json")
    )
    assert not (tmp_path / "leaves.json").exists()
    assert len(Ledger(trained.states[LABEL_HOLDER]).charges()) == before


def _changed(content: dict[str, Any], change: str) -> Any:
    table = content["table"]
    match change:
        case "a weight":
            table["trees"][0]["leaves"][0]["weights"][0] += 1e-9
        case "the key":
            content["key"] = "00" * 32
        case "the job":
            table["job"]["name"] = "other"
        case "no number":
            table["trees"][0]["leaves"][0]["weights"][0] = float("inf")
        case "a short key":
            content["key"] = "00"
        case "no table":
            content["table"] = []
        case "a field":
            content["more"] = 1
        case "a list":
            return [content]
    return content


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("change", ["a weight", "the key", "the job"])
def test_another_table_does_not_fit_the_commitment(change: str, trained: Trained, tmp_path: Path) -> None:
    trained.open(tmp_path / "leaves.json")
    content = json.loads((tmp_path / "leaves.json").read_text())
    (tmp_path / "leaves.json").write_text(json.dumps(_changed(content, change)))
    said = refused(trained.check(tmp_path / "leaves.json"))
    assert f"does not open the commitment {trained.commitment[:12]}" in said


@pytest.mark.parametrize("change", ["no number", "a short key", "no table", "a field", "a list"])
def test_what_is_no_opening_ends_in_one_error(change: str, trained: Trained, tmp_path: Path) -> None:
    trained.open(tmp_path / "leaves.json")
    content = json.loads((tmp_path / "leaves.json").read_text())
    (tmp_path / "leaves.json").write_text(json.dumps(_changed(content, change)))
    said = refused(trained.check(tmp_path / "leaves.json"))
    assert "leaves.json: is no opened leaf table" in said


def test_tables_of_other_jobs_and_signatures_of_others(trained: Trained, tmp_path: Path) -> None:
    """The other model's table, a forged auditor, no signature, another authority; the label holder's own folder."""
    out = tmp_path / "leaves.json"
    trained.open(out, model="other")
    assert "does not open the commitment" in refused(trained.check(out))
    trained.open(out)
    content = json.loads(out.read_text())
    out.write_text(json.dumps(content | {"auditor": "rival"}))
    assert trained.check(out).status == 0
    assert "is of something else, or was changed" in refused(trained.check(out, trained.commitment, "--ca", trained.ca))
    out.write_text(json.dumps(content | {"signed": ""}))
    assert trained.check(out, trained.commitment, "--ca", trained.ca).status == 2
    create_authority(tmp_path / "ca")
    out.write_text(json.dumps(content))
    said = refused(trained.check(out, trained.commitment, "--ca", tmp_path / "ca" / "ca.crt"))
    assert "was not issued by the given authority" in said
    own = trained.states[LABEL_HOLDER] / "models" / "job"
    assert f"is the part of {LABEL_HOLDER} itself" in refused(trained.check(out, own))
    assert "there is no published model" in refused(trained.check(out, "ab"))


@pytest.mark.parametrize("change", ["job", "digest", "averaged"])
def test_a_table_of_another_training_is_refused_by_a_feature_partys_part(
    change: str, trained: Trained, tmp_path: Path
) -> None:
    """A label holder that committed itself to a table of other parameters, by which its leaves would not be judged."""
    out = tmp_path / "leaves.json"
    trained.open(out)
    content = json.loads(out.read_text())
    table = content["table"]
    if change == "averaged":
        table["averaged"] = True
    else:
        table["job"][{"job": "name"}.get(change, change)] = "ab" * 32
    out.write_text(json.dumps(content))
    made = commitment(bytes.fromhex(content["key"]), table).hex()
    folder = tmp_path / "part"
    shutil.copytree(trained.states[B] / "models" / "job", folder)
    kept = {k: v for k, v in manifest(trained.states[B]).items() if k not in ("files", "sha256", "version")}
    job = {name: value for name, value in read_job(folder).items() if name != "sha256"}
    files = manifest(trained.states[B])["files"]
    (folder / "manifest.json").write_bytes(described(job, files, kept | {COMMITMENT: made})["manifest.json"])
    assert trained.check(out, made).status == 0
    assert f"not of the training that --against is of, job of {LABEL_HOLDER}" in refused(trained.check(out, folder))


def test_a_ledger_that_another_process_holds_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a bounded time, then the error names the file."""
    monkeypatch.setattr(ledger, "TRIES", 2)
    monkeypatch.setattr(ledger, "TRY_S", 0.001)
    charge = ledger.Charge(Kind.OPENED_LEAVES, ledger.Occasion("", ("regulator",), "", "job", 0))
    with ledger._held(tmp_path), pytest.raises(Interrupted, match=r"ledger\.jsonl: another process has held it"):
        Ledger(tmp_path).enter(charge)
    assert Ledger(tmp_path).enter(charge) == 0
