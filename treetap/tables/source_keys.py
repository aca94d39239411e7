"""The keys of a table that say where its rows come from and how they are written, at a party and in an experiment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, StringConstraints, model_validator

from treetap.errors import ConfigError
from treetap.strict import Strict
from treetap.tables.csv_dialect import THOUSANDS, Given

#: A file, a folder or a pattern of an object store, as `s3://BUCKET/KEY`.
Remote = Annotated[str, StringConstraints(pattern=r"^s3://[^/]+/.+$")]
Format = Literal["csv", "parquet", "feather", "jsonl"]
_WILD = frozenset("*?[")


def _places(value: Any) -> Any:
    """Text as paths, but for those of object stores."""
    if isinstance(value, list):
        return [_places(each) for each in value]
    return Path(value) if isinstance(value, str) and not value.startswith("s3://") else value


def _encoding(value: Any) -> Any:
    """Refuse what is no encoding of text."""
    try:
        b"a".decode(value)
        "a".encode(value)
    except (LookupError, UnicodeError, TypeError, ValueError):
        raise ValueError(
            'is no encoding of text; usual ones are "utf-8", "utf-16", "windows-1252", "latin-1"'
        ) from None
    return value


class SourceKeys(Strict):
    """The source of a table.

    `path`: a file, a folder of files, a pattern such as `2024-*.parquet`, or a list of these. `format`: in the place of
    what the files' names say. `delimiter`, `decimal`, `thousands`, `encoding`, `quote`: of CSV; see `csv_dialect`.
    """

    path: Annotated[Path | Remote | list[Path | Remote], BeforeValidator(_places)]
    format: Format | None = None
    delimiter: Annotated[str, StringConstraints(pattern=r"^[\t -~]$")] | None = None
    decimal: Literal[".", ","] | None = None
    thousands: Literal[("", *THOUSANDS)] | None = None  # type: ignore[valid-type]
    encoding: Annotated[str, BeforeValidator(_encoding)] | None = None
    quote: Annotated[str, StringConstraints(pattern=r"^[!-~]?$")] | None = None

    @model_validator(mode="after")
    def _agreeing(self) -> Self:
        given = [name for name in Given.__dataclass_fields__ if getattr(self, name) is not None]
        if given and self.format not in (None, "csv"):
            raise ValueError(f'{given[0]} is a key of CSV, and format = "{self.format}": leave one of the two out')
        if (self.decimal or ".") == self.thousands:
            other = "," if self.thousands == "." else "."
            raise ValueError(f'thousands and decimal are both {self.thousands!r}: write decimal = "{other}" too')
        if self.delimiter is not None and self.delimiter == (self.quote or '"'):
            raise ValueError(f"delimiter and quote are both {self.delimiter!r}: cells need another delimiter")
        if isinstance(self.path, list) and not self.path:
            raise ValueError("path = [] names no file")
        return self

    @property
    def places(self) -> list[Path | str]:
        """The path or paths as they are written."""
        return list(self.path) if isinstance(self.path, list) else [self.path]

    @property
    def dialect(self) -> Given:
        """The keys of CSV."""
        return Given(self.delimiter, self.decimal, self.thousands, self.encoding, self.quote)

    @property
    def title(self) -> str:
        """The source in messages that are about the table as a whole."""
        first, more = str(self.places[0]), len(self.places) - 1
        return f"{first} and {more} more" if more else first

    def local(self) -> Iterator[Path]:
        """The paths on this host; of patterns the folder below which files are looked for."""
        for place in self.places:
            if isinstance(place, Path):
                fixed = list(place.parts)
                wild = next((k for k, part in enumerate(fixed) if _WILD & set(part)), None)
                yield place if wild is None else Path(*fixed[:wild], "*")

    def below(self, base: Path) -> Self:
        """The same with paths that start at this folder."""
        places = [base / place if isinstance(place, Path) else place for place in self.places]
        return self.model_copy(update={"path": places if isinstance(self.path, list) else places[0]})

    def expanded(self, key: str) -> Self:
        """The same with environment variables in the paths; `ConfigError` for one that is not set."""
        places: list[Path | str] = []
        for place in self.places:
            found = os.path.expandvars(str(place))
            if "$" in found:
                raise ConfigError(f"{key} = {str(place)!r}: the environment variable is not set")
            places.append(_places(found))
        return self.model_copy(update={"path": places if isinstance(self.path, list) else places[0]})
