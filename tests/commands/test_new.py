"""`treetap new`: files that are read as they are, propose what a table shows, loosen nothing and overwrite nothing."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.commands.test_experiment_encodings import TAKEN
from treetap.commands.approvals.client import ApproverConfig
from treetap.commands.certs.authority import create_authority
from treetap.commands.jobs import client
from treetap.commands.jobs.client import OperatorConfig
from treetap.commands.jobs.job_file import JobFile
from treetap.coordinator.config import CoordinatorConfig
from treetap.errors import BadInput, ConfigError
from treetap.ops.certs.requests import revoke
from treetap.ops.gateway.config import GatewayConfig
from treetap.ops.new import cli, folders
from treetap.ops.new.proposed_table import SeenTable
from treetap.ops.relay.command import RelayConfig
from treetap.party import config as party_config
from treetap.party.policy import Policy, merged
from treetap.strict import load
from treetap.tables.reading import read_table
from treetap.wire.ports import Role
from treetap.wire.tls import TlsFiles

LOANS = Path(__file__).parents[2] / "examples" / "loans"
#: Rows of the small tables.
N = 40


def _csv(path: Path, header: str, *columns: list[Any]) -> Path:
    rows = zip(*columns, strict=True)
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    """A bank's table with labels, and a telephone company's with dates that could be read in two ways."""
    ids = [f"c{i:03}" for i in range(N)]
    days = [f"{1 + i % 9:02}.{1 + i % 12:02}.2020" for i in range(N)]
    names = [f"customer {i}" for i in range(N)]
    bank = _csv(
        tmp_path / "bank.csv",
        "customer,opened,job,income,repaid",
        ids,
        [f"2020-01-{1 + i % 28:02}" for i in range(N)],
        ["clerk" if i % 3 else "cook" for i in range(N)],
        [1000 + i * 7 for i in range(N)],
        ["yes" if i % 2 else "no" for i in range(N)],
    )
    telco = _csv(tmp_path / "telco.csv", "customer,since,remark,bill", ids, days, names, [i / 7 for i in range(N)])
    return {"bank": bank, "telco": telco}


def _new(*words: str | Path, folder: Path | None = None) -> str:
    """What the command prints; its error is raised."""
    before = Path.cwd()
    os.chdir(folder or before)
    try:
        made = CliRunner().invoke(cli.new, list(map(str, words)), catch_exceptions=False)
    finally:
        os.chdir(before)
    assert made.exit_code == 0, made.output
    return made.output


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_a_federation_is_read_as_it_is_written(tables: dict[str, Path], tmp_path: Path) -> None:
    """Every file by the process that reads it; certificates are of the roles; tables are those that a job reads."""
    at = tmp_path / "all of it"
    said = _new("federation", *(f"{name}={path}" for name, path in tables.items()), "--folder", at)
    assert "bank has the labels" in said
    assert "left out, as its last lines say: since, remark" in said
    bank, telco = (party_config.read(at / name / "party.toml") for name in tables)
    for config in (bank, telco):
        config.transport().check(config.name, Role.PARTY)
        table = read_table(config.tables["train"], with_label=config is bank, missing=None)
        assert len(table.ids) == N
    train = bank.tables["train"]
    assert (train.id, train.label, train.columns) == ("customer", "repaid", ["opened", "job", "income"])
    assert train.encode == {"opened": "days", "job": "categorical"}
    assert (telco.tables["train"].label, telco.tables["train"].columns) == (None, ["bill"])
    assert "another text in each record" in _text(at / "telco" / "party.toml")
    coordinator = CoordinatorConfig.from_file(at / "coordinator" / "coordinator.toml")
    coordinator.transport().check(coordinator.name, Role.COORDINATOR)
    assert coordinator.parties == {config.name: config.listen for config in (bank, telco)}
    operator = OperatorConfig.from_file(at / "operator" / "operator.toml")
    client.Operator(operator)
    assert operator.coordinator == coordinator.listen
    spec = load(at / "operator" / "job.toml", JobFile).to_spec()
    assert (spec.aggregator, list(spec.feature_parties), spec.sums) == ("bank", ["telco"], "opened")
    job, other = _text(at / "operator" / "job.toml"), at / "operator" / "private.toml"
    other.write_text(
        job.replace('\nprivacy = "published"', "").replace("# privacy", "privacy").replace("# dealer", "dealer")
    )
    spec = load(other, JobFile).to_spec()
    assert (spec.sums, spec.dealer) == ("shared", "dealer"), "the other line, and its dealer, as they are written"
    assert len({coordinator.listen, bank.listen, telco.listen}) == 3


def test_a_policy_differs_from_the_default_one_by_names_alone(tmp_path: Path) -> None:
    """With three parties and no table; keys are for their own user."""
    _new("federation", "bank", "telco", "shop", folder=tmp_path)
    at = tmp_path / "federation"
    default = Policy().model_dump()
    named = {"bank": ([], ["telco", "shop"]), "telco": (["bank"], ["shop"]), "shop": (["bank"], ["telco"])}
    for name, (holders, peers) in named.items():
        config = party_config.read(at / name / "party.toml")
        assert config.tables == {}
        assert config.policy.model_dump() == merged(default, {"people": {"label_holders": holders, "peers": peers}})
    for path in at.rglob("*"):
        if path.suffix in (".key", ".toml"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        elif path.is_dir():
            assert not stat.S_IMODE(path.stat().st_mode) & 0o022, path


@pytest.mark.parametrize(
    "there",
    [
        "bank/policy.toml",
        "start.sh",
        "operator/job.toml",
        "bank/tls/ca.crt",
        "operator/tls/operator.key",
        "authority/ca.key",
    ],
)
def test_nothing_is_overwritten(there: str, tmp_path: Path) -> None:
    """And nothing is written beside a file that is there."""
    at = tmp_path / "federation"
    (at / there).parent.mkdir(parents=True)
    (at / there).write_text("mine")
    with pytest.raises(BadInput, match="exists already and is not overwritten"):
        _new("federation", "bank", "telco", folder=tmp_path)
    assert [path for path in at.rglob("*") if path.is_file()] == [at / there]
    assert _text(at / there) == "mine"


def test_a_party_proposes_its_table_and_asks_for_its_certificate(tables: dict[str, Path], tmp_path: Path) -> None:
    """Its name is the file's; the only partner of a party without labels has them."""
    said = _new("party", "--table", tables["telco"], "--partner", "bank", folder=tmp_path)
    config = party_config.read(tmp_path / "telco" / "party.toml")
    assert (config.name, config.policy.people.label_holders, config.policy.people.peers) == ("telco", ["bank"], [])
    assert sorted(path.name for path in (tmp_path / "telco" / "tls").iterdir()) == ["telco.csr", "telco.key"]
    assert "SHA-256 of the key" in said
    with pytest.raises(BadInput, match="exists already"):
        _new("party", "--table", tables["telco"], folder=tmp_path)


def test_a_party_behind_a_relay(tables: dict[str, Path], tmp_path: Path) -> None:
    """Its file names the relay; what is no address is refused before anything is written."""
    words = ("party", "--table", tables["telco"], "--partner", "bank", "--relay")
    with pytest.raises(BadInput, match="--relay: an address is host:port"):
        _new(*words, "relay.example.org", folder=tmp_path)
    _new(*words, "relay.example.org:443", folder=tmp_path)
    assert party_config.read(tmp_path / "telco" / "party.toml").relay == "relay.example.org:443"


ROLES: dict[Role, tuple[list[str], Callable[[Path], Any]]] = {
    Role.COORDINATOR: (["bank=bank.example.org:7101", "telco=10.0.0.2:7101"], CoordinatorConfig.from_file),
    Role.OPERATOR: (
        ["coordinator.example.org:7100", "--label-holder", "bank", "--partner", "telco"],
        OperatorConfig.from_file,
    ),
    Role.APPROVER: (["ann", "telco=10.0.0.2:7101"], ApproverConfig.from_file),
    Role.RELAY: (["bank", "telco", "coordinator"], RelayConfig.from_file),
    Role.GATEWAY: (["bank=bank.example.org:7443", "--host", "scores.example.org"], GatewayConfig.from_file),
}


@pytest.mark.parametrize("role", ROLES)
def test_each_role_has_files_that_are_read_as_they_are(role: Role, tmp_path: Path) -> None:
    """With a list of revoked certificates; nothing is overwritten, and a name or address that is none is refused."""
    create_authority(tmp_path / "authority")
    revoke(tmp_path / "authority")
    words, read = ROLES[role]
    name = "ann" if role is Role.APPROVER else str(role)
    said = _new(role, *words, "--authority", "authority", folder=tmp_path)
    file = tmp_path / name / f"{role}.toml"
    config = read(file)
    files = config.tls.files()
    files.check(name, role)
    assert (config.name, files.revoked) == (name, tmp_path / name / "tls" / "crl.pem")
    assert f"next: treetap doctor --config {name}/{role}.toml" in said
    assert file.read_text().startswith("# ")
    for path in file.parent.glob("*.toml"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(BadInput, match="exists already and is not overwritten"):
        _new(role, *words, folder=tmp_path)
    asked = _new(role, *words, "--folder", "other", folder=tmp_path)
    assert "SHA-256 of the key" in asked
    assert sorted(it.name for it in (tmp_path / "other" / "tls").iterdir()) == [f"{name}.csr", f"{name}.key"]
    for wrong in ("Bank=", "bank=nowhere", "telco=:x"):
        with pytest.raises(BadInput):
            _new(role, wrong, *words[1:], "--folder", "third", folder=tmp_path)
    assert not (tmp_path / "third").exists()


def test_every_role_but_a_client_has_a_command() -> None:
    """And in the table of roles its file and what begins with it."""
    named = {command.name for command in cli.new.registered_commands}
    files = {file.removesuffix(".toml") for file in folders.STARTS}
    assert named == {"federation", *files} == {"federation", "dealer", *(set(Role) - {Role.CLIENT})}


def test_a_dealer_has_a_file_with_its_organisation(tmp_path: Path) -> None:
    """As its certificate names it; the parties of its policy are those that it deals for."""
    create_authority(tmp_path / "authority")
    revoke(tmp_path / "authority")
    words = ("dealer", "Trust Ltd", "--label-holder", "bank", "--partner", "telco")
    said = _new(*words, "--authority", "authority", folder=tmp_path)
    assert "treetap dealer --config dealer/dealer.toml" in said
    config = party_config.read(tmp_path / "dealer" / "dealer.toml", party_config.DealerConfig)
    assert isinstance(config, party_config.DealerConfig)
    assert (config.organisation, config.transport().organisation) == ("Trust Ltd", "Trust Ltd")
    config.check_alone()
    (tmp_path / "dealer" / "tls" / "ca.key").touch()
    with pytest.raises(ConfigError, match=r"ca\.key: who holds the authority's key"):
        config.check_alone()
    with pytest.raises(ConfigError, match="organisation = 'Bank': the certificate names 'Trust Ltd'"):
        config.model_copy(update={"organisation": "Bank"}).check_alone()


def test_the_files_of_the_roles_fit_together(tmp_path: Path) -> None:
    """The coordinator's operators and parties, an operator's job, an approver's party, a relay's names."""
    words = ["--operator", "olga", "--operator", "otto", "--relay", "relay.example.org:443", "--name", "hub"]
    _new(Role.COORDINATOR, *ROLES[Role.COORDINATOR][0], *words, folder=tmp_path)
    hub = CoordinatorConfig.from_file(tmp_path / "hub" / "coordinator.toml")
    assert (hub.operators, hub.relay) == (["olga", "otto"], "relay.example.org:443")
    assert hub.parties == {"bank": "bank.example.org:7101", "telco": "10.0.0.2:7101"}
    _new(Role.OPERATOR, *ROLES[Role.OPERATOR][0], "--name", "olga", folder=tmp_path)
    spec = load(tmp_path / "olga" / "job.toml", JobFile).to_spec()
    assert (spec.aggregator, list(spec.feature_parties)) == ("bank", ["telco"])
    _new(Role.APPROVER, *ROLES[Role.APPROVER][0], folder=tmp_path)
    ann = ApproverConfig.from_file(tmp_path / "ann" / "approver.toml")
    assert (ann.party_name, ann.party) == ("telco", "10.0.0.2:7101")
    _new(Role.RELAY, *ROLES[Role.RELAY][0], folder=tmp_path)
    assert RelayConfig.from_file(tmp_path / "relay" / "relay.toml").names == ["bank", "telco", "coordinator"]
    _new(Role.GATEWAY, *ROLES[Role.GATEWAY][0], folder=tmp_path)
    asked = GatewayConfig.from_file(tmp_path / "gateway" / "gateway.toml").asked
    assert (asked.name, asked.location) == ("bank", "bank.example.org:7443")
    with pytest.raises(BadInput, match="has a name of its own"):
        _new(Role.COORDINATOR, "hub=h:1", "--name", "hub", "--folder", "x", folder=tmp_path)


def test_a_federation_that_serves(tmp_path: Path) -> None:
    """The label holder's file names clients and gateway, which is started with the others; each client has a folder."""
    said = _new("federation", "bank", "telco", "--client", "app", "--client", "batch", folder=tmp_path)
    at = tmp_path / "federation"
    bank, before = (
        party_config.read(at / "bank" / "party.toml"),
        GatewayConfig.from_file(at / "gateway" / "gateway.toml"),
    )
    assert bank.serve is not None
    assert (bank.serve.clients, bank.serve.gateway) == (["app", "batch"], before.name)
    assert before.asked.location == bank.serve.listen
    assert party_config.read(at / "telco" / "party.toml").serve is None
    assert f"app, batch: at https://{before.listen}" in said
    assert "gateway gateway/gateway.toml 2>>gateway/log.txt" in _text(at / "start.sh")
    for name, role in (("app", Role.CLIENT), ("batch", Role.CLIENT), ("gateway", Role.GATEWAY)):
        tls = at / name / "tls"
        TlsFiles(tls / "ca.crt", tls / f"{name}.crt", tls / f"{name}.key", tls / "crl.pem").check(name, role)
    for taken in ("bank", "gateway", "coordinator"):
        with pytest.raises(BadInput, match=f"{taken}: a client, and the gateway, has a name of its own"):
            _new("federation", "bank", "telco", "--client", taken, "--folder", "other", folder=tmp_path)
    assert not (tmp_path / "other").exists()


def test_a_party_of_an_authority_on_this_machine(tables: dict[str, Path], tmp_path: Path) -> None:
    """Has its certificate at once; partners of a party with labels are peers; without partners the output says so."""
    create_authority(tmp_path / "authority")
    revoke(tmp_path / "authority")
    words = ["--table", str(tables["bank"]), "--authority", str(tmp_path / "authority")]
    _new("party", *words, "--partner", "telco", "--partner", "shop", folder=tmp_path)
    config = party_config.read(tmp_path / "bank" / "party.toml")
    config.transport().check("bank", Role.PARTY)
    assert (config.policy.people.label_holders, config.policy.people.peers) == ([], ["telco", "shop"])
    said = _new("party", *words, "--name", "other", "--label-holder", "telco", folder=tmp_path)
    other = party_config.read(tmp_path / "other" / "party.toml")
    assert (other.policy.people.label_holders, other.tables["train"].label) == (["telco"], None)
    assert "repaid" in other.tables["train"].columns
    assert "names telco" in said
    assert "names no other party yet" in _new("party", *words, "--name", "third", folder=tmp_path)


@pytest.mark.parametrize("there", ["tls/ca.crt", "tls/crl.pem", "tls/bank.key"])
def test_a_partys_credentials_are_not_overwritten(there: str, tables: dict[str, Path], tmp_path: Path) -> None:
    """Nor is anything written beside them, or with an authority that has a fault: the command can be repeated."""
    create_authority(tmp_path / "authority")
    revoke(tmp_path / "authority")
    own = tmp_path / "bank" / there
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    words = ["party", "--table", str(tables["bank"]), "--authority", str(tmp_path / "authority")]
    with pytest.raises(BadInput, match=f"{own.name}: exists already and is not overwritten"):
        _new(*words, folder=tmp_path)
    assert [path for path in (tmp_path / "bank").rglob("*") if path.is_file()] == [own]
    assert _text(own) == "mine"
    (tmp_path / "authority" / "crl.pem").unlink()
    with pytest.raises(BadInput, match=r"crl\.pem: there is no such file"):
        _new(*words, "--folder", "second", folder=tmp_path)
    assert not (tmp_path / "second").exists()


def test_names_of_any_letters_are_read_as_they_are(tmp_path: Path) -> None:
    """Of columns and of folders: none ends a text of the file, begins a table of it, or reaches a terminal as it is."""
    odd = ['x"y', "a\nb", "[serve]\nclients = 1", "del\x7f", "\x1b[2J", "back\\slash", "it's", "'''", "ü"]
    each_other = [f"t{i}" for i in range(N)]
    cells = {name: each_other if name == "\x1b[2J" else ["u", "v"] * (N // 2) for name in odd}
    folder = tmp_path / 'it\'s "a" folder\x7f'
    folder.mkdir()
    pq.write_table(pa.table({"id": [f"c{i}" for i in range(N)], **cells, "n": [0.5] * N}), folder / "t.parquet")
    said = _new("party", "--table", folder / "t.parquet", "--name", "bank", "--partner", "telco", folder=folder)
    config = party_config.read(folder / "bank" / "party.toml")
    table = config.tables["train"]
    assert (list(config.tables), config.serve, list(table.local())) == (["train"], None, [folder / "t.parquet"])
    assert table.columns == [*(name for name in odd if name != "\x1b[2J"), "n"]
    assert table.encode == dict.fromkeys(table.columns[:-1], "one-hot")
    assert "\x1b" not in said + _text(folder / "bank" / "party.toml")


FAULTS: dict[str, tuple[list[str], str]] = {
    "one party": (["bank"], "two or more parties"),
    "twice": (["bank", "bank"], "bank: is named twice"),
    "no name": (["bank", "Telco"], "'Telco' cannot be a party"),
    "the coordinator": (["bank", "coordinator"], "another process has that name"),
    "the authority": (["bank", "authority"], "or the authority's folder"),
    "a kind of receivers": (["bank", "parties"], "means a kind of receivers"),
    "no file": (["bank=none.csv", "telco"], "none.csv"),
    "a label of no table": (["bank", "telco", "--label", "y"], "no table has such a column"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named_before_anything_is_written(name: str, tmp_path: Path) -> None:
    """A person's words, one by one."""
    words, named = FAULTS[name]
    with pytest.raises(BadInput, match=named):
        _new("federation", *words, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_needs_settings_can_be_saved_anew(tmp_path: Path) -> None:
    """There is no file yet in which a person could write them."""
    (tmp_path / "bank.csv").write_bytes("Kunde;Eröffnet\nA 1;2020-01-01\n".encode("cp1252"))
    with pytest.raises(BadInput, match=r'encoding = "windows-1252" .*; no file has settings yet: save the table'):
        _new("federation", f"bank={tmp_path / 'bank.csv'}", "telco", folder=tmp_path)
    assert [it.name for it in tmp_path.iterdir()] == ["bank.csv"]


def test_a_table_that_is_not_utf_8_has_its_encoding_named(tmp_path: Path) -> None:
    """It is read by that, which stands in the party's file; a wrong one is refused as in the file."""
    table = tmp_path / "bank.csv"
    table.write_bytes("Kunde;Eröffnet\nA 1;2020-01-01\nA 2;2020-02-01\nA 3;2020-03-01\n".encode("cp1252"))

    def new(encoding: str) -> None:
        _new("party", "--table", table, "--encoding", encoding, folder=tmp_path)

    with pytest.raises(BadInput, match="--encoding: is no encoding of text; usual ones are"):
        new("nonsense")
    with pytest.raises(BadInput, match="are not UTF-16 text; leave encoding out, or write the one in which"):
        new("utf-16")
    assert not (tmp_path / "bank").exists()
    new("windows-1252")
    train = party_config.read(tmp_path / "bank" / "party.toml").tables["train"]
    assert (train.encoding, train.columns) == ("windows-1252", ["Eröffnet"])
    assert len(read_table(train, with_label=False, missing=None).ids) == 3


def _seen(folder: Path, **columns: Any) -> SeenTable:
    path = folder / "table.parquet"
    pq.write_table(pa.table({name: pa.array(cells) for name, cells in columns.items()}), path)
    return SeenTable(path)


def test_what_identifies_records_is_the_id(tmp_path: Path) -> None:
    """A column that is called so; else the first one, else the only one; a doubt is said, and a lack."""
    some, other, halves = list(range(N)), [f"r{i}" for i in range(N)], [i // 2 for i in range(N)]
    assert _seen(tmp_path, number=some, ID=other).id == "ID"
    assert _seen(tmp_path, number=some, user_id=other).id == "user_id"
    assert _seen(tmp_path, x=halves, code=other, share=[i / 3 for i in some]).id == "code"
    assert _seen(tmp_path, code=other, number=some).id == "code"
    for names in (("number", "code"), ("own_id", "their-id")):
        with pytest.raises(BadInput, match=f"{names[0]!r}, {names[1]!r} could each be the ids: name one by --id"):
            _seen(tmp_path, x=halves, **{names[0]: some, names[1]: other})
    with pytest.raises(BadInput, match="no column has another value in each record"):
        _seen(tmp_path, x=halves, id=halves)


def test_what_may_be_the_label(tmp_path: Path) -> None:
    """A column that is called so; else the last one, if it has two values and is no fraction."""
    ids, two, many = [f"r{i}" for i in range(N)], [i % 2 for i in range(N)], [i // 2 for i in range(N)]
    assert _seen(tmp_path, id=ids, Target=many, x=two).label == "Target"
    assert _seen(tmp_path, id=ids, x=many, repaid=two).label == "repaid"
    assert _seen(tmp_path, id=ids, repaid=two, x=many).label is None
    assert _seen(tmp_path, id=ids, x=many, half=[i % 2 / 2 for i in range(N)]).label is None


@pytest.mark.second_tier
@pytest.mark.xdist_group("pages")  # at the ports that the tutorial's processes have too
def test_folders_run_at_once_and_are_edited_afterwards(tmp_path: Path) -> None:
    """Of the story's tables: all start, a policy that refuses is mended by SIGHUP, and the job trains."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TREETAP_")}
    env = {**own, "TREETAP": f"{sys.executable} -m treetap"}
    _new("federation", *(f"{name}={LOANS / name}.csv" for name in ("bank", "telco")), folder=tmp_path)
    at = tmp_path / "federation"
    policy = at / "telco" / "policy.toml"
    right = _text(policy)
    policy.write_text(right.replace('["bank"]', "[]"))
    job = at / "operator" / "job.toml"
    job.write_text(_text(job).replace("n_estimators = 20", "n_estimators = 1\nkey_bits = 1024"))
    for name in ("bank", "telco"):
        own_policy = at / name / "policy.toml"
        own_policy.write_text(f"{_text(own_policy)}[keys]\nmin_key_bits = 1024\n")
    right = f"{right}[keys]\nmin_key_bits = 1024\n"

    def operator(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "treetap", *words]
        return subprocess.run(
            command, cwd=at / "operator", env=env, text=True, capture_output=True, timeout=120, check=False
        )

    started = subprocess.Popen(["sh", at / "start.sh"], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        served = [json.loads(started.stdout.readline())["name"] for _ in range(3)]
        assert sorted(served) == ["bank", "coordinator", "telco"]
        refused = operator("train", "job.toml", "--check")
        assert refused.returncode == 2
        assert "bank: the job could begin here" in refused.stdout
        assert 'the line `label_holders = ["bank"]`, and send telco SIGHUP' in refused.stdout
        assert operator("train", "job.toml").returncode == 1
        policy.write_text(right)
        _hang_up(at / "telco")
        checked = operator("train", "job.toml", "--check", "--json")
        assert checked.returncode == 0, checked.stdout
        assert json.loads(checked.stdout)["could_begin"] is True
        trained = operator("train", "job.toml", "--json")
        assert trained.returncode == 0, trained.stderr
        assert (json.loads(trained.stdout)["state"], json.loads(trained.stdout)["attempt"]) == ("finished", 2)
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(30)


def _hang_up(folder: Path) -> None:
    """SIGHUP to a party, and wait until it has read its files again."""
    command = f"party --config {folder.name}/party.toml"
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            here = (process / "cwd").resolve() == folder.parent.resolve()
        except OSError:
            continue
        if words.strip().endswith(command) and here:
            os.kill(int(process.name), signal.SIGHUP)
    deadline = time.monotonic() + 20
    while "SIGHUP: read again: policy.people.label_holders" not in _text(folder / "log.txt"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_encodings_are_those_of_an_experiment(tmp_path: Path) -> None:
    """Of the same columns; a feature party's are those that a job of every privacy takes, and no policy is loosened."""
    _new("federation", *(f"{name}={LOANS / name}.csv" for name in TAKEN), folder=tmp_path)
    for name, taken in TAKEN.items():
        config = party_config.read(tmp_path / "federation" / name / "party.toml")
        assert config.tables["train"].encode == taken
        assert not config.policy.columns.category_partitions
