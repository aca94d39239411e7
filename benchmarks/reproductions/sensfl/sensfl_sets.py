"""The sets of the reproduction as the parties have them.

Of images the label holder has the left half and the feature party the right one, or each of three parties a third. Of
tables the feature party has the first half of the columns in the file's order, in which the attacked ones are, and the
label holder the other half.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from divided_sets import Split, column_parts, image_parts, split_of_files, written
from network_catalogue import SETS

HOLDER, FEATURE, OTHER = "label-holder", "feature-b", "feature-c"
PARTIES = (HOLDER, FEATURE, OTHER)
#: Images that are trained on.
TRAINED = {"fashion": 5000, "cifar10": 5000}
_PIECES = {2: ("left", "right"), 3: ("left", "middle", "right")}


@cache
def split_of(name: str, seed: int, parties: int, most: int | None = None) -> Split:
    """A set as a seed divides it; `most`: at most that many records of each part.

    Raises:
        BadInput: TREETAP_DATA is not set, or has no such file.
    """
    return split_of_files(files_of(name, seed, parties, most), PARTIES[:parties])


def files_of(name: str, seed: int, parties: int, most: int | None = None) -> Path:
    """A folder with a Parquet table of each party and part, `PARTY-PART.parquet`; it goes when the process ends."""
    given, folder = SETS[name], f"{name}-{seed}-{parties}-{most}"
    if given.images:
        pieces = dict(zip(PARTIES, _PIECES[parties], strict=False))
        return written(folder, lambda: image_parts(given.file, seed, TRAINED[name], pieces), most)

    def owned(names: list[str]) -> dict[str, list[str]]:
        middle = len(names) // 2
        return {HOLDER: names[middle:], FEATURE: names[:middle]}

    return written(folder, lambda: column_parts(given.file, given.label, seed, owned), most)
