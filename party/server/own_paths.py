"""Paths of this host in errors that leave a party: they are named from the folders that its configuration names.

Peers, clients and coordinators need not know where a party's files lie; its own log keeps the whole paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from party.config import PartyConfig

#: A folder of a table that is a column's value, as in `site=north/part-0.parquet`: the value is content.
_PARTITION = re.compile(r"([\w.-]+)=[^/\s]+/")


def outward(config: PartyConfig) -> Callable[[str], str]:
    """The function that takes this host's folders out of a message: of a path below one, what lies below it stays.

    `/srv/bank/state/jobs/j` becomes `state/jobs/j`, and a table's file its name, also in an object store. Values of
    columns in names of folders are left out.
    """
    names = {config.state: "state"}
    if config.data is not None:
        names[config.data] = "data"
    if config.tables_folder is not None:
        names.setdefault(config.tables_folder, "tables")
    files = [file for table in config.tables.values() for file in table.local()]
    if config.tls is not None:
        files += [
            named for named in (config.tls.ca, config.tls.certificate, config.tls.key, config.tls.revoked) if named
        ]
    for file in files:
        names.setdefault(file.parent, "")
    known: dict[str, str] = {}
    for folder, name in names.items():
        for path in {folder, folder.absolute(), folder.resolve()}:
            if path.is_absolute() and path != Path(path.anchor):
                known.update(dict.fromkeys((str(path), repr(str(path))[1:-1]), name))
    # of an object store what lies below the part of the path that no pattern is in
    stored = [place for table in config.tables.values() for place in table.places if isinstance(place, str)]
    known.update((re.split(r"/[^/]*[*?\[]", place)[0].rpartition("/")[0], "") for place in stored)
    if not known:
        return str
    longest_first = sorted(known, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))})(/(?=[^\s/])|(?![\w-]|\.\w))")

    def shown(match: re.Match[str]) -> str:
        name, below = known[match[1]], match[2]
        return (name and name + "/") if below else name or "its folder"

    def hide(text: str) -> str:
        return _PARTITION.sub(r"\1=…/", pattern.sub(shown, text))

    return hide
