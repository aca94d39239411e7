"""The keys of a table that say where its rows come from and how they are written, at a party and in an experiment."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, StringConstraints, model_validator

from treetap.errors import ConfigError, DataError, refuse
from treetap.names import LABEL_UPPER, OFFSETS
from treetap.strict import Strict, fitting, unshown
from treetap.tables.normalised import checked as checked_rules
from treetap.tables.normalised import rules_of
from treetap.tables.number_styles import THOUSANDS

#: Keys of other libraries and of the Python interface → the one that is meant here.
_MEANT = {
    **dict.fromkeys(("id_column", "id_col", "ids", "index", "index_col", "key", "primary_key"), "id"),
    **dict.fromkeys(("label_column", "target", "y", "response"), "label"),
    **dict.fromkeys(("features", "feature_columns", "usecols"), "columns"),
    **dict.fromkeys(("categories", "categorical", "categorical_features", "encoder", "dtype"), "encode"),
    **dict.fromkeys(("parse_dates", "dates", "dateformat", "datetime_format"), "date_format"),
    **dict.fromkeys(("sample_weight", "weights"), "weight"),
    **dict.fromkeys(("sep", "separator"), "delimiter"),
    **dict.fromkeys(("na_values", "null_values", "nullstr", "nulls"), "missing"),
    **dict.fromkeys(("drop_duplicates", "keep"), "duplicates"),
}
Format = Literal["csv", "parquet", "feather", "jsonl"]
#: The record of several with one id that counts; by default there may be none.
Duplicates = Literal["refuse", "first", "last"]
SQLITE = "sqlite:"
_WILD = frozenset("*?[")
_STORED = re.compile("s3://[^/@:]+/.+")
#: Keys whose content may have a password or a key, which no error shows.
_Uri = Annotated[
    str,
    fitting(
        r"\$[A-Za-z_][A-Za-z0-9_]*|sqlite:.+",
        'is the name of an environment variable that holds the URI, as in uri = "$CLINIC_DB", or "sqlite:FILE"',
        shown=False,
    ),
]
_Endpoint = Annotated[
    str,
    fitting(
        r"https?://[A-Za-z0-9.:\[\]_-]+/?",
        "is http://HOST:PORT or https://HOST, without a user; keys are in the environment",
        shown=False,
    ),
]
_Delimiter = Annotated[str, fitting("[\t -~]", 'is one character of ASCII, such as ";" or "\\t"')]
_Quote = Annotated[str, fitting("[!-~]?", "is one character of ASCII, or empty where cells have no quotes")]


@dataclass(frozen=True)
class Given:
    """The settings of a dialect of CSV that a configuration has; None: to be detected."""

    delimiter: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    quote: str | None = None


def _place(value: Any) -> Path | str:
    """Text as a path, but for those of object stores."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("a path is text")
    if value.startswith("s3:") and not _STORED.fullmatch(value):
        raise unshown("a path in an object store is written s3://BUCKET/KEY, and its keys are in the environment")
    if "://" in value and not value.startswith("s3:"):
        raise unshown('is no path: write s3://BUCKET/KEY, or for a database uri = "$NAME", a variable with its URI')
    return value if value.startswith("s3:") else Path(value)


def _places(value: Any) -> Any:
    if value == []:
        raise ValueError("names no file")
    if value is None:
        return None
    return [_place(place) for place in value] if isinstance(value, list) else _place(value)


def _thousands(value: Any) -> Any:
    if value not in ("", *THOUSANDS):
        raise ValueError("is , . ' _ or a space, or empty where there is none")
    return value


def _listed(value: Any) -> Any:
    """Texts and numbers as a list; ValueError for anything else."""
    listed = value if isinstance(value, list) else [value]
    for cell in listed:
        if isinstance(cell, bool) or not isinstance(cell, str | int | float) or cell in (math.inf, -math.inf):
            raise ValueError(f'lists texts and numbers, as in missing = ["-", -999], not {cell!r}')
    return [cell.strip() if isinstance(cell, str) else cell for cell in listed]


def _date_formats(value: Any) -> Any:
    from treetap.tables.dates import checked_format  # most tables have none, and a party starts without

    for form in value.values() if isinstance(value, dict) else [value]:
        checked_format(form)
    return value


def _encoding(value: Any) -> Any:
    try:
        "a".encode(value).decode(value)
    except (LookupError, UnicodeError, TypeError, ValueError):
        raise ValueError(
            'is no encoding of text; usual ones are "utf-8", "utf-16", "windows-1252", "latin-1"'
        ) from None
    return value


def fixed_part(path: Path) -> Path | None:
    """The folder of a pattern below which its files are; None for a path without `*`, `?` and `[`."""
    wild = next((place for place, part in enumerate(path.parts) if _WILD & set(part)), None)
    return None if wild is None else Path(*path.parts[:wild])


Local = Annotated[Path, "of this host"]


class SourceKeys(Strict):
    """The source of a table: files, or a database. Of dialects see `csv_dialect`, of dates `date_formats`."""

    path: Annotated[Local | str | list[Local | str] | None, BeforeValidator(_places)] = None
    """A file (CSV, Parquet, Feather, JSON lines), a folder, a pattern, or a list of these; also s3://BUCKET/KEY."""
    uri: _Uri | None = None
    """Database: "$NAME", an environment variable with its URI, or "sqlite:FILE"."""
    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] | None = None
    """Database: the SELECT statement; or `table`."""
    table: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Database: the name of a table; or `query`."""
    deadline_s: Annotated[float, Field(gt=0, le=3600)] = 300.0
    """Database: seconds within which the table is read."""
    endpoint_override: _Endpoint | None = None
    """The address of an object store other than Amazon's."""
    format: Format | None = None
    """The format, in the place of what the files' names say."""
    delimiter: _Delimiter | None = None
    """CSV: the character between cells; by default detected where it is plain, else a comma."""
    decimal: Literal[".", ","] | None = None
    """CSV: the decimal mark; by default detected where the delimiter is no comma, else a point."""
    thousands: Annotated[str, BeforeValidator(_thousands)] | None = None
    """CSV: the mark between thousands, empty for none; by default none, or detected with `decimal`."""
    encoding: Annotated[str, BeforeValidator(_encoding)] | None = None
    """CSV: the encoding of the text; by default UTF-8, or UTF-16 and UTF-32 by their byte order marks."""
    quote: _Quote | None = None
    """CSV: the quotation mark, by default a double one; empty for none."""
    date_format: Annotated[str | dict[str, str], BeforeValidator(_date_formats)] | None = None
    """How text writes dates, such as "%d.%m.%Y", for all columns or by column; ISO 8601 or detected without it."""
    missing: Annotated[list[str | int | float], BeforeValidator(_listed)] = []
    """Texts and numbers that mean a missing value in columns of features, such as ["-", -999]; blanks around a cell do
    not count."""
    duplicates: Duplicates = "refuse"
    """Which record counts of several with one id: the "first" or the "last", by order of files and rows; or "refuse".
    """
    normalise: Annotated[list[str] | dict[str, list[str]], BeforeValidator(checked_rules)] = []
    """Rules that bring ids into one form, the same at all parties: "nfkc", "casefold", "strip", "e164:DE" (telephone
    numbers of a country), "digits"; a list, or one for each id column by its name.
    """
    _within: Path | None = PrivateAttr(None)
    _read_by: Callable[[SourceKeys], Any] | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _agreeing(self) -> Self:
        of_file, several = self.uri is None, (self.query is not None) + (self.table is not None)
        given = [name for name in Given.__dataclass_fields__ if getattr(self, name) is not None]
        of_files = [*given, *(["format"] if self.format else [])]
        other = "," if self.thousands == "." else "."
        refuse(
            ((self.path is None) == of_file, "give either path, or uri with query or table"),
            (of_file and several, "query and table are of a database, whose uri is missing"),
            (not of_file and several != 1, 'give one of query = "SELECT ..." and table = NAME with uri'),
            (
                not of_file and of_files,
                f"{''.join(of_files[:1])} is a key of files, and uri of a database: leave one of the two out",
            ),
            (
                given and self.format not in (None, "csv"),
                f'{"".join(given[:1])} is a key of CSV, and format = "{self.format}": leave one of the two out',
            ),
            (
                (self.decimal or ".") == self.thousands,  # which is not left to detection
                f'thousands and decimal are both {self.thousands!r}: write decimal = "{other}" too',
            ),
            (
                self.delimiter is not None and self.delimiter == (self.quote or '"'),
                f"delimiter and quote are both {self.delimiter!r}: cells need another delimiter",
            ),
            (
                not of_file and self.duplicates != "refuse",
                "duplicates is of files, and rows of a database have no order: have the query choose one row of each "
                "id, as SELECT DISTINCT ON (id) or GROUP BY id does",
            ),
            (
                self.endpoint_override and not any(isinstance(place, str) for place in self.places),
                "endpoint_override is of object stores, and no path begins with s3://: leave it out",
            ),
            (self.normalise and not self.keys, "normalise is of ids, and rows are numbered: name the id column"),
            (
                of_file and "deadline_s" in self.model_fields_set,
                "deadline_s is of a database, whose uri is missing: leave it out",
            ),
        )
        rules_of(self.keys, self.normalise)
        return self

    @property
    def id_keys(self) -> list[list[str]]:
        """The columns of each key of ids, in the order in which keys are matched; mostly it is one."""
        given: Any = getattr(self, "id", None) or []
        names = [given] if isinstance(given, str) else given
        return [key for key in names if isinstance(key, list)] or [list(names)]

    @property
    def keys(self) -> list[str]:
        """The id columns, in their order; none where rows are numbered."""
        return list(dict.fromkeys(chain.from_iterable(self.id_keys)))

    @property
    def key_places(self) -> tuple[tuple[int, ...], ...]:
        """The places among `keys` of each key's columns, where there are several keys; see `Ids`."""
        keys = self.id_keys if len(self.id_keys) > 1 else []
        return tuple(tuple(map(self.keys.index, key)) for key in keys)

    @property
    def rules(self) -> tuple[str, ...]:
        """Those of `normalise` by id column; none where no column has any."""
        return rules_of(self.keys, self.normalise)

    @property
    def spared(self) -> list[str]:
        """The columns that are no features: those of ids, labels, weights and offsets."""
        named = ("label", LABEL_UPPER, "weight", *OFFSETS)
        return [*self.keys, *filter(None, (getattr(self, name, None) for name in named))]

    @property
    def places(self) -> list[Path | str]:
        """The path or paths as they are written; none of a database."""
        if self.path is None:
            return []
        return list(self.path) if isinstance(self.path, list) else [self.path]

    @property
    def dialect(self) -> Given:
        """The keys of CSV."""
        return Given(self.delimiter, self.decimal, self.thousands, self.encoding, self.quote)

    @property
    def title(self) -> str:
        """The source in messages about the table as a whole: without a query, and without what a variable holds."""
        if self.uri is not None:
            what = "the query" if self.table is None else f"table {self.table}"
            return f"{what} of {self.uri.removeprefix(SQLITE)}"
        first, more = str(self.places[0]), len(self.places) - 1
        return f"{first} and {more} more" if more else first

    @property
    def within(self) -> Path | None:
        """The folder that others may write to and in which all files lie; None: they lie where the keys say."""
        return self._within

    @property
    def read_by(self) -> Callable[[SourceKeys], Any] | None:
        """The maker of the source where others may have written the table; None: this process reads it."""
        return self._read_by

    @classmethod
    def about_unknown(cls, key: str) -> str:
        meant = _MEANT.get(key)
        return f"; did you mean {meant!r}?" if meant in cls.model_fields else super().about_unknown(key)

    @property
    def dated_by_name(self) -> dict[str, str]:
        """The formats of dates of the columns that `date_format` names."""
        return self.date_format if isinstance(self.date_format, dict) else {}

    def kept_within(self, folder: Path, read_by: Callable[[SourceKeys], Any]) -> Self:
        """The same with paths that start at this folder and stay in it, and another reader."""
        kept = self.below(folder).model_copy()
        kept._within, kept._read_by = folder, read_by
        return kept

    def check_within(self, file: Path) -> Path:
        """The file that a path leads to; `DataError` if that lies outside of the folder that it has to stay in."""
        if self._within is None:
            return file
        try:
            real, folder = file.resolve(), self._within.resolve()
        except (OSError, RuntimeError):  # links in a circle
            raise DataError(f"{file}: cannot be read: its links lead nowhere") from None
        if not real.is_relative_to(folder):
            raise DataError(f"{file}: leads out of the folder of tables: put the file there")
        return real

    def elsewhere(self) -> list[tuple[str, str]]:
        """Databases, variables of the environment and object stores that the keys name, each with its key."""
        named = [("uri", SQLITE if self.uri.startswith(SQLITE) else self.uri)] if self.uri else []
        named += [("endpoint_override", self.endpoint_override)] if self.endpoint_override else []
        return named + [("path", place) for place in self.places if isinstance(place, str)]

    def local(self) -> Iterator[Path]:
        """The paths on this host; of patterns the folder below which files are looked for."""
        for place in self.places:
            if isinstance(place, Path):
                base = fixed_part(place)
                yield place if base is None else base / "*"
        if self.uri is not None and self.uri.startswith(SQLITE):
            yield Path(self.uri.removeprefix(SQLITE))

    def below(self, base: Path) -> Self:
        """The same with paths that start at this folder."""
        return self._at([base / place if isinstance(place, Path) else place for place in self.places], base)

    def expanded(self, key: str) -> Self:
        """The same with environment variables in the paths; `ConfigError` for one that is not set."""
        places: list[Path | str] = []
        for place in self.places:
            full = os.path.expandvars(str(place))
            if "$" in full:
                raise ConfigError(f"{key} = {str(place)!r}: the environment variable is not set")
            places.append(_places(full))
        return self._at(places, Path())

    def _at(self, places: list[Path | str], base: Path) -> Self:
        if self.uri is not None:
            file = base / self.uri.removeprefix(SQLITE)
            return self.model_copy(update={"uri": f"{SQLITE}{file}"}) if self.uri.startswith(SQLITE) else self
        return self.model_copy(update={"path": places if isinstance(self.path, list) else places[0]})
