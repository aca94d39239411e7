"""The sets of the reproduction as two parties' tables, in halves; a seed draws the records.

Of images the label holder has the left half and the feature party the right one, of tables the first half of the
columns in the file's order and the other one, or (`turns`) every second column.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from divided_sets import Split, column_parts, image_parts, split_of_files, written
from network_catalogue import SETS

HOLDER, FEATURE = "label-holder", "feature-b"
PARTIES = (HOLDER, FEATURE)


@cache
def split_of(name: str, seed: int, most: int | None = None, *, turns: bool = False) -> Split:
    """A set as a seed divides it; `most`: at most that many records of each part.

    Raises:
        BadInput: TREETAP_DATA is not set, or has no such file.
    """
    return split_of_files(files_of(name, seed, most, turns=turns), PARTIES)


def files_of(name: str, seed: int, most: int | None = None, *, turns: bool = False) -> Path:
    """A folder with a Parquet table of each party and part, `PARTY-PART.parquet`; it goes when the process ends."""
    given = SETS[name]

    def owned(names: list[str]) -> dict[str, list[str]]:
        middle = len(names) // 2
        halves = (names[0::2], names[1::2]) if turns else (names[:middle], names[middle:])
        return dict(zip(PARTIES, halves, strict=True))

    if given.images:
        pieces = {HOLDER: "left", FEATURE: "right"}
        return written(f"{name}-{seed}-{most}", lambda: image_parts(given.file, seed, given.train, pieces), most)
    return written(f"{name}-{seed}-{most}-{turns}", lambda: column_parts(given.file, given.label, seed, owned), most)
