"""Paths of this host in errors that leave a party: they are named from the folders that its configuration names.

Peers, clients and coordinators need not know where a party's files lie; its own log keeps the whole paths.
"""

from __future__ import annotations

import re
from pathlib import Path

from treetap.party.config import PartyConfig

#: A folder of a table that is a column's value, as in `site=north/part-0.parquet`: the value is content.
_PARTITION = re.compile(r"([\w.-]+)=[^/\s]+/")


class OwnPaths:
    """Takes this host's folders out of a message: of a path below one, what lies below it stays.

    `/srv/bank/state/jobs/j` becomes `state/jobs/j`, and a table's file its name, also in an object store. Values of
    columns in names of folders are left out.
    """

    def __init__(self, config: PartyConfig) -> None:
        self._known: dict[str, str] = {}
        self.add(config)

    def add(self, config: PartyConfig) -> None:
        """Also take out the folders of a configuration that was read again: jobs under way name those before."""
        self._known = {**self._known, **_folders_of(config)}
        longest_first = sorted(self._known, key=len, reverse=True)
        alternatives = "|".join(map(re.escape, longest_first))
        self._pattern = re.compile(rf"(?<![\w./-])({alternatives})(/(?=[^\s/])|(?![\w-]|\.\w))")

    def __call__(self, text: str) -> str:
        return _PARTITION.sub(r"\1=…/", self._pattern.sub(self._shown, text)) if self._known else text

    def _shown(self, match: re.Match[str]) -> str:
        name, below = self._known[match[1]], match[2]
        return (name and name + "/") if below else name or "its folder"


def _folders_of(config: PartyConfig) -> dict[str, str]:
    """The folders that a configuration names, and what they are called outside; empty: nothing."""
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
    return known
