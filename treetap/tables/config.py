"""The tables of a configuration: where each lies, its id column, the columns that may be used.

Cuts that the owner of a column lists: its bins then follow from no cell.

A value equal to a cut lies above it. A column with such cuts is neither refused nor dropped as constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from treetap.errors import did_you_mean, refuse
from treetap.names import ANY, LABEL_UPPER, MOST_KEYS, OFFSETS, matched, named_by
from treetap.strict import Strict
from treetap.tables.source_keys import SourceKeys

#: The key of a table's settings.
CUTS = "cuts"


def _ascending(cuts: list[float]) -> list[float]:
    """Refuse cuts that are not finite, or do not increase."""
    if strange := [cut for cut in cuts if not math.isfinite(cut)]:
        raise ValueError(f"has the cut {strange[0]}: write finite numbers")
    for lower, upper in pairwise(cuts):
        if not lower < upper:
            raise ValueError(f"has the cut {upper:g} behind {lower:g}: list each once, in increasing order")
    return cuts


def _check_named(key: str, names: Iterable[str], columns: Sequence[str] | None, which: str, remedy: str = "") -> None:
    """Raise ValueError for the first of a key's names that is none of these columns; None: they have no names yet."""
    for name in names:
        if columns is None:
            raise ValueError(f"{key} names {name!r}, and columns are drawn by share: {remedy}")
        if not named_by(columns, name):
            raise ValueError(f"{key} names {name!r}, which is none of {which}{did_you_mean(name, columns)}")


class PublicCuts(Strict):
    """The settings of a table whose columns may have listed cuts."""

    cuts: dict[str, Annotated[list[float], Field(min_length=1), AfterValidator(_ascending)]] = {}
    """Column of numbers, or of days since 1970-01-01 → its increasing cuts, in the place of quantiles of its cells: at
    most max_bin − 1. A value equal to a cut lies above it.
    """

    def check_cuts(self, columns: Sequence[str] | None) -> None:
        """Raise ValueError for the first column with cuts that is none of these; None: they have no names yet."""
        _check_named(CUTS, self.cuts, columns, "the feature columns", "give columns = [...]")

    def check_bins(self, max_bin: int) -> None:
        """Raise ValueError for the first column whose cuts make more bins than a job has."""
        for name, cuts in self.cuts.items():
            if len(cuts) >= max_bin:
                raise ValueError(
                    f"{CUTS} of column {name!r} make {len(cuts) + 1} bins, and max_bin of the job is {max_bin}: list "
                    f"at most {max_bin - 1}, or raise max_bin"
                )


#: Encodings of columns of text, of dates, and of text or numbers that trees split as categories.
DAYS, CATEGORICAL, ONE_HOT = "days", "categorical", "one-hot"
#: In the place of an encoding: the one that the column's cells show, or an error that names those that may be meant.
AUTO = "auto"
ENCODINGS = ("ordinal", ONE_HOT, DAYS, CATEGORICAL, AUTO)
#: In a table of encodings, all columns that it does not name.
OTHERS = "*"


def _known(value: Any) -> Any:
    """Refuse what is neither the name of an encoding nor a table of such names."""
    encodings = value.values() if isinstance(value, dict) else [value]
    if wrong := [name for name in encodings if name not in ENCODINGS]:
        raise ValueError(
            f"{wrong[0]!r} is no encoding: write {', '.join(map(repr, ENCODINGS[:-1]))} or {ENCODINGS[-1]!r}, or a "
            f'table with one of them for each column, such as {{ city = "one-hot", opened = "{DAYS}" }}'
        )
    return value


def _direction(value: Any) -> Any:
    """Refuse what is no direction; 0, which XGBoost has for columns without a constraint, is said by leaving it out."""
    if isinstance(value, bool) or value not in (1, -1):
        raise ValueError(f"must be 1 (increasing) or -1 (decreasing), not {value!r}; leave out a column without one")
    return value


#: One encoding for all columns of text, or for each named column its own, and for all others that of `OTHERS`.
Encode = Annotated[str | dict[str, str], BeforeValidator(_known)]


def auto_for_others(encode: str | Mapping[str, str] | None) -> str | dict[str, str]:
    """The same encodings, but `AUTO` for columns that they do not name."""
    return AUTO if encode is None else encode if isinstance(encode, str) else {OTHERS: AUTO, **encode}


#: The key of a table's settings for the columns in which predictions are monotone.
CONSTRAINTS = "monotone_constraints"
#: Predictions may only increase, or only decrease, as a column's values increase.
Direction: TypeAlias = Literal[1, -1]


class Constrained(Strict):
    """The settings of a table that may have `CONSTRAINTS`.

    Column → 1 or -1: predictions may only increase, or only decrease, as its values increase.
    """

    monotone_constraints: dict[str, Annotated[Direction, BeforeValidator(_direction)]] = {}
    """Column → 1 or -1: a boosted prediction may only increase, or only decrease, with it. The label holder learns
    which permuted candidates belong to such columns.
    """

    @property
    def directions(self) -> Mapping[str, Direction]:
        """The direction of each column with a constraint."""
        return self.monotone_constraints

    @property
    def unsent(self) -> frozenset[str]:
        """Disclosure classes of which nothing goes, since no column has a constraint."""
        return frozenset() if self.directions else frozenset({"MONOTONE_DIRECTION"})

    def check_directions(self, columns: Sequence[str] | None) -> None:
        """Raise ValueError for the first constraint of a column that is none of these; None: they have no names yet."""
        _check_named(CONSTRAINTS, self.directions, columns, "the table's columns", "name it in [data]")


def encoding_of(encode: str | Mapping[str, str] | None, column: str) -> str | None:
    """The encoding of a column, should it need one."""
    if encode is None or isinstance(encode, str):
        return encode
    return encode.get(column, encode.get(OTHERS))


def with_taken(
    encode: str | Mapping[str, str], columns: Sequence[str], taken: Mapping[str, str]
) -> str | dict[str, str] | None:
    """The encodings of these columns with those that `AUTO` took in its place; None where no column has one."""
    if isinstance(encode, str) and encode != AUTO:
        return encode
    given = {} if isinstance(encode, str) else {name: it for name, it in encode.items() if it != AUTO}
    given |= {name: taken[name] for name in columns if encoding_of(encode, name) == AUTO and name in taken}
    return given or None


def encodings_in(encode: str | Mapping[str, str] | None) -> list[str]:
    """The encodings that some column has."""
    return list(encode.values()) if isinstance(encode, Mapping) else [encode] if encode else []


def text_as(encoding: str, encode: str | Mapping[str, str] | None) -> str | dict[str, str]:
    """The same encodings, but of columns of text this one; those that `CATEGORICAL` names may hold numbers."""
    if encode is None or isinstance(encode, str):
        return encoding if encode != DAYS else DAYS
    kept = (DAYS, CATEGORICAL)
    return {OTHERS: encoding, **{name: it if it in kept else encoding for name, it in encode.items()}}


def encoded_by_name(encode: str | Mapping[str, str] | None) -> list[str]:
    """The columns that a table of encodings names: they are encoded whatever they hold."""
    return [] if encode is None or isinstance(encode, str) else [name for name in encode if name != OTHERS]


def is_encoded_by_name(encode: str | Mapping[str, str] | None, name: str) -> bool:
    """True for a column that a table of encodings names."""
    return not (encode is None or isinstance(encode, str)) and name in encode and name != OTHERS


def _key_lists(value: Any) -> Any:
    """Refuse what is neither a column nor a list of columns nor a list of such lists."""
    keys = value if isinstance(value, list) and all(isinstance(key, list) for key in value) else [value]
    columns = [key if isinstance(key, list) else [key] for key in keys]
    named = all(key and all(isinstance(name, str) for name in key) for key in columns)
    if not named or not 1 <= len(keys) <= MOST_KEYS:
        raise ValueError(
            "is a column, a list of columns that identify a record together, or a list of such lists, at most "
            f'{MOST_KEYS}, of which each is a key: [["national_id"], ["phone", "birth"]]; ids are equal or not, and no '
            "form of it takes similar ones for one"
        )
    return value


class TableConfig(SourceKeys, Constrained, PublicCuts):
    """One table of this party: its source, an id column and the columns that may be used."""

    id: Annotated[str | list[str] | list[list[str]], BeforeValidator(_key_lists)]
    """Column of ids (whole numbers or text, each once), or a list of columns that identify a record together, in the
    same order at all parties. Two parties may have a list of such lists: keys that are matched one after another.
    """
    columns: list[str] = []
    """Feature columns that jobs may use, in order; other columns are not read. `Tel_*` has all that begin so. May be
    empty beside a party that has some.
    """
    label: str | None = None
    """The label column: needed at the label holder of a training, and at parties of PIVODL that have labels."""
    label_upper: str | None = None
    """Column of upper bounds of labels of survival:aft. Empty or infinite: censored."""
    weight: str | None = None
    """Column of sample weights beside the label, from 0 to the job's max_sample_weight; boosting only. Predictions do
    not read it.
    """
    base_margin: str | None = None
    """Column of what each record's score begins with in the place of the base score, as the score of a model in use;
    boosting with one output a record. Read by predictions too.
    """
    exposure: str | None = None
    """Column of durations or sizes above 0, by which a count or an amount grows: its logarithm is added to the score.
    Objectives count:poisson, reg:gamma and reg:tweedie. Read by predictions too.
    """
    encode: Encode | None = None
    """Encoding of columns of text and dates: "auto", "ordinal", "one-hot", "categorical" or "days" for all of them, or
    by column ("*": all others). Without it such columns are refused.
    """
    drop_constant: bool = False
    """Train without columns that are constant in this table, in the place of refusing it."""

    @model_validator(mode="after")
    def _sound(self) -> TableConfig:
        twice, *by_key = ([name for name in names if names.count(name) > 1] for names in (self.columns, *self.id_keys))
        again = list(chain.from_iterable(by_key))
        beside = {LABEL_UPPER: self.label_upper, "weight": self.weight, **self.offsets}
        special = [name for name in (*self.keys, self.label, *beside.values()) if name in self.columns]
        refuse(
            (twice, f"columns names {''.join(twice[:1])!r} twice"),
            (again, f"id names {''.join(again[:1])!r} twice"),
            (len(set(map(frozenset, self.id_keys))) < len(self.id_keys), "id has a key of the same columns twice"),
            # trees that split at the label, or at what was made of it, would learn nothing else
            (
                special,
                f"column {special and special[0]!r} is the id or the label or the weight, an upper bound or an "
                "offset, and cannot be a feature too",
            ),
            (self.label in self.keys, f"column {self.label!r} cannot be both the id and the label"),
            *(
                (
                    name is not None and name in (*self.keys, self.label),
                    f"column {name!r} cannot be both the {key} and the id or the label",
                )
                for key, name in beside.items()
            ),
            *(
                (
                    beside[key] is not None and self.label is None,
                    f"{key} names a column of the label holder's table, and this one has no label; leave it out",
                )
                for key in (LABEL_UPPER, "weight")
            ),
        )
        self._check_named()
        return self

    @property
    def offsets(self) -> dict[str, str]:
        """The columns of what scores begin with, by setting."""
        return {key: name for key in OFFSETS if (name := getattr(self, key)) is not None}

    @property
    def without_offsets(self) -> TableConfig:
        """The same of a party whose scores they are not."""
        return self.model_copy(update=dict.fromkeys(OFFSETS))

    def _check_named(self) -> None:
        """Raise ValueError for a key that names a column that is none of `columns`."""
        for key, names in (("encode", encoded_by_name(self.encode)), ("date_format", self.dated_by_name)):
            _check_named(key, names, self.columns, "the table's columns")
        self.check_directions(self.columns)
        self.check_cuts(self.columns)

    def matched(self, have: Sequence[str]) -> TableConfig:
        """The same with columns of a table in the place of patterns; ValueError where keys name one that it lacks."""
        if not any(ANY in name for name in self.columns):
            return self
        config = self.model_copy(update={"columns": matched(self.columns, have, self.spared)})
        config._check_named()
        return config
