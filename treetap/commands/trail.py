"""`treetap trail`: a party reads, exports and verifies the trail of its jobs, and compares it with what partners hold.

For the party's own people, such as an auditor. No other process gets it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treetap.commands.options import reading
from treetap.errors import BadInput

if TYPE_CHECKING:
    from party.config import PartyConfig
    from party.trail.journal import Trail


def trail(
    config: Annotated[Path, typer.Option(metavar="FILE", help="The party's own configuration file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Export every line, as JSON lines.")] = False,
    partner: Annotated[
        str, typer.Option(metavar="PARTY", help="With --json: only the heads of this partner, which it may see.")
    ] = "",
    verify: Annotated[
        bool, typer.Option("--verify", help="Check the chain, signatures, ledger, transcripts and approvals.")
    ] = False,
    held: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Compare a partner's export with this trail; repeat it.")
    ] = None,
    restored: Annotated[
        str, typer.Option(metavar="WHY", help="Acknowledge an older state, so that jobs go on; partners hear why.")
    ] = "",
) -> None:
    """Show the trail of this party's jobs; export it, verify it, or compare it with what partners hold of it.

    Exit status 1: something does not fit. --restored needs the party to be stopped.

    treetap trail --config bank.toml --verify --held from-telco.jsonl
    """
    from party.config import read
    from party.trail.journal import Trail

    if partner and not as_json:
        raise BadInput("--partner goes with --json: it limits what is exported")
    party = read(config)
    own = Trail(party.name, party.state)
    with reading(party.state):
        if restored:
            _restore(party, own, restored)
        elif verify or held:
            _compare(party, verify, held or [])
        else:
            _show(party, own, partner, as_json=as_json)


def _restore(party: PartyConfig, own: Trail, why: str) -> None:
    from party.approvals.ledger import approvals_of
    from party.runtime.ledger import ledger_of
    from party.trail.exchange import LONGEST_WHY
    from treetap.names import visible
    from treetap.process.lifecycle import sole_user

    if len(why) > LONGEST_WHY:
        raise BadInput(f"--restored: a reason has at most {LONGEST_WHY} characters")
    with sole_user(party.state):
        own.restore(ledger_of(party.state, party.seal).head(), approvals_of(party).digests(), visible(why))
    typer.echo(f"{own.path}: jobs go on from this state, and partners hear why with the next one")


def _compare(party: PartyConfig, verify: bool, held: list[Path]) -> None:
    from party.trail.verify import differences, misfits, removed
    from treetap.errors import DataError

    faults = [*(misfits(party) if verify else ())]
    for file in held:
        try:
            faults += differences(party, file)
        except DataError as damage:
            faults.append(str(damage))
    for line in [*(removed(party) if verify and not faults else ()), *faults]:
        typer.echo(line)
    if faults:
        raise typer.Exit(1)
    typer.echo(f"{party.name}: everything fits")


def _show(party: PartyConfig, own: Trail, partner: str, *, as_json: bool) -> None:
    from party.runtime.ledger import utc
    from party.trail.verify import held_of, said

    lines = own.lines()
    if partner:
        for row in held_of(lines, party.name, partner):
            print(json.dumps(row, allow_nan=False), flush=True)
    elif as_json:
        print(own.text(), end="", flush=True)
    else:
        for line, head in lines:
            typer.echo(f"{utc(line['seconds'])}  {head[:12]}  {said(line)}")
