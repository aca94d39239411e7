"""The files that a path of a table stands for: itself, those in a folder, those that match a pattern."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from treetap.errors import DataError
from treetap.tables.faults import MOST_FILES
from treetap.tables.files import TableFile
from treetap.tables.formats import SUFFIXES
from treetap.tables.source_keys import fixed_part


def local_files(path: Path, any_name: bool, allowed: Callable[[Path], Path] = Path) -> list[tuple[str, TableFile]]:
    """The files below a folder or of a pattern, or the one at a path, which need not exist.

    Hidden files, and those below folders that begin with `.` or `_`, are no part of a folder. `any_name`: also files
    whose name says no format, since the configuration says one. `allowed`: asked whenever a file is opened.

    Raises:
        DataError: a folder or a pattern without a file, or with too many.
    """
    base = fixed_part(path)
    if path.is_dir():
        base, found, lacks = path, path.rglob("*"), "is a folder without a file whose name ends with "
    elif base is not None and not path.exists():
        pattern = str(path.relative_to(base))
        found, lacks = base.glob(pattern), "matches no file whose name ends with "
    else:
        return [(path.name, TableFile.local(path, allowed))]
    kept = sorted(each for each in found if _of_table(each.relative_to(base), any_name) and each.is_file())
    if not kept:
        raise DataError(f"{path}: {lacks}{', '.join(SUFFIXES)}")
    if len(kept) > MOST_FILES:
        raise DataError(f"{path}: has {len(kept)} files, and a table at most {MOST_FILES}")
    return [(each.relative_to(base).as_posix(), TableFile.local(each, allowed)) for each in kept]


def _of_table(path: Path, any_name: bool) -> bool:
    if any(part.startswith((".", "_")) for part in path.parts):
        return False
    return any_name or TableFile.local(path).suffix in SUFFIXES
