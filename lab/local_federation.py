"""A whole federation on loopback: real processes, real certificates, free ports.

Demo, experiment, tests and benchmarks start federations with this module. Every process runs the
command that a person would type; none of them outlives the process that started it. They are forked from a server that
has imported what they need (`treetap.process.fork_server`), and has neither a key nor a table.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from treetap.attacks.advice.names import toml, toml_key
from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.ending import ENDED, as_ctrl_c, undisturbed
from treetap.commands.jobs.client import Operator, OperatorConfig
from treetap.commands.jobs.job_file import JobTable
from treetap.errors import BadInput, Interrupted, TreetapError
from treetap.lab import servers
from treetap.models.durable import is_used, make_folder, make_ignored_folder, write_whole, writing_whole
from treetap.party.policy import merged
from treetap.process.config import TlsConfig
from treetap.process.fork_server import FORKS, Child
from treetap.process.limits import heed_signals, name_process
from treetap.protocols.job_spec import SHARED
from treetap.wire.ports import Role

#: The dealer of a federation's shared sums, and what a report says of it.
DEALER = "dealer"
STAND_IN = (
    "the dealer is a stand-in: on one machine whoever runs the parties can read what it deals; between companies an "
    "organisation that is none of the parties' runs it"
)
#: Seconds that a process may take until it serves.
START_S = 60.0
#: Seconds that a process may take to end after SIGTERM.
STOP_S = 10.0


def dealer_of(job: JobTable) -> str:
    """The stand-in that deals for a job of one machine; empty where its sums are not shared."""
    return DEALER if job.sums == SHARED else ""


@contextmanager
def working_folder(workdir: Path | None, prefix: str) -> Iterator[Path]:
    """`--workdir`, made if it is not there and empty if it is; without it a temporary folder, removed at the end.

    Raises:
        BadInput: it is a file, holds something already, or cannot be made.
    """
    if workdir is not None:
        yield empty_folder(workdir)
        return
    try:
        held = tempfile.TemporaryDirectory(prefix=prefix)
    except OSError as failure:
        reason = failure.strerror or failure
        raise BadInput(f"a temporary folder: cannot be made: {reason}; name another folder") from None
    with held:
        yield Path(held.name).resolve()


def empty_folder(workdir: Path) -> Path:
    """The absolute path of `--workdir`, which is made if it is not there.

    Raises:
        BadInput: it is a file, holds something already, or cannot be made.
    """
    try:
        make_ignored_folder(workdir)
        # absolute, since the processes read their configuration from folders of their own
        folder = workdir.resolve()
        used = is_used(folder)
    except OSError as failure:
        reason = "is a file" if os.path.isfile(workdir) else f"cannot be made: {failure.strerror or failure}"
        raise BadInput(f"--workdir {workdir}: {reason}; name another folder") from None
    if used:
        raise BadInput(f"--workdir {workdir}: is not empty; name another folder")
    return folder


@contextmanager
def clean_end() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does: processes stop, and temporary folders go, with their keys."""

    with as_ctrl_c(signal.SIGTERM, signal.SIGHUP) as came:
        try:
            yield
        except ENDED:
            if came:
                raise SystemExit(128 + came[0]) from None
            raise


class LocalFederation:
    """Parties and a coordinator as processes of this machine, below one folder.

    Args:
        folder: configurations, certificates, states and logs go here; kept afterwards.
        parties: per party the keys of its configuration file beside name, listen, state and tls; under `policy`
            those of its policy file, which names all parties unless it says otherwise.
        coordinator: further keys of the coordinator's configuration file.
        options: further arguments of every process's command, such as `--log-format json`.
        reached: address at which a party listens → the address that the others call; by default the same.
        dealer: True for one more process, which may deal for jobs with shared sums; it is a stand-in (`STAND_IN`).
    """

    def __init__(
        self,
        folder: Path,
        parties: Mapping[str, Mapping[str, Any]],
        coordinator: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        reached: Callable[[str], str] | None = None,
        *,
        dealer: bool = False,
    ) -> None:
        self._reached, self._dealers = reached, [DEALER] if dealer else []
        self._coordinator, self._options = dict(coordinator or {}), tuple(options)
        self.folder = folder.resolve()
        self._parties = dict(parties)
        self._processes: dict[str, Child] = {}
        self.addresses: dict[str, str] = {}
        self.serving: dict[str, str] = {}  #: party → its address for clients, where it has one
        servers.begin()

    def __enter__(self) -> Self:
        try:
            make_folder(self.folder / "certs")
            create_authority(self.folder / "certs")
            others = {"coordinator": Role.COORDINATOR, "operator": Role.OPERATOR}
            self._certify({**dict.fromkeys((*self._parties, *self._dealers), Role.PARTY), **others})
            for name in (*self._parties, *self._dealers):
                self._configure(name, {**self._parties.get(name, {})})
                self._spawn(name, self._kind(name))
            for name in (*self._parties, *self._dealers):
                address = self._await_address(name)
                self.addresses[name] = address if self._reached is None else self._reached(address)
            self._configure("coordinator", {**self._coordinator, "parties": self.addresses})
            self._spawn("coordinator", "coordinator")
            self.addresses["coordinator"] = self._await_address("coordinator")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_gateway(self, party: str, **settings: Any) -> str:
        """Start the gateway that a party's table `[serve]` names, if it does not run; returns its address for clients.

        `settings`: further keys of the gateway's file.
        """
        own = str(self._parties[party]["serve"]["gateway"])
        name = f"{party}/{own}"
        if name in self._processes and not self._processes[name].ended():
            return self.addresses[name]
        if not (self.folder / "certs" / f"{own}.crt").exists():
            self._certify({own: Role.GATEWAY})
        asked = {"name": party, "address": self.serving[party]}
        given = {"name": own, "listen": "127.0.0.1:0", "tls": self._tls(own), "party": asked}
        make_folder(self.folder / name)
        write_whole(self.folder / name / "config.toml", to_toml({**given, **settings}).encode())
        self._spawn(name, "gateway")
        self.addresses[name] = self._await_address(name)
        return self.addresses[name]

    @property
    def operator(self) -> Operator:
        """Calls to the coordinator."""
        tls = self._tls("operator")
        return Operator(OperatorConfig(coordinator=self.addresses["coordinator"], tls=TlsConfig.model_validate(tls)))

    def state(self, name: str) -> Path:
        """A process's state folder."""
        return self.folder / name / "state"

    @property
    def alive(self) -> bool:
        """True while all processes run."""
        return bool(self._processes) and not any(process.ended() for process in self._processes.values())

    def pid(self, name: str) -> int:
        """A process's id."""
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """SIGKILL: the process sends and writes nothing more."""
        self._processes[name].end()

    def restart(self, name: str) -> None:
        """Start a party or the coordinator again on its state and its ports."""
        kind = self._kind(name)
        called = (*self._parties, *self._dealers)
        reached = {"parties": {party: self.addresses[party] for party in called}}
        settings = {**self._coordinator, **reached} if kind == "coordinator" else {**self._parties.get(name, {})}
        if name in self.serving:
            settings["serve"] = {**settings["serve"], "listen": self.serving[name]}
        self._configure(name, settings, self.addresses[name])
        self._spawn(name, kind)
        self._await_address(name)

    def stop(self) -> None:
        """SIGTERM to all processes, SIGKILL to those that do not end."""
        for process in self._processes.values():
            process.send(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for process in self._processes.values():
            process.ended(max(0.1, deadline - time.monotonic()))
            process.end()

    def _certify(self, roles: Mapping[str, Role]) -> None:
        certs = self.folder / "certs"
        for name, role in roles.items():
            # each party stands for an organisation of its own, as it will be one on hosts of their own
            issue(certs, name, role, ["127.0.0.1"], days=30, organisation=name if role is Role.PARTY else "")
        for path in certs.iterdir():
            path.chmod(0o600)  # certificates too: nothing of a federation here is for others on this host

    def _tls(self, name: str) -> dict[str, str]:
        files = {"ca": "ca.crt", "certificate": f"{name}.crt", "key": f"{name}.key"}
        return {key: str(self.folder / "certs" / file) for key, file in files.items()}

    def _configure(self, name: str, settings: dict[str, Any], listen: str = "127.0.0.1:0") -> None:
        folder = self.folder / name
        make_folder(folder)
        common = {"name": name, "listen": listen, "state": "state", "tls": self._tls(name)}
        if name in self._dealers:
            common["organisation"] = name
        if name in (*self._parties, *self._dealers):
            # what lets it take part: all others, and any of them with a label as label holder
            others = {party: given for party, given in self._parties.items() if party != name}
            labelled = [
                party
                for party, given in others.items()
                if any("label" in it for it in given.get("tables", {}).values())
            ]
            # a dealer has no sums of its own to open, and tables that a party gets later may have labels
            holders = list(others) if name in self._dealers else labelled
            people = {"label_holders": holders, "peers": list(others)}
            people |= {"dealers": self._dealers} if self._dealers else {}
            policy = merged({"people": people}, settings.get("policy", {}))
            write_whole(folder / "policy.toml", to_toml(policy).encode())
            settings = {**settings, "policy": "policy.toml"}
        write_whole(folder / "config.toml", to_toml({**common, **settings}).encode())

    def _kind(self, name: str) -> str:
        """The command that serves a process."""
        return "dealer" if name in self._dealers else "party" if name in self._parties else "coordinator"

    def _spawn(self, name: str, kind: str) -> None:
        option = [] if kind == "gateway" else ["--config"]
        words = [kind, *option, str(self.folder / name / "config.toml"), "--until-stdin-closes", *self._options]
        os.close(_opened(self._log(name)))  # what is wrong with it is said here
        with undisturbed():
            self._processes[name] = FORKS.fork(serve, (words, name, self._log(name)), asking=True)

    def _log(self, name: str) -> Path:
        return self.folder / name / "log.txt"

    def _await_address(self, name: str) -> str:
        """The address from the JSON line that a process prints when it serves."""
        process = self._processes[name]
        deadline = time.monotonic() + START_S
        line = b""
        while not line.endswith(b"\n"):
            if not process.pipe.poll(max(0.0, deadline - time.monotonic())):
                raise Interrupted(f"{name} did not serve within {START_S:g} s; see {self._log(name)}")
            said = b""
            with suppress(ConnectionError):  # it has ended without reading what it is given
                said = os.read(process.pipe.fileno(), 4096)
            if not said:
                raise self._failed(name, process)
            line += said
        told = json.loads(line)
        if "predict_grpc" in told:
            self.serving[name] = told["predict_grpc"]
        return str(told["address"])

    def _failed(self, name: str, process: Child) -> TreetapError:
        """The error of a process that has ended before it served."""
        process.ended(STOP_S)
        if process.fate:
            return BadInput(process.refusal) if process.refusal else Interrupted(f"{name} was lost: {process.fate}")
        tail = self._log(name).read_text(errors="replace").strip().splitlines()[-3:]
        message = f"{name} ended with status {process.exitcode}: {' / '.join(tail)}"
        return BadInput(message) if process.exitcode == 2 else Interrupted(message)


def serve(pipe: Connection, words: Sequence[str], name: str, log: Path) -> None:
    """Be `treetap WORDS` in a session of its own, with the pipe for input and output; `log`: for its standard error.

    What it writes is for its own user. gRPC, which `treetap.logs.quiet_grpc` keeps off this screen, writes to that log.
    """
    os.setsid()
    os.umask(0o077)
    heed_signals()
    name_process(name)
    with pipe:
        error = _opened(log)
        for number, given in enumerate((pipe.fileno(), pipe.fileno(), error)):
            os.dup2(given, number)
        os.close(error)
    streams = (os.fdopen(number, way, 1, errors="backslashreplace") for number, way in enumerate("rww"))
    sys.stdin, sys.stdout, sys.stderr = streams
    if os.environ.get("GRPC_VERBOSITY") == "NONE":
        del os.environ["GRPC_VERBOSITY"]
    sys.argv = ["treetap", *words]
    from treetap.commands.cli import main

    main()


def _opened(log: Path) -> int:
    return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def keep_table(table: pa.Table, path: Path) -> None:
    """Write a table as Parquet, on disk whole or not at all, for the process's own user: nobody else reads it."""
    with writing_whole(path) as file:
        pq.write_table(table, file, compression="zstd")


def to_toml(content: Mapping[str, Any], prefix: str = "") -> str:
    """TOML of plain values, lists, tables and lists of tables; JSON's strings and finite numbers are TOML's too."""
    plain = {key: value for key, value in content.items() if not isinstance(value, Mapping) and not _tables(value)}
    lines = [f"{toml_key(key)} = {toml(value)}\n" for key, value in plain.items() if value is not None]
    for key, value in content.items():
        if isinstance(value, Mapping):
            name = f"{prefix}{toml_key(key)}"
            lines.append(f"\n[{name}]\n{to_toml(value, name + '.')}")
        elif _tables(value):
            lines += [f"\n[[{prefix}{toml_key(key)}]]\n{to_toml(row, prefix + toml_key(key) + '.')}" for row in value]
    return "".join(lines)


def _tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)
