"""`treetap certs`: a private certificate authority, and certificates that name a process and its role."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treetap.wire.ports import Role

certs = typer.Typer(help="A private certificate authority for a federation.", no_args_is_help=True)

ProcessName = Annotated[str, typer.Argument(help="The process's name in the federation.")]
ROLES = "What the process is: party, coordinator, operator, client, approver, relay or gateway."
ProcessRole = Annotated[Role, typer.Option("--role", help=ROLES)]
Ca = Annotated[Path, typer.Option(help="Folder of the authority.")]
Hosts = Annotated[
    list[str] | None, typer.Option("--host", help="Host name or address for other TLS clients; repeat it.")
]
Organisation = Annotated[
    str,
    typer.Option(
        help="The organisation that runs it (field O): parties of shared sums take none of a dealer of their own."
    ),
]
Days = Annotated[int, typer.Option(help="Days until it expires.")]


@certs.command("init")
def certs_init(folder: Annotated[Path, typer.Argument(help="Where ca.crt, ca.key and crl.pem go.")]) -> None:
    """Make a private certificate authority, and its list of revoked certificates, which is empty."""
    from treetap.commands.certs.authority import KEY, create_authority
    from treetap.ops.certs.requests import revoke

    create_authority(folder)
    revoked, _, _ = revoke(folder)
    typer.echo(f"{folder / 'ca.crt'} and {revoked}: give them to every process\n{folder / KEY}: keep it to yourself")


@certs.command("issue")
def certs_issue(
    name: ProcessName,
    role: ProcessRole,
    ca: Ca,
    out: Annotated[Path | None, typer.Option(help="Folder of the certificate; without it, the authority's.")] = None,
    host: Hosts = None,
    days: Days = 365,
    organisation: Organisation = "",
) -> None:
    """Issue the certificate that is a process's identity, with its key: on one machine."""
    from treetap.commands.certs.authority import issue

    files = issue(out or ca, name, role, hosts=host or (), days=days, ca_folder=ca, organisation=organisation)
    typer.echo(f"{files.certificate}\n{files.key}: keep it to {name}")
    _say_who_names(name, role, ca)


@certs.command("request")
def certs_request(
    name: ProcessName,
    role: ProcessRole,
    out: Annotated[Path, typer.Option(help="Folder of the key and the request.")] = Path(),
    host: Hosts = None,
) -> None:
    """Make a key on the process's own host, and a request for its certificate: the key never leaves the host.

    The authority answers with `treetap certs sign`; to renew a certificate, request it in another folder, and `treetap
    certs install` switches to the new pair.
    """
    from treetap.ops.certs.requests import request

    made = request(out, name, role, host or ())
    typer.echo(
        f"{made.key}: keep it here\n{made.request}: send it to the authority\n"
        f"SHA-256 of the key: {made.fingerprint}: send it to the authority over another channel"
    )


@certs.command("install")
def certs_install(
    new: Annotated[Path, typer.Argument(metavar="NEW.crt", help="The certificate that the authority has signed.")],
    certificate: Annotated[
        Path | None, typer.Argument(metavar="NAME.crt", help="The certificate in use; or --config.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Its key; without it, NAME.key beside it.")] = None,
    ca: Annotated[Path | None, typer.Option(help="The authority's certificate; without it, ca.crt beside it.")] = None,
    next_key: Annotated[
        Path | None, typer.Option(help="The new key, which moves; without it, NEW.key beside NEW.crt.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="A process's file: the files in use are those of its [tls].")
    ] = None,
) -> None:
    """Switch to a new certificate and its key, both at once, also if the machine fails in between.

    Running processes read them within five seconds; jobs go on. The old key is deleted.
    """
    from treetap.ops.certs.requests import in_use, install

    files = in_use(certificate, key, ca, config)
    switched = install(new, files, next_key)
    typer.echo(f"{files.certificate}: {'is now' if switched else 'was already'} {new}; its key is {files.key}")


@certs.command("sign")
def certs_sign(
    request: Annotated[Path, typer.Argument(metavar="NAME.csr", help="The request.")],
    name: Annotated[str, typer.Option(help="The name that the process has in the federation.")],
    role: ProcessRole,
    ca: Ca,
    out: Annotated[Path | None, typer.Option(help="Folder of the certificate; without it, the request's.")] = None,
    host: Hosts = None,
    days: Days = 365,
    fingerprint: Annotated[
        str | None, typer.Option(metavar="SHA256", help="The key's, as `certs request` printed it there.")
    ] = None,
    organisation: Organisation = "",
) -> None:
    """Sign a request at the authority, for the name, role, organisation and hosts that are given here and no others."""
    from treetap.ops.certs.requests import FILE, sign_request
    from treetap.wire.ports import Identity

    path, digest = sign_request(request, Identity(name, role, organisation), ca, out, host or (), days, fingerprint)
    others = " and ".join(str(ca / file) for file in ("ca.crt", FILE) if (ca / file).exists())
    typer.echo(f"{path}: send it back, with {others}\nSHA-256 of the key: {digest}")
    _say_who_names(name, role, ca)
    if fingerprint is None:
        typer.echo(f"compare it with what `treetap certs request` printed at {name} before you send anything", err=True)


@certs.command("revoke")
def certs_revoke(
    ca: Ca,
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME|FILE.crt]...", help="A process, with all its certificates, or one certificate."),
    ] = None,
    days: Annotated[int, typer.Option(help="Days for which the list holds.")] = 365,
) -> None:
    """Revoke certificates: write the authority's list, crl.pem, anew. Without any, the same list for longer.

    Every process whose file names a list ([tls] revoked) needs the new one in the place of the old.
    """
    from treetap.ops.certs.requests import revoke

    path, new, until = revoke(ca, what or (), days)
    for serial in new:
        typer.echo(f"revoked: serial number {serial}")
    typer.echo(f"{path}: give it to every process; it holds until {until:%Y-%m-%d}")


def _say_who_names(name: str, role: Role, ca: Path) -> None:
    """At an authority's first party: the hint to the policies that must name each party before its first job."""
    from treetap.commands.certs.authority import read_issued

    if role is Role.PARTY and {one.name for one in read_issued(ca) if one.role == Role.PARTY} == {name}:
        typer.echo(
            f"each party's policy must name the others, {name!r} too: under label_holders if they may open sums over "
            "its columns, else under peers; without that it refuses their jobs"
        )
