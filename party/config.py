"""A party's own configuration file: its addresses, tables, policy and defences, and the clients it serves."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, PrivateAttr, model_validator

from treetap.errors import ConfigError, Malformed, Refused
from treetap.names import AUTHORITY_KEY, NAME, clash, on_loopback
from treetap.native.arithmetic import Choice
from treetap.party.defences.settings import Defences
from treetap.party.policy import Policy
from treetap.process.config import Relayed, Silence, TelemetryConfig
from treetap.protocols.exclusions import Feature, between
from treetap.strict import Address, Name, ProcessName, Strict, fitting, load
from treetap.tables.config import TableConfig
from treetap.workers.settings import WorkerSettings

if TYPE_CHECKING:
    from treetap.protocols.messages import Members, OpensSums
    from treetap.trees.withholding import Withholding

log = logging.getLogger(__name__)
#: A variable of the environment, SQLite's files, an object store's address, or a beginning of paths in one; what is
#: none of these is not shown, as it may have a password.
Elsewhere = Annotated[
    str,
    fitting(
        r"\$[A-Za-z_][A-Za-z0-9_]*|sqlite:|https?://[^@]+|s3://[^/@:]+/.*",
        'is "$NAME", "sqlite:", the address of an object store, "s3://BUCKET/" or a path there',
        shown=False,
    ),
]


class ServeConfig(Strict):
    """Clients that may request predictions of served models, and limits; without the table no client may."""

    clients: Annotated[list[ProcessName], Field(min_length=1)]
    """Names of the certificates of those who may ask for predictions of served models."""
    listen: Address
    """HOST:PORT for clients of gRPC, and for the gateway."""
    gateway: ProcessName | None = None
    """The gateway through which clients of HTTP ask, by its certificate's name: it is trusted for their names. Without
    it there is none.
    """
    window_ms: Annotated[float, Field(ge=0, le=10_000)] = 200.0
    """Longest wait, in milliseconds, of a round's first request for other requests to join it."""
    most_ids: Annotated[int, Field(ge=1, le=10_000)] = 256
    """Most ids in one request."""
    queue: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    """Most records that wait for a round; a request beyond that is refused."""
    deadline_s: Annotated[float, Field(gt=0, le=600)] = 10.0
    """Longest wait for an answer, in seconds; a client may ask for less."""
    refresh: Annotated[str, Field(pattern=r"^(?:[1-9]\d*[smh])?$")] = ""
    """How often the tables of served models are read again: "5m", "30s" or "12h"; without it after SIGHUP alone."""
    refused: str = ""
    """The class that reasons are about, which a model served with reasons must have; without it the second of two. Of a
    regression they are about higher values.
    """
    decision_days: Annotated[int, Field(ge=0, le=36_525)] = 0
    """Days for which the decision log keeps a line, at least `min_decision_days` of the policy; 0: there is no log."""

    @model_validator(mode="after")
    def _possible(self) -> ServeConfig:
        if self.gateway in self.clients:
            raise ValueError(f"gateway and clients both name {self.gateway}: a gateway asks for others; name it apart")
        if self.most_ids > self.queue:
            raise ValueError(f"most_ids = {self.most_ids} exceeds queue = {self.queue}: such a request would never fit")
        return self


def seconds_of(span: str) -> int:
    """Of "5m": 300; of the empty text 0."""
    return int(span[:-1]) * {"s": 1, "m": 60, "h": 3600}[span[-1]] if span else 0


class PartyConfig(WorkerSettings, Relayed):
    """The configuration that `treetap party --config` reads."""

    listen: Address = "127.0.0.1:0"
    """The address at which the party serves; port 0 takes a free one, which the first line of output names."""
    state: Path
    """Folder of all that the party keeps: progress, models, predictions, transcripts, ledgers."""
    policy_file: Annotated[Path | None, Field(alias="policy")] = None
    """The party's policy file; without one every job is refused, since no other party is named."""
    arithmetic: Choice = "auto"
    """Arithmetic of ciphertexts: "gmpy2" (GMP), "native" (the fastest kernels that the processor has), one form of
    these by name, or "auto": the native ones where they are faster than GMP.
    """
    data: Path | None = None
    """Label holder: folder below which `treetap predict --records FILE` may name a file of ids, one a line or the first
    column of a table.
    """
    silence_s: Silence = 60.0
    """Seconds for which a peer may keep a step waiting; all deadlines follow from it. It must be at least seven round
    trips of the line; 5 s do for 600 ms.
    """
    most_jobs: Annotated[int, Field(ge=1)] = 2
    """Trainings, predictions and previews under way at once; a further one is put off. Served models do not count."""
    metrics: Address | None = None
    """HOST:PORT where Prometheus reads metrics, over plain HTTP without a password: loopback, or only in the
    collector's reach.
    """
    telemetry: TelemetryConfig | None = None
    """Export of spans to a collector, `[telemetry]`; without the table there is none."""
    tables: dict[Name, TableConfig] = {}
    """The tables that jobs may name, `[tables.NAME]`."""
    tables_folder: Path | None = None
    """Folder of further tables: NAME.toml in it has the keys of [tables.NAME] and is read when a job names the table;
    its data lie in the folder too. A table of the same name in the party's file goes before.
    """
    tables_folder_sources: list[Elsewhere] = []
    """Sources that tables of tables_folder may name beside its files: "$NAME" (a variable with a database's URI),
    "sqlite:", an object store's address, or "s3://BUCKET/" or a longer beginning that ends with a slash.
    """
    serve: ServeConfig | None = None
    """Clients of served models; without the table the party answers none."""
    defences: Defences = Defences()
    """Defences of this party against leaks of its labels or of its columns."""
    optimizer: Literal["amplified"] | None = None
    """For audits, feature party: train its part of split networks by the malicious local optimiser. It is logged."""
    _policy: Policy = PrivateAttr(default_factory=Policy)

    @model_validator(mode="after")
    def _apart(self) -> PartyConfig:
        for (one, at), (other, there) in combinations(self.addresses().items(), 2):
            if clash(at, there):
                raise ValueError(f"{one} = {at!r} and {other} = {there!r} want the same port: give each its own")
        return self

    @property
    def threads(self) -> int:
        """Threads of this process that compute."""
        return self.workers or len(os.sched_getaffinity(0))

    def addresses(self) -> dict[str, str]:
        further = {"serve.listen": self.serve and self.serve.listen, "metrics": self.metrics}
        return {"listen": self.listen} | {field: address for field, address in further.items() if address}

    def table(self, name: str) -> TableConfig | None:
        """The table of that name, of this configuration or as its folder of tables has it now; None without one.

        Raises:
            ConfigError: the table's file has a fault, or its data would lie outside the folder.
        """
        folder = self.tables_folder
        if name in self.tables or folder is None or not NAME.match(name):
            return self.tables.get(name)
        file = folder / f"{name}.toml"
        if not file.is_file():
            return None
        try:
            inside = file.resolve().is_relative_to(folder.resolve())
        except (OSError, RuntimeError):  # links in a circle
            inside = False
        if not inside:
            raise ConfigError(f"{file}: leads out of this folder: put the file itself there")
        table = load(file, TableConfig)
        if any(path.is_absolute() or ".." in path.parts for path in table.local()):
            raise ConfigError(
                f"{file}: {'path' if table.uri is None else 'uri'}: must lie in this folder; other tables are "
                "described in the party's file"
            )
        for key, named in table.elsewhere():
            beginnings = tuple(source for source in self.tables_folder_sources if source[-1] == "/")
            within = ".." not in named.split("/") and named.startswith(beginnings)
            if not within and named not in self.tables_folder_sources:
                raise ConfigError(
                    f"{file}: {key}: only tables_folder_sources of the party's file permits {named!r}; put a file into "
                    "this folder"
                )
        from treetap.process.apart import ReadApart  # with the libraries that read tables

        return table.kept_within(folder, ReadApart)

    def table_names(self) -> list[str]:
        """The names of the tables of this configuration and of those that its folder of tables has now."""
        return [*self.tables, *(name for name in self._described() if NAME.match(name) and name not in self.tables)]

    def id_rules(self) -> set[tuple[str, ...]]:
        """The rules of the tables whose ids are written in another form; see `normalise`."""
        return {table.rules for table in map(self.table, self.table_names()) if table and table.rules}

    def misnamed(self) -> list[str]:
        """Files of the folder of tables whose names are none of a table, so that no job can name them."""
        return [f"{name}.toml" for name in self._described() if not NAME.match(name)]

    def _described(self) -> list[str]:
        return [] if self.tables_folder is None else sorted(file.stem for file in self.tables_folder.glob("*.toml"))

    @property
    def policy(self) -> Policy:
        """The policy of the policy file, or the default one."""
        return self._policy

    @property
    def withholding(self) -> Withholding:
        """Sets and trees withheld from other parties while trees grow on this party's labels."""
        own, policy = self.defences.withholding, self._policy
        if policy.labels.max_leakage is None or policy.labels.on_max_leakage == "stop":
            return own
        return replace(own, xi=policy.labels.max_leakage if own.xi is None else min(own.xi, policy.labels.max_leakage))

    def check_withdrawing(self) -> None:
        """Raise `ConfigError` if the policy withdraws sets and the defences do not go with that."""
        limit, policy = self.defences.id_lmid, self._policy
        if policy.labels.max_leakage is None or policy.labels.on_max_leakage == "stop":
            return
        if self.defences.grafting:
            raise ConfigError(str(between(Feature.GRAFTING, Feature.WITHDRAW)), party=self.name)
        if limit is not None and limit.counts == "paper":
            raise ConfigError(str(between(Feature.ID_LMID_PAPER, Feature.WITHDRAW)), party=self.name)

    def unanswered(self) -> list[str]:
        """The `serve.clients` to which the policy permits no prediction."""
        asking = self.serve.clients if self.serve else []
        needed = ("CONTROL", "PREDICTION")
        return [name for name in asking if not all(self.policy.may_emit(name, what, client=True) for what in needed)]

    def check_clients(self) -> None:
        """Raise `ConfigError` if `[serve]` names clients and the policy permits an answer to none of them."""
        if self.serve and len(self.unanswered()) == len(self.serve.clients):
            raise ConfigError(
                f"{self.name}'s policy sends PREDICTION to none of serve.clients ({', '.join(self.serve.clients)}): "
                'name them, or "clients", under emits.PREDICTION (and emits.CONTROL), or leave [serve] out',
                party=self.name,
            )

    def check_apart(self) -> None:
        """Raise `ConfigError` if the policy names a client of `[serve]` among the parties of jobs."""
        parties = {*self.policy.people.label_holders, *self.policy.people.peers}
        if both := [name for name in (self.serve.clients if self.serve else []) if name in parties]:
            raise ConfigError(
                f"serve.clients and {self.name}'s policy both name {', '.join(both)}: a client is never a party of a "
                "job; issue a certificate of another name for the client",
                party=self.name,
            )

    def check_decisions(self) -> None:
        """Raise `ConfigError` if `[serve]` keeps decisions for fewer days than the policy asks for."""
        least = self.policy.people.min_decision_days
        if self.serve is not None and self.serve.decision_days < least:
            raise ConfigError(
                f"serve.decision_days = {self.serve.decision_days}: {self.name}'s policy says min_decision_days = "
                f"{least} under [people]; write decision_days = {least} under [serve], and start {self.name} again",
                party=self.name,
            )

    def under(self, policy: Policy) -> PartyConfig:
        """A copy of this configuration with another policy."""
        config = self.model_copy()
        config._policy = policy  # noqa: SLF001 - of the copy
        return config


#: Keys of a party's file that a dealer's has not.
_OF_DATA = frozenset(
    {
        *("tables", "tables_folder", "tables_folder_sources", "data", "serve", "defences", "optimizer"),
        *("engine", "cluster"),
    }
)


class DealerConfig(PartyConfig):
    """The configuration that `treetap dealer --config` reads: a party's, without data."""

    organisation: Annotated[str, Field(min_length=1)]
    """The organisation that runs it, as its certificate names it (field O); that of none of the parties."""

    @model_validator(mode="after")
    def _without_data(self) -> DealerConfig:
        if held := sorted(self.model_fields_set & _OF_DATA):
            raise ValueError(f"{', '.join(held)}: a dealer has no data of its own, and serves nobody; leave it out")
        return self

    def check_alone(self) -> None:
        """Raise `ConfigError` for another organisation than the certificate's, and where the authority's key lies here.

        A dealer that only its own host can call gets a warning.
        """
        if not self.insecure and (shown := self.transport().organisation) != self.organisation:
            raise ConfigError(
                f"organisation = {self.organisation!r}: the certificate names {shown or 'none'!r} (field O); have one "
                f"issued by --organisation {self.organisation!r}",
                party=self.name,
            )
        if on_loopback(self.listen):
            log.warning("this dealer is a stand-in: its host is that of the parties, who could read what it deals")
            return
        if self.tls is not None and (key := self.tls.ca.parent / AUTHORITY_KEY).exists():
            raise ConfigError(
                f"{key}: who holds the authority's key can pose as any process, and a dealer's organisation holds "
                "none; keep it elsewhere",
                party=self.name,
            )


def read(path: Path, kind: type[PartyConfig] = PartyConfig) -> PartyConfig:
    """Read the file, of a party or a dealer; relative paths in it are relative to its folder.

    Raises:
        ConfigError: it has a fault.
    """
    config = kind.from_file(path)
    if config.policy_file is not None:
        config = config.under(load(config.policy_file, Policy))
    config.check_apart()
    config.check_decisions()
    config.check_withdrawing()
    return config


def check_folders(config: PartyConfig) -> None:
    """Raise `ConfigError` for a missing folder, such as a file system not mounted; a file may appear later."""
    wanted = [(f"tables.{name}: path", file.parent) for name, table in config.tables.items() for file in table.local()]
    own = {"data": config.data, "tables_folder": config.tables_folder}
    for key, folder in [(key, folder) for key, folder in own.items() if folder is not None] + wanted:
        if not folder.is_dir():
            raise ConfigError(f"{key}: {folder}: there is no such folder; mount it, or correct the path")


def check_members(config: PartyConfig, members: Members, opens_sums: OpensSums) -> None:
    """Raise `Refused` unless the policy names all others that a job or prediction names.

    Those that open sums are to be under `label_holders`, the others under `peers`. The error has the lines that the
    policy file lacks, with the names that the job asks for.

    A coordinator names the parties of a job. Without this check an attacker with a coordinator's key and any second
    certificate of the federation could name that certificate the label holder, and open sums over a party's columns.
    """
    for name in members.parties:
        if not NAME.match(name):
            raise Malformed(f"{name!r} is not a name for a party")
    me, policy = config.name, config.policy
    others = [name for name in members.parties if name != me]
    openers = set(opens_sums(members))
    asked = {
        "label_holders": (policy.people.label_holders, [name for name in others if name in openers]),
        "peers": (policy.people.peers, [name for name in others if name not in openers]),
    }
    # the error is the remedy: lines to paste, with what the policy names already kept
    lines = []
    for key, (named, names) in asked.items():
        missing = [name for name in names if name not in named]
        if missing:
            lines.append(f"{key} = [{', '.join([*(['...'] if named else []), *map(json.dumps, missing)])}]")
    if not lines:
        return
    file = (
        f"{me}'s policy file {config.policy_file.name}"
        if config.policy_file
        else f"a file that policy = FILE in {me}'s configuration names"
    )
    raise Refused(
        f"{me} takes no part in a job with parties that its policy does not name: label_holders are those that open "
        f"sums over its columns, peers the others of a job. If these are the right ones, add to {file}, under "
        f"[people], {' and '.join(f'the line `{line}`' for line in lines)}, and send {me} SIGHUP"
    )
