"""The files of new processes and people: texts that run as they are, and are edited afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from treetap.commands.certs.authority import write_new
from treetap.errors import quoted, visible
from treetap.ops.new.proposed_table import ProposedTable

#: Folder of a process's credentials in its own folder.
TLS = "tls"
#: A process's own file → the command that begins with it.
STARTS: Mapping[str, str] = {
    "party.toml": "treetap party --config {file}",
    "dealer.toml": "treetap dealer --config {file}",
    "coordinator.toml": "treetap coordinator --config {file}",
    "operator.toml": "treetap train {folder}/job.toml --check --operator {file}",
    "approver.toml": "treetap jobs --approver {file}",
    "relay.toml": "treetap relay {file}",
    "gateway.toml": "treetap gateway {file}",
}


def credentials(tls: Path, name: str, *, of_authority: bool) -> list[Path]:
    """The files that a process's credentials will be, or, without an authority, its key and request."""
    given = ["ca.crt", "crl.pem"] if of_authority else [f"{name}.csr"]
    return [tls / file for file in (f"{name}.key", f"{name}.crt", *given)]


def write_files(files: Mapping[Path, str]) -> None:
    """Write new files, of their own user."""
    for path, text in files.items():
        write_new(path, text.encode(), 0o700 if path.suffix == ".sh" else 0o600)


def party_file(
    name: str, listen: str, table: ProposedTable | None, relay: str | None = None, served: Sequence[str] = ()
) -> str:
    """A party's own file, without a table if there is none to propose.

    `relay`: where others reach the party; `served`: the lines of its table `[serve]`.
    """
    return "\n".join(
        [
            f"# The party {name}. Start it: treetap party --config {name}/party.toml",
            "# After a change of tables or policy: kill -HUP its process. Keys: docs/reference/keys.md",
            f"name = {quoted(name)}",
            f"listen = {quoted(listen)}",
            *_relay(relay),
            'state = "state"',
            'policy = "policy.toml"',
            "",
            *tls(name),
            "",
            *(_NO_TABLE if table is None else _table(table)),
            *served,
        ]
    )


def serve_table(clients: Sequence[str], listen: str, gateway: str) -> list[str]:
    """The table `[serve]` of a party that answers clients. `gateway`: the name of the one through which they ask."""
    return [
        "[serve]",
        f"clients = {_names(clients)}",
        f"listen = {quoted(listen)}  # for the gateway, and for clients of gRPC",
        f"gateway = {quoted(gateway)}",
        "",
    ]


def dealer_file(name: str, organisation: str, listen: str, relay: str | None = None) -> str:
    """A dealer's own file."""
    return "\n".join(
        [
            f"# The dealer {name} of shared sums. Start it: treetap dealer --config {name}/dealer.toml",
            "# It has no data. Policies of all parties name it: dealers = [...] under [people].",
            f"name = {quoted(name)}",
            f"organisation = {quoted(organisation)}  # as in its certificate; none of the parties'",
            f"listen = {quoted(listen)}",
            *_relay(relay),
            'state = "state"',
            'policy = "policy.toml"',
            "",
            *tls(name),
            "",
        ]
    )


def gateway_file(listen: str, party: str, address: str, name: str = "gateway") -> str:
    """A gateway's file. `address`: where the party listens for clients."""
    return "\n".join(
        [
            f"# It answers clients over HTTP, for {party}. Start it: treetap gateway {name}/gateway.toml",
            f"# {party}'s file names it and them: [serve] clients = [...], gateway = {quoted(name)}",
            f"name = {quoted(name)}",
            f"listen = {quoted(listen)}",
            "",
            *tls(name),
            "",
            "[party]",
            f"name = {quoted(party)}",
            f"address = {quoted(address)}  # listen of its [serve]",
            "",
        ]
    )


def _table(table: ProposedTable) -> list[str]:
    no_label = '# label = "COLUMN"  # if this party has labels'
    label = no_label if table.label is None else f"label = {quoted(table.label)}"
    columns = [f"  {quoted(name)}," for name in table.columns]
    doubts = [
        f"# {visible(line)}"
        for name, why in table.left_out.items()
        for line in (f"left out: {name}", *why.splitlines())
    ]
    return [
        "[tables.train]",
        f"path = {quoted(str(table.path))}",
        f"id = {quoted(table.id)}",
        label,
        "columns = [",
        *columns,
        "]",
        *table.encodings,
        *doubts,
        "",
    ]


_NO_TABLE = [
    "# [tables.train]",
    '# path = "/srv/train.csv"',
    '# id = "id"',
    '# columns = ["age", "income"]',
    '# label = "repaid"  # if this party has labels',
    "",
]


def policy_file(label_holders: Sequence[str], peers: Sequence[str]) -> str:
    """A policy that differs from the default one by names."""
    return "\n".join(
        [
            "# Who may be in a job with this party; all else is as strict as by default. Keys: docs/reference/keys.md",
            "[people]",
            "# label_holders may open sums over this party's columns; peers are the others of a job.",
            f"label_holders = {_names(label_holders)}",
            f"peers = {_names(peers)}",
            '# dealers = ["dealer"]    # of an organisation that is no party\'s; for jobs with privacy = "private"',
            '# approval = "manual"     # each job waits until one of approvers approves it: docs/approvals.md',
            '# approvers = ["ann"]',
            "",
        ]
    )


def _relay(relay: str | None) -> list[str]:
    return [] if relay is None else [f"relay = {quoted(relay)}  # where others reach it: it dials out alone"]


def coordinator_file(
    listen: str,
    parties: Mapping[str, str],
    name: str = "coordinator",
    operators: Sequence[str] = ("operator",),
    relay: str | None = None,
) -> str:
    """The coordinator's file. `parties`: name → address; `operators`: who may submit jobs."""
    return "\n".join(
        [
            f"# It holds no data. Start it: treetap coordinator --config {name}/coordinator.toml",
            f"name = {quoted(name)}",
            f"listen = {quoted(listen)}",
            *_relay(relay),
            'state = "state"  # a journal of its jobs',
            f"operators = {_names(operators)}  # who may submit jobs",
            "",
            *tls(name),
            "",
            "# The parties call each other at these addresses, too: they must mean the same on every host.",
            "[parties]",
            *(f"{name} = {quoted(address)}" for name, address in parties.items()),
            "",
        ]
    )


def operator_file(coordinator: str, name: str = "operator") -> str:
    """The operator's file. `coordinator`: its address."""
    return "\n".join(
        [
            "# Who submits jobs: treetap train job.toml, in this folder.",
            f"name = {quoted(name)}  # among operators of the coordinator's file",
            f"coordinator = {quoted(coordinator)}",
            '# coordinator_name = "coordinator"  # as in its certificate',
            "",
            *tls(name),
            "",
        ]
    )


def approver_file(name: str, party: str, address: str) -> str:
    """The file of one of a party's people. `address`: the party's."""
    return "\n".join(
        [
            f"# Who decides about jobs of {party}: treetap jobs, in this folder. Its policy.toml has",
            "#   [people]",
            '#   approval = "manual"',
            f"#   approvers = [{quoted(name)}]",
            f"name = {quoted(name)}",
            f"party_name = {quoted(party)}",
            f"party = {quoted(address)}",
            "",
            *tls(name),
            "",
            "# [console]  # pages in the place of commands: treetap console",
            '# listen = "127.0.0.1:8437"',
            "",
        ]
    )


def relay_file(listen: str, names: Sequence[str], name: str = "relay") -> str:
    """A relay's file. `names`: of those who may register."""
    return "\n".join(
        [
            f"# One public port for those who can only dial out. Start it: treetap relay {name}/relay.toml",
            '# They have its address in their own files, above every table: relay = "relay.example.org:443"',
            f"name = {quoted(name)}",
            f"listen = {quoted(listen)}",
            f"names = {_names(names)}  # parties and coordinator that may register",
            "# bytes_s = 10000000  # most bytes of one name in a second; connections, idle_s: docs/reference/keys.md",
            "",
            *tls(name),
            "",
        ]
    )


def job_file(label_holder: str, others: Sequence[str]) -> str:
    """A training by boosting, with the defaults of its parameters but for its size."""
    return "\n".join(
        [
            "# Ask the parties first whether it could begin: treetap train job.toml --check",
            'name = "first"',
            "",
            "[job]",
            f"label_holder = {quoted(label_holder)}",
            f"feature_parties = {_names(others)}",
            "# As in SecureBoost's paper: others get sets of records, the label holder all sums over their columns.",
            'privacy = "published"',
            "# Or nobody gets either, for a dealer of a third organisation; all policies name it: dealers = [...].",
            '# privacy = "private"',
            '# dealer = "dealer"',
            "n_estimators = 20",
            "max_depth = 3",
            "",
        ]
    )


def start_script(parties: Sequence[str], gateways: Sequence[str] = ()) -> str:
    """A shell script that runs all processes on this machine, until Ctrl-C."""
    kinds = [(f"party --config {name}/party.toml", name) for name in parties]
    kinds.append(("coordinator --config coordinator/coordinator.toml", "coordinator"))
    kinds += [(f"gateway {name}/gateway.toml", name) for name in gateways]
    return "\n".join(
        [
            "#!/bin/sh",
            "# The whole federation on this machine, until Ctrl-C; on a host of its own each process is started there.",
            'cd "$(dirname "$0")" || exit 1',
            'pids=""',
            "trap 'kill $pids 2>/dev/null; wait; exit 0' INT TERM HUP",
            *(f'${{TREETAP:-treetap}} {words} 2>>{name}/log.txt & pids="$pids $!"' for words, name in kinds),
            "wait",
            "",
        ]
    )


def tls(name: str) -> list[str]:
    """The table of a process's credentials."""
    files = {"ca": "ca.crt", "certificate": f"{name}.crt", "key": f"{name}.key", "revoked": "crl.pem"}
    return ["[tls]", *(f"{key} = {quoted(f'{TLS}/{file}')}" for key, file in files.items())]


def _names(names: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, names))}]"
