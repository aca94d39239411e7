"""Usage and input of every command: help, exit status 2, and one message that says what to mend."""

from __future__ import annotations

import json
import re
import signal
import socket
import stat
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.commands.command import Outcome, end, files_in, refused, start, treetap, treetap_here, write
from tests.documents import blocks
from tests.system.namespaces import tls_of
from treetap.commands.cli import app
from treetap.commands.jobs.client import OperatorConfig
from treetap.commands.jobs.job_file import JobFile
from treetap.coordinator.config import CoordinatorConfig
from treetap.errors import BadInput
from treetap.party.config import PartyConfig
from treetap.party.policy import Policy
from treetap.strict import load
from treetap.wire.tls import TlsFiles

COMMANDS = [
    *("", "demo", "experiment", "party", "coordinator", "train", "predict", "status", "cancel", "resume", "transcript"),
    *("align", "screen", "frontier", "doctor", "health"),
    *("certs", "certs init", "certs issue", "certs request", "certs sign", "certs revoke"),
    *(
        "model",
        "model show",
        "model export",
        "model scorecard",
        "model stability",
        "audit",
        "attack",
        "serve",
        "prune",
        "labels",
        "ledger",
        "send",
    ),
    *("decisions", "decisions list", "decisions count", "decisions export"),
    *("leakage", "jobs", "approve", "refuse", "console", "relay", "gateway", "forget", "evidence"),
    *("protocol", "new", "new federation", "new party", "measure-epsilon"),
    *("dealer", "new dealer"),
]

#: The file of each kind, and what reads it.
KINDS: dict[str, Any] = {
    "party.toml": PartyConfig,
    "policy.toml": Policy,
    "coordinator.toml": CoordinatorConfig,
    "operator.toml": OperatorConfig,
    "job.toml": JobFile,
}


def _party(certs: Path, **changes: Any) -> dict[str, Any]:
    return {"name": "bank", "state": "state", "workers": 1, "tls": tls_of(files_in(certs, "bank")), **changes}


def _coordinator(certs: Path, **changes: Any) -> dict[str, Any]:
    return {
        "state": "state",
        "tls": tls_of(files_in(certs, "coordinator")),
        "parties": {"bank": "127.0.0.1:1"},
        **changes,
    }


def _job(**changes: Any) -> dict[str, Any]:
    return {"job": {"label_holder": "bank", "feature_parties": ["telco"], **changes}}


@pytest.mark.second_tier
def test_help_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` exits with 0 and describes each option; nothing is said on standard error. That of all is a process."""
    outcomes = {"": end(start("--help"))}
    for command in COMMANDS[1:]:
        outcomes[command] = Outcome(treetap_here(*command.split(), "--help"), *capsys.readouterr())
    for command, outcome in outcomes.items():
        assert (outcome.status, outcome.err) == (0, ""), command
        assert "Usage:" in outcome.out
        assert "--help" in outcome.out


def test_every_command_is_listed() -> None:
    """The list above is complete: the help of the whole names no command that is not in it."""
    listed = set(re.findall(r"^│ ([a-z][a-z-]+) ", treetap("--help").out, re.MULTILINE))
    assert listed == {command.split()[0] for command in COMMANDS if command}


def test_commands_are_listed_below_their_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five headings in this order, and no command that has none."""
    monkeypatch.setenv("COLUMNS", "80")
    said = treetap("--help").out
    headings = re.findall(r"^╭─ ([\w ]+?) ─+╮$", said, re.MULTILINE)
    assert headings == ["Options", "Try", "Run a party", "Run jobs", "Privacy", "Operate"]
    first = said.partition("─ Try ")[2].partition("╰")[0]
    assert {"demo", "experiment"} <= set(re.findall(r"^│ ([a-z]+) ", first, re.MULTILINE))


@pytest.mark.parametrize("words", [["audit", "runs/x"], ["model", "xgboost", "runs/x"]])
def test_a_command_of_a_wing_that_was_left_out(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused by its name, with what brings it; commands of core and of the other wing are there."""
    load = EntryPoint.load

    def without_laboratory(point: EntryPoint) -> Any:
        if point.value.startswith("treetap.lab"):
            raise ModuleNotFoundError("No module named 'treetap.lab'", name="treetap.lab")
        return load(point)

    monkeypatch.setattr(EntryPoint, "load", without_laboratory)
    name = " ".join(words[:-1])
    with pytest.raises(BadInput, match=f"treetap {name}: .* leaves out the wing `lab`, .* of target `audit`"):
        typer.main.get_command(app)(words, standalone_mode=False)
    listed = typer.main.get_command(app).list_commands(None)
    assert "audit" not in listed
    assert {"train", "console"} <= set(listed)


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    "words", [["nonsense"], ["status", "--nonsense"], ["train"], ["party"], ["demo", "--key-bits", "many"]]
)
def test_wrong_usage(words: list[str]) -> None:
    """An unknown command or option, a missing argument and a word for a number exit with 2 and the usage."""
    outcome = treetap(*words)
    assert outcome.status == 2
    assert outcome.out == ""
    assert "Usage:" in outcome.err
    assert "Traceback" not in outcome.err


_SIGNED = ("certs", "issue", "--role", "party", "--ca", "{certs}")
_NOT_THERE = "absent.toml: there is no such file"
_NO_NAME = ": a name has lower-case letters, digits and inner hyphens, at most 63"


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["party", "--config", "absent.toml"], _NOT_THERE),
        (["certs", "issue", "bank", "--role", "party", "--ca", "absent.toml"], "absent.toml"),
        (["transcript", "absent.toml"], "absent.toml"),
        (["coordinator", "--config", "absent.toml"], _NOT_THERE),
        (["experiment", "absent.toml"], _NOT_THERE),
        (["frontier", "absent.toml"], _NOT_THERE),
        (["train", "absent.toml"], _NOT_THERE),
        (["status", "--operator", "absent.toml"], _NOT_THERE),
        (["predict", "model", "--operator", "absent.toml"], _NOT_THERE),
        (["train", "absent.toml", "--check", "--detach"], "--check, --detach: "),
        (["party", "--config", "party.toml", "--log-level", "loud"], "--log-level loud: must be one of debug, info"),
        (["party", "--config", "party.toml", "--log-format", "xml"], "--log-format xml: must be one of text, json"),
        (["transcript", "000001.tap"], "000001.tap: byte 0: not a treetap transcript"),
        # no coordinator listens at the address of operator.toml
        (["status", "../evil"], f"'../evil' cannot be a job{_NO_NAME}"),
        (["cancel", "../evil"], f"'../evil' cannot be a job{_NO_NAME}"),
        (["cancel", ""], f"'' cannot be a job{_NO_NAME}"),
        (["resume", "Evil"], f"'Evil' cannot be a job{_NO_NAME}"),
        (["predict", "a/b"], f"'a/b' cannot be a model{_NO_NAME}"),
        (["predict", "model", "--name", "a b"], f"'a b' cannot be a job{_NO_NAME}"),
        ([*_SIGNED, "Bank"], "name 'Bank'"),
        ([*_SIGNED, "ca"], "name 'ca'"),
        *(
            ([*_SIGNED, kind], f"name '{kind}': in policies it means a kind")
            for kind in ("parties", "clients", "coordinators")
        ),
        ([*_SIGNED, "bank2", "--days", "0"], "for 0 days"),
        ([*_SIGNED, "bank2", "--host", "not a host"], "host 'not a host'"),
        ([*_SIGNED, "bank2", "--host", "bank.party.treetap.internal"], "treetap.internal is reserved for names of"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], says: str, tmp_path: Path, certs: Path) -> None:
    """Status 2 and a message that names the file, the option or the name; nothing is written."""
    write(tmp_path / "operator.toml", {"coordinator": "127.0.0.1:1", "tls": tls_of(files_in(certs, "operator"))})
    write(tmp_path / "party.toml", _party(certs))
    (tmp_path / "000001.tap").write_text("something else")
    before = sorted([*certs.iterdir(), *tmp_path.iterdir()])
    assert says in refused(treetap(*(word.replace("{certs}", str(certs)) for word in words), folder=tmp_path))
    assert sorted([*certs.iterdir(), *tmp_path.iterdir()]) == before


def test_every_fault_of_a_coordinator_file(tmp_path: Path, certs: Path) -> None:
    """The same for the coordinator, whose parties have addresses too."""
    config = _coordinator(certs, operators=[], parties={"bank": "127.0.0.1", "Telco": "127.0.0.1:1"}, party="x")
    message = refused(treetap("coordinator", "--config", write(tmp_path / "c.toml", config)))
    assert message.splitlines()[0].endswith("4 wrong:")
    for field in ("operators: ", "parties.bank: an address is host:port", "parties.Telco", "party: unknown key"):
        assert field in message


@pytest.mark.parametrize("words", [("status",), ("predict", "first", "--table", "train")])
def test_an_operator_who_is_elsewhere(words: tuple[str, ...], tmp_path: Path) -> None:
    """A command in another folder than the operator's file says how to name it."""
    message = refused(treetap(*words, folder=tmp_path))
    assert message == "operator.toml: there is no such file here; name one by --operator or TREETAP_OPERATOR\n"


def test_every_fault_of_a_job_file(tmp_path: Path) -> None:
    """A wrong key size, an unknown key and a value out of range are told together, before anybody is asked."""
    file = write(tmp_path / "job.toml", _job(key_bits=1000, n_trees=5, protocol="magic", label_holder="Bank"))
    message = refused(treetap("train", file, folder=tmp_path))
    assert message.splitlines()[0] == f"{file}: 4 wrong:"
    assert "job.key_bits: Input should be 512, 1024, 2048 or 3072 (it is 1000)" in message
    assert "job.n_trees: unknown key" in message
    assert "job.protocol: " in message
    assert "job.label_holder: " in message
    file = write(tmp_path / "job.toml", _job(max_depth=0, learning_rate=2.0, objective="rank:ndcg"))
    message = refused(treetap("train", file, folder=tmp_path))
    for field in ("max_depth must be", "learning_rate must be", "objective must be one of"):
        assert field in message


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        *((kind, key) for kind in ("party", "coordinator") for key in ("listen", "metrics")),
        ("party", "serve.listen"),
    ],
)
def test_a_port_in_use(kind: str, key: str, tmp_path: Path, certs: Path) -> None:
    """A second server on a port ends with 2 and key and address, instead of sharing it; its workers end too."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        make = _party if kind == "party" else _coordinator
        lines = {key: address} if "." not in key else {"serve": {"clients": ["app"], "listen": address}}
        file = write(tmp_path / "c.toml", make(certs, **lines))
        message = refused(treetap(kind, "--config", file, "--log-level", "error"))
    remedy = "; choose a free port of this host" if key == "metrics" else ""
    assert message == f"{key} = '{address}': cannot listen there: Address already in use{remedy}\n"


def test_an_address_that_is_not_here(tmp_path: Path, certs: Path) -> None:
    """A host that belongs to another machine, or to none, is told the same way."""
    file = write(tmp_path / "c.toml", _coordinator(certs, listen="192.0.2.1:7000"))
    message = refused(treetap("coordinator", "--config", file))
    assert message == "listen = '192.0.2.1:7000': cannot listen there: Cannot assign requested address\n"
    file = write(tmp_path / "c.toml", _coordinator(certs, listen="no.such.host.invalid:7000"))
    assert "cannot listen there: " in refused(treetap("coordinator", "--config", file))


@pytest.mark.parametrize("kind", ["party", "coordinator"])
def test_a_state_folder_that_cannot_be(kind: str, tmp_path: Path, certs: Path) -> None:
    """A file where the state should go is named."""
    (tmp_path / "state").write_text("in the way")
    make = _party if kind == "party" else _coordinator
    file = write(tmp_path / "c.toml", make(certs))
    assert str(tmp_path / "state") in refused(treetap(kind, "--config", file, "--log-level", "error"))


@pytest.mark.second_tier
@pytest.mark.parametrize("kind", ["party", "coordinator"])
def test_serving_and_stopping(kind: str, tmp_path: Path, certs: Path) -> None:
    """A server prints one line of JSON with its address when it serves, and ends with 0 on SIGINT."""
    make = _party if kind == "party" else _coordinator
    process = start(kind, "--config", write(tmp_path / "c.toml", make(certs)))
    assert process.stdout is not None
    line = json.loads(process.stdout.readline())
    name = "bank" if kind == "party" else "coordinator"
    assert (line["serving"], line["name"]) == (kind, name)
    host, _, port = line["address"].rpartition(":")
    with socket.create_connection((host, int(port)), 5):
        pass
    process.send_signal(signal.SIGINT)
    outcome = end(process, 10)
    assert (outcome.status, outcome.out) == (0, "")
    assert "Traceback" not in outcome.err


def test_making_certificates(tmp_path: Path) -> None:
    """`init` and `issue` make files that fit each other, keys for their owner only, and overwrite nothing."""
    assert treetap("certs", "init", "ca", folder=tmp_path).status == 0
    issued = treetap(
        *("certs", "issue", "bank", "--role", "party", "--ca", "ca", "--out", "bank"),
        *("--host", "10.0.0.7", "--host", "bank.example.org", "--days", "30"),
        folder=tmp_path,
    )
    assert (issued.status, issued.err) == (0, "")
    files = TlsFiles(tmp_path / "ca" / "ca.crt", tmp_path / "bank" / "bank.crt", tmp_path / "bank" / "bank.key")
    assert files.check("bank") == "bank"
    for key in (files.key, tmp_path / "ca" / "ca.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = files.read()
    assert "exists already" in refused(treetap("certs", "init", "ca", folder=tmp_path))
    again = treetap("certs", "issue", "bank", "--role", "party", "--ca", "ca", "--out", "bank", folder=tmp_path)
    assert "exists already" in refused(again)
    assert files.read() == before


def test_what_goes_back_with_a_signed_request(tmp_path: Path) -> None:
    """Every file that a party's configuration names; the line about policies comes with the first party alone."""
    said = [treetap("certs", "init", "ca", folder=tmp_path).out]
    for name, role in (("operator", "operator"), ("bank", "party"), ("telco", "party"), ("bank-2", "party")):
        assert treetap("certs", "request", name, "--role", role, folder=tmp_path).status == 0
        signed = treetap("certs", "sign", f"{name}.csr", "--name", name, "--role", role, "--ca", "ca", folder=tmp_path)
        assert f"{name}.crt: send it back, with ca/ca.crt and ca/crl.pem\n" in signed.out
        said.append(signed.out)
    assert ["label_holders" in text for text in said] == [False, False, True, False, False]
    (tmp_path / "ca" / "crl.pem").unlink()
    assert treetap("certs", "request", "shop", "--role", "party", folder=tmp_path).status == 0
    words = ("certs", "sign", "shop.csr", "--name", "shop", "--role", "party", "--ca", "ca")
    assert "shop.crt: send it back, with ca/ca.crt\n" in treetap(*words, folder=tmp_path).out


def test_a_demo_that_cannot_be(tmp_path: Path) -> None:
    """A key size that nobody should use and a folder with something in it are refused before anything starts."""
    for words, fault in (
        (["--key-bits", "512"], "--key-bits 512: must be 1024, 2048 or 3072"),
        (["--scheme", "rsa"], "scheme = 'rsa': must be one of paillier, lattice"),
        (["--scheme", "lattice", "--key-bits", "2048"], "--key-bits 2048: scheme lattice has no keys"),
        (["--scheme", "lattice", "--protocol", "pivodl"], "'lattice' and protocol 'pivodl' do not go together"),
    ):
        assert fault in refused(treetap("demo", *words))
    (tmp_path / "mine").write_text("keep")
    assert "is not empty" in refused(treetap("demo", "--workdir", tmp_path))
    report = tmp_path / "mine" / "page.html"
    assert f"--report {report}: cannot be written: " in refused(treetap("demo", "--report", report))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_guide_shows_a_file_of_each_kind(tmp_path: Path) -> None:
    """Each has the keys of its kind, and a job names parties that the others name."""
    shown = blocks(Path(__file__).resolve().parents[2] / "docs" / "configuration.md")
    files = {Path(name[1]).name: block.text for block in shown if (name := re.match(r"# (\S+\.toml)\n", block.text))}
    assert set(files) == set(KINDS)
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    read = {name: load(tmp_path / name, kind) for name, kind in KINDS.items()}
    assert set(read["job.toml"].job.in_order) == set(read["coordinator.toml"].parties)
