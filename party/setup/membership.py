"""Parties that may be in a job with this one: those that its policy names, whatever a coordinator asks.

A coordinator names the parties of a job. Without this check an attacker with a coordinator's key and any second
certificate of the federation could name that certificate the label holder, and open the sums over a party's columns.
"""

from __future__ import annotations

import json

from treetap.errors import Malformed, Refused
from treetap.names import NAME
from treetap.party.config import PartyConfig
from treetap.protocols.messages import Members, OpensSums


def check_members(config: PartyConfig, members: Members, opens_sums: OpensSums) -> None:
    """Raise `Refused` unless the policy names all others that a job or prediction names.

    Those that open sums are to be under `label_holders`, the others under `peers`. The error has the lines that the
    policy file lacks, with the names that the job asks for.
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
