"""`treetap new`: folders of a federation, or of one of its processes, that run at once and are edited afterwards."""

from __future__ import annotations

import errno
import shlex
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treetap.errors import BadInput, visible
from treetap.names import NAME, NAME_RULE, check_address, check_process_name
from treetap.wire.ports import Role

if TYPE_CHECKING:
    from treetap.ops.new.proposed_table import ProposedTable, SeenTable

new = typer.Typer(help="Folders of a federation, or of one of its processes, to start from.", no_args_is_help=True)

#: The first port that is tried for processes on this machine, and how many are.
FIRST_PORT, PORTS = 7100, 900
COORDINATOR, OPERATOR, AUTHORITY, GATEWAY = "coordinator", "operator", "authority", "gateway"
Id = Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="The column of ids, if it is not seen.")]
Label = Annotated[str | None, typer.Option(metavar="COLUMN", help="The column of labels, if it is not seen.")]
Folder = Annotated[Path | None, typer.Option(help="Where the files go; without it, a folder of that name.")]
Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Where it listens.")]
Through = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="A relay, where others reach it; it dials out alone.")
]
Authority = Annotated[
    Path | None, typer.Option(help="Folder of an authority on this machine, which issues the certificate.")
]
Name = Annotated[str, typer.Option(help="Its name, which its certificate bears.")]


@new.callback()
def _new() -> None:
    """Folders of a federation, or of one of its processes, to start from."""


@new.command("federation")
def new_federation(
    parties: Annotated[
        list[str], typer.Argument(metavar="NAME[=TABLE]...", help="Two or more; the one with the labels may be any.")
    ],
    folder: Annotated[Path, typer.Option(help="Where all folders go.")] = Path("federation"),
    id: Id = None,
    label: Label = None,
    client: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Who may ask the label holder for predictions over HTTP; repeat it."),
    ] = None,
) -> None:
    """Write all files of a federation on this machine: parties, coordinator, operator, certificates, a job.

    treetap new federation bank=bank.csv telco=telco.csv --client app

    Of a table the header and the cells say what the party's file proposes: id, label, columns, encodings, as an
    experiment takes them. A policy names the other parties, and is else as strict as by default. Nothing is
    overwritten.
    """
    from treetap.commands.certs.authority import refuse_existing
    from treetap.ops.new import folders
    from treetap.ops.new.proposed_table import SeenTable

    tables = _tables(parties)
    seen = {name: None if path is None else SeenTable(path, id) for name, path in tables.items()}
    label_holder, label = _labelled(seen, label)
    proposed = {
        name: None if table is None else table.proposed(label if name == label_holder else None)
        for name, table in seen.items()
    }
    clients = [_checked(one, Role.CLIENT) for one in client or ()]
    named = [*tables, COORDINATOR, OPERATOR, AUTHORITY, *([GATEWAY, *clients] if clients else ())]
    if twice := [name for name in named if named.count(name) > 1]:
        raise BadInput(f"{twice[0]}: a client, and the gateway, has a name of its own: choose another")
    ports = [f"127.0.0.1:{port}" for port in _free_ports(len(tables) + (3 if clients else 1))]
    coordinator, addresses = ports[0], dict(zip(tables, ports[1:], strict=False))
    serving, outside = ports[-2:]
    files = {
        folder / COORDINATOR / "coordinator.toml": folders.coordinator_file(coordinator, addresses),
        folder / OPERATOR / "operator.toml": folders.operator_file(coordinator),
        folder / OPERATOR / "job.toml": folders.job_file(
            label_holder, [name for name in tables if name != label_holder]
        ),
        folder / "start.sh": folders.start_script(list(tables), [GATEWAY] if clients else []),
    }
    if clients:
        files[folder / GATEWAY / "gateway.toml"] = folders.gateway_file(outside, label_holder, serving)
    for name, table in proposed.items():
        others = [other for other in tables if other != name]
        holders = [other for other in others if other == label_holder]
        served = folders.serve_table(clients, serving, GATEWAY) if clients and name == label_holder else ()
        files[folder / name / "party.toml"] = folders.party_file(name, addresses[name], table, served=served)
        peers = [other for other in others if other not in holders]
        files[folder / name / "policy.toml"] = folders.policy_file(holders, peers)
    roles = {**dict.fromkeys(tables, Role.PARTY), COORDINATOR: Role.COORDINATOR, OPERATOR: Role.OPERATOR}
    if clients:
        roles |= {GATEWAY: Role.GATEWAY, **dict.fromkeys(clients, Role.CLIENT)}
    secrets = [file for it in roles for file in folders.credentials(folder / it / folders.TLS, it, of_authority=True)]
    refuse_existing(*files, *(folder / AUTHORITY / file for file in ("ca.key", "ca.crt", "crl.pem")), *secrets)
    folders.write_files(files)
    _certify(folder, roles)
    for name, table in proposed.items():
        _say_table(folder / name / "party.toml", table)
    typer.echo(f"{label_holder} has the labels, as {folder / OPERATOR / 'job.toml'} and the policies say")
    if clients:
        typer.echo(
            f"{', '.join(clients)}: at https://{outside} once a model is served; certificates: {folder}/NAME/tls"
        )
    typer.echo(f"next: sh {shlex.quote(str(folder / 'start.sh'))} &")
    typer.echo(f"      cd {shlex.quote(str(folder / OPERATOR))} && treetap train job.toml --check")


@new.command("party")
def new_party(
    table: Annotated[Path, typer.Option(help="The party's table for training: CSV, Parquet, Feather or JSON lines.")],
    name: Annotated[str, typer.Option(help="The party's name; without it that of the table's file.")] = "",
    partner: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Another party of the jobs; repeat it.")
    ] = None,
    label_holder: Annotated[
        str, typer.Option(metavar="NAME", help="The partner with the labels, if this party has none.")
    ] = "",
    folder: Folder = None,
    listen: Listen = "127.0.0.1:7101",
    relay: Through = None,
    authority: Authority = None,
    id: Id = None,
    label: Label = None,
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="How the table's text is written, if not in UTF-8.")
    ] = None,
) -> None:
    """Write the files of one party: its own file and policy, and its key, with a certificate or the request for one.

    treetap new party --table loans.csv --name bank --partner telco

    The table's header and cells say what the file proposes, encodings as an experiment takes them. The policy names the
    partners, and is else as strict as by default. Nothing is overwritten.
    """
    from treetap.ops.new import folders
    from treetap.ops.new.proposed_table import SeenTable

    _address(listen, "--listen")
    if relay is not None:
        _address(relay, "--relay")
    name = _checked(name or _name_of(table))
    partners = [_checked(other) for other in dict.fromkeys([*(partner or []), *filter(None, [label_holder])])]
    if name in partners:
        raise BadInput(f"--partner {name}: is the new party itself, which --name names")
    if label and label_holder:
        raise BadInput(f"--label {label}, --label-holder {label_holder}: one party has the labels; give one of them")
    seen, at = SeenTable(table, id, encoding), folder or Path(name)
    seen.check("--label", label)
    proposed = seen.proposed(label or (None if label_holder else seen.label))
    alone = partners if len(partners) == 1 and proposed.label is None else []
    holders = [label_holder] if label_holder else alone
    policy = folders.policy_file(holders, [other for other in partners if other not in holders])
    files = {"party.toml": folders.party_file(name, listen, proposed, relay), "policy.toml": policy}
    said = _make(Role.PARTY, name, at, authority, files, organisation=name)
    _say_table(at / "party.toml", proposed)
    names = f"names {', '.join(partners)}"
    if not partners:
        names = "names no other party yet, so that every job is refused: add the partners"
    elif not holders and proposed.label is None:
        names = "name the partner with the labels under label_holders (or by --label-holder)"
    typer.echo(f"{at / 'policy.toml'}: {names}")
    typer.echo(said)


@new.command("coordinator")
def new_coordinator(
    parties: Annotated[
        list[str], typer.Argument(metavar="NAME=HOST:PORT...", help="The parties, and where they listen.")
    ],
    name: Name = COORDINATOR,
    operator: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Who may submit jobs; repeat it. Without it, operator.")
    ] = None,
    folder: Folder = None,
    listen: Listen = "0.0.0.0:7100",
    relay: Through = None,
    authority: Authority = None,
) -> None:
    """Write the files of the coordinator, which runs the jobs and holds no data.

    treetap new coordinator bank=bank.example.org:7101 telco=telco.example.org:7101

    The parties call each other at these addresses too: of a party behind a relay it is the relay's. Nothing is
    overwritten.
    """
    from treetap.ops.new.folders import coordinator_file

    _address(listen, "--listen")
    if relay is not None:
        _address(relay, "--relay")
    addresses = dict(map(_party_at, parties))
    if len(addresses) < len(parties) or _checked(name, Role.COORDINATOR) in addresses:
        raise BadInput(f"{', '.join(parties)}: each party, and the coordinator {name}, has a name of its own")
    operators = [_checked(one, Role.OPERATOR) for one in operator or [OPERATOR]]
    text = coordinator_file(listen, addresses, name, operators, relay)
    typer.echo(_make(Role.COORDINATOR, name, folder or Path(name), authority, {"coordinator.toml": text}))


@new.command("dealer")
def new_dealer(
    organisation: Annotated[
        str, typer.Argument(metavar="ORGANISATION", help="Who runs it, as its certificate names it: no party's.")
    ],
    label_holder: Annotated[str, typer.Option(metavar="NAME", help="The party with the labels.")],
    partner: Annotated[list[str], typer.Option(metavar="NAME", help="A feature party; repeat it.")],
    name: Name = "dealer",
    folder: Folder = None,
    listen: Listen = "0.0.0.0:7102",
    relay: Through = None,
    authority: Authority = None,
) -> None:
    """Write the files of a dealer, which draws the randomness of shared sums and holds no data.

    treetap new dealer "Trust Ltd" --label-holder bank --partner telco

    The policies of all parties name it under dealers. Nothing is overwritten.
    """
    from treetap.ops.new import folders

    _address(listen, "--listen")
    policy = folders.policy_file([_checked(label_holder)], [_checked(one) for one in partner])
    files = {"dealer.toml": folders.dealer_file(_checked(name), organisation, listen, relay), "policy.toml": policy}
    typer.echo(_make(Role.PARTY, name, folder or Path(name), authority, files, organisation=organisation))


@new.command("operator")
def new_operator(
    coordinator: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the coordinator listens.")],
    label_holder: Annotated[str, typer.Option(metavar="NAME", help="The party with the labels, of the first job.")],
    partner: Annotated[list[str], typer.Option(metavar="NAME", help="Another party of that job; repeat it.")],
    name: Name = OPERATOR,
    folder: Folder = None,
    authority: Authority = None,
) -> None:
    """Write the files of an operator, who submits jobs to the coordinator, with a first job.

    treetap new operator coordinator.example.org:7100 --label-holder bank --partner telco

    The coordinator's file has the name among its operators. Nothing is overwritten.
    """
    from treetap.ops.new.folders import job_file, operator_file

    _address(coordinator, coordinator)
    job = job_file(_checked(label_holder), [_checked(one) for one in partner])
    files = {"operator.toml": operator_file(coordinator, _checked(name, Role.OPERATOR)), "job.toml": job}
    typer.echo(_make(Role.OPERATOR, name, folder or Path(name), authority, files))


@new.command("approver")
def new_approver(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who decides, as the policy's approvers name them.")],
    party: Annotated[str, typer.Argument(metavar="PARTY=HOST:PORT", help="The party, and where it listens.")],
    folder: Folder = None,
    authority: Authority = None,
) -> None:
    """Write the files of an approver, one of a party's people, who decides about jobs before they begin.

    treetap new approver ann telco=telco.example.org:7101

    The party's policy has approval = "manual", and the name among its approvers. Nothing is overwritten.
    """
    from treetap.ops.new.folders import approver_file

    text = approver_file(_checked(name, Role.APPROVER), *_party_at(party))
    typer.echo(_make(Role.APPROVER, name, folder or Path(name), authority, {"approver.toml": text}))


@new.command("relay")
def new_relay(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Parties and coordinator that may register.")],
    name: Name = "relay",
    folder: Folder = None,
    listen: Listen = "0.0.0.0:443",
    authority: Authority = None,
) -> None:
    """Write the files of a relay, one public port for parties that can only dial out; it reads nothing of theirs.

    treetap new relay bank telco coordinator --listen 0.0.0.0:443

    Each of them has the relay's address in its own file. Nothing is overwritten.
    """
    from treetap.ops.new.folders import relay_file

    text = relay_file(_address(listen, "--listen"), [_checked(one, Role.COORDINATOR) for one in names], name)
    typer.echo(_make(Role.RELAY, _checked(name, Role.RELAY), folder or Path(name), authority, {"relay.toml": text}))


@new.command("gateway")
def new_gateway(
    party: Annotated[str, typer.Argument(metavar="PARTY=HOST:PORT", help="The party, and listen of its [serve].")],
    name: Name = GATEWAY,
    host: Annotated[list[str] | None, typer.Option(help="A name under which clients call it; repeat it.")] = None,
    folder: Folder = None,
    listen: Listen = "0.0.0.0:8443",
    authority: Authority = None,
) -> None:
    """Write the files of a gateway, which clients ask over HTTP, and which asks the party for them.

    treetap new gateway bank=bank.example.org:7443 --host scores.example.org

    The party's file names it: [serve] gateway = "gateway". Nothing is overwritten.
    """
    from treetap.ops.new.folders import gateway_file

    text = gateway_file(_address(listen, "--listen"), *_party_at(party), _checked(name, Role.GATEWAY))
    made = {"gateway.toml": text}
    typer.echo(_make(Role.GATEWAY, name, folder or Path(name), authority, made, host or ()))


def _make(
    role: Role,
    name: str,
    at: Path,
    authority: Path | None,
    files: Mapping[str, str],
    hosts: Sequence[str] = (),
    organisation: str = "",
) -> str:
    """Write the files of a process, and its key, with a certificate or the request for one; returns what is next.

    `files`: its own one first. `hosts`, `organisation`: further names in a certificate that is issued here; for a
    request the authority states the organisation.

    Raises:
        BadInput: a file is there already, or the authority has a fault; nothing has been written.
    """
    from treetap.commands.certs.authority import refuse_existing
    from treetap.ops.new import folders

    own = {at / file: text for file, text in files.items()}
    refuse_existing(*own, *folders.credentials(at / folders.TLS, name, of_authority=authority is not None))
    # before the files: an authority may have a fault
    said = _credentials(at / folders.TLS, name, role, authority, hosts, organisation)
    folders.write_files(own)
    file = next(iter(files))
    config = shlex.quote(str(at / file))
    begin = folders.STARTS[file].format(file=config, folder=shlex.quote(str(at)))
    return f"{said}next: treetap doctor --config {config}\n      {begin}"


def _address(text: str, option: str) -> str:
    try:
        return check_address(text)
    except ValueError as fault:
        raise BadInput(f"{option}: {fault}") from None


def _party_at(word: str) -> tuple[str, str]:
    """Party and address, of a word as `bank=bank.example.org:7101`."""
    name, _, address = word.partition("=")
    return _checked(name), _address(address, word)


def _tables(words: Sequence[str]) -> dict[str, Path | None]:
    """Party → its table, of words as `bank` or `bank=bank.csv`."""
    tables = dict[str, Path | None]()
    for word in words:
        name, _, path = word.partition("=")
        if _checked(name) in tables:
            raise BadInput(f"{name}: is named twice")
        tables[name] = Path(path) if path else None
    if len(tables) < 2:
        raise BadInput("a federation has two or more parties: name another one, as NAME or NAME=TABLE")
    return tables


def _checked(name: str, role: Role = Role.PARTY) -> str:
    """The name of a process; `BadInput` for one that is none, or of a party that is another process's here."""
    if not NAME.match(name):
        raise BadInput(f"{name!r} cannot be {role.one}: {NAME_RULE}")
    if role is Role.PARTY and name in (COORDINATOR, OPERATOR, AUTHORITY):  # whose folder has the authority's key
        raise BadInput(f"{name!r} cannot be a party: another process has that name, or the authority's folder")
    try:
        return check_process_name(name)
    except ValueError as fault:
        raise BadInput(str(fault)) from None


def _name_of(table: Path) -> str:
    name = table.stem.lower().replace("_", "-")
    if not NAME.match(name):
        raise BadInput(f"{table}: its name cannot be a party's: {NAME_RULE}; give one by --name")
    return name


def _labelled(seen: Mapping[str, SeenTable | None], label: str | None) -> tuple[str, str | None]:
    """The party with the labels, and their column; the first one where no table shows it.

    Raises:
        BadInput: `label`, which a person has named, is a column of no table, or of several.
    """
    tables = {name: table for name, table in seen.items() if table is not None}
    if label is not None:
        having = [name for name, table in tables.items() if label in table.names]
        if len(having) != 1:
            where = f"tables of {' and '.join(having)} have" if having else "no table has"
            raise BadInput(f"--label {label}: {where} such a column: name one that a single party has")
        return having[0], label
    showing = next(((name, table.label) for name, table in tables.items() if table.label is not None), None)
    return showing or (next(iter(seen)), None)


def _free_ports(count: int) -> list[int]:
    """Ports of loopback, one after the other, at which nothing listens now."""
    for first in range(FIRST_PORT, FIRST_PORT + PORTS, count):
        if all(_is_free(port) for port in range(first, first + count)):
            return list(range(first, first + count))
    raise BadInput(f"no {count} ports in a row are free on 127.0.0.1, from {FIRST_PORT} to {FIRST_PORT + PORTS}")


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as taken:
            if taken.errno != errno.EADDRINUSE:
                raise BadInput(f"127.0.0.1:{port}: {taken.strerror}") from None
            return False
        return True


def _certify(folder: Path, roles: Mapping[str, Role]) -> None:
    """Make an authority, and the credentials of every process in its own folder."""
    from treetap.commands.certs.authority import create_authority, issue, write_new
    from treetap.ops.certs.requests import revoke
    from treetap.ops.new.folders import TLS

    authority = folder / AUTHORITY
    create_authority(authority)
    revoked, _, _ = revoke(authority)
    for name, role in roles.items():
        hosts = ["127.0.0.1"] if role is Role.GATEWAY else []
        # each party stands for an organisation of its own, as it will be one on hosts of their own
        own = name if role is Role.PARTY else ""
        issue(folder / name / TLS, name, role, hosts=hosts, ca_folder=authority, organisation=own)
        for file in (authority / "ca.crt", revoked):
            write_new(folder / name / TLS / file.name, file.read_bytes(), 0o644)


def _credentials(
    tls: Path, name: str, role: Role, authority: Path | None, hosts: Sequence[str], organisation: str
) -> str:
    """Make a process's key, with a certificate of an authority on this machine or the request for one; what to do then.

    Raises:
        BadInput: the authority lacks a file, or has a fault; nothing has been made.
    """
    from treetap.commands.certs.authority import issue, write_new
    from treetap.ops.certs.requests import request
    from treetap.wire.certificates import read_file

    if authority is not None:
        public = {file: read_file(authority / file) for file in ("ca.crt", "crl.pem")}
        issue(tls, name, role, hosts=hosts, ca_folder=authority, organisation=organisation)
        for file, content in public.items():
            write_new(tls / file, content, 0o644)
        return ""
    made = request(tls, name, role, hosts)
    return (
        f"{made.request}: send it to the authority, and put what comes back into {tls}: {name}.crt, ca.crt, crl.pem\n"
        f"SHA-256 of the key: {made.fingerprint}: send it over another channel\n"
    )


def _say_table(file: Path, table: ProposedTable | None) -> None:
    if table is None:
        typer.echo(f"{file}: has no table yet: fill in the lines at its end")
        return
    label = f"label = {visible(table.label)}" if table.label is not None else "no label"
    typer.echo(
        f"{file}: id = {visible(table.id)}, {label}, {len(table.columns)} columns of {table.path.name}; look it through"
    )
    if table.left_out:
        typer.echo(f"  left out, as its last lines say: {', '.join(map(visible, table.left_out))}")
