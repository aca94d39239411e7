"""A party's file and policy, read again while it serves, after SIGHUP.

Jobs that open from then on go by the new policy, tables and defences. A job under way keeps what it began with; a model
that this party serves to clients begins anew, by which every party reads its table again. One that another party serves
is a job under way. A file with a fault changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, NamedTuple

from treetap.errors import TreetapError
from treetap.party.config import PartyConfig, check_folders, read
from treetap.party.node import PartyNode
from treetap.party.policy_tables import TABLES

log = logging.getLogger(__name__)
#: Keys of a party's file that jobs read when they open.
REREAD = ("tables", "tables_folder", "tables_folder_sources", "data", "defences", "most_jobs", "policy_file")
#: Those of its table `serve`.
REREAD_SERVE = ("clients", "window_ms", "deadline_s")


class Reread(NamedTuple):
    """A configuration that was read again.

    Attributes:
        config: for jobs that open from now on.
        changed: the keys of the file and of the policy that differ, as `policy.people.peers`.
        left: keys that differ, but hold only after a restart.
    """

    config: PartyConfig
    changed: list[str]
    left: list[str]


def reread(path: Path, running: PartyConfig) -> Reread:
    """Read a party's file and its policy again.

    Raises:
        BadInput: a file has a fault, or names a folder that is not there.
    """
    read_now = read(path)
    check_folders(read_now)
    changed, left = _differing(running, read_now, REREAD)
    updates: dict[str, Any] = {key: getattr(read_now, key) for key in REREAD}
    if "serve" in left and running.serve is not None and read_now.serve is not None:
        left.remove("serve")
        of_clients, of_servers = _differing(running.serve, read_now.serve, REREAD_SERVE)
        changed, left = changed + [f"serve.{key}" for key in of_clients], left + [f"serve.{key}" for key in of_servers]
        renewed = {key: getattr(read_now.serve, key) for key in REREAD_SERVE}
        updates["serve"] = running.serve.model_copy(update=renewed)
    for table in _differing(running.policy, read_now.policy)[1]:
        before, now = getattr(running.policy, table), getattr(read_now.policy, table)
        keys = _differing(before, now)[1] if table in TABLES else []
        changed += [f"policy.{table}.{key}" for key in keys] or [f"policy.{table}"]
    config = running.model_copy(update=updates).under(read_now.policy)
    config.check_apart()  # of clients that stay until a restart, too
    return Reread(config, changed, left)


async def follow(path: Path, node: PartyNode) -> None:
    """Read a party's file again and have its node go by it; a fault is logged, and nothing changes."""
    try:
        config, changed, left = await asyncio.to_thread(reread, path, node.config)
    except (TreetapError, OSError) as fault:
        log.error("SIGHUP: nothing has changed, since the file or the policy has a fault: %s", fault)
        return
    node.go_by(config)
    log.info(
        "SIGHUP: read again: %s; jobs that begin from now on go by it, and models that this party serves begin anew",
        ", ".join(changed) or "no key has changed",
    )
    if left:
        log.warning("SIGHUP: these keys have changed too, and need a restart of this party: %s", ", ".join(left))


def _differing(before: Any, now: Any, reread_keys: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
    """The fields of two settings of one type that differ: those that are read again, and the others."""
    differ = [key for key in type(now).model_fields if getattr(before, key) != getattr(now, key)]
    return [key for key in differ if key in reread_keys], [key for key in differ if key not in reread_keys]
