"""Columns whose encoding the settings have to say: one message names all of them, and has the lines to paste."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from treetap.errors import quoted
from treetap.tables.config import AUTO, OTHERS, encoding_of
from treetap.tables.dates import ISO

Encodings = str | Mapping[str, str] | None
#: Columns that a message names.
_NAMED = 30
_BARE = re.compile(r"[A-Za-z0-9_-]+")
#: A day and a time by which a format of dates is shown.
_SHOWN = datetime(2024, 1, 31, 8, 30)


class Writing(NamedTuple):
    """The settings as the reader of a message writes them.

    `place`: where they are. `out`, `id`: how a column is left out, and how it is named as the ids; None: there is one.
    `missing`: how texts mean a missing value. `shows`: the reader may see cells.
    """

    place: str
    out: str
    id: str | None = None
    python: bool = False
    missing: str = "missing = {0}"
    shows: bool = True

    def line(self, key: str, values: Mapping[str, str] | str) -> str:
        """One value for all columns, or a table by column."""
        equals = "=" if self.python else " = "
        if isinstance(values, str):
            return f"{key}{equals}{json.dumps(values)}"
        if self.python:
            return f"{key}={{{', '.join(f'{quoted(name)}: {json.dumps(it)}' for name, it in values.items())}}}"
        shown = (f"{name if _BARE.fullmatch(name) else quoted(name)} = {json.dumps(it)}" for name, it in values.items())
        return f"{key} = {{ {', '.join(shown)} }}"


#: A party's file, the file of an experiment, and the parameters of an estimator.
OF_PARTY = Writing("in the table's settings", "leave it out of columns", shows=False)
OF_EXPERIMENT = Writing("in [data]", "drop = [{0}], and name it under no party", "id = {0}")
OF_ESTIMATOR = Writing(
    "as parameters of the estimator", "X.drop(columns=[{0}])", "id_column={0}", True, "X.replace({0}, None)"
)


class Meant(NamedTuple):
    """An encoding, None of numbers, and the format of dates in text."""

    encode: str | None = None
    date_format: str = ISO


@dataclass(frozen=True)
class Ask:
    """A column that needs a word. `why`: a clause behind its name. `meant`: probably.

    `forms`: formats of dates that may be meant, the likeliest first. `unsaid`: there is no doubt, but the settings have
    to say it. `out`: the column may be of no use. `unique`: each record has another value. `of_rows`: single cells are
    in doubt. `codes`: its values are few enough for categories. `odd`: the few texts that are no numbers or dates, and
    `first`: the row of the first, in words.
    """

    why: str
    meant: Meant
    forms: tuple[str, ...] = ()
    unsaid: bool = False
    out: bool = False
    unique: bool = False
    of_rows: bool = False
    codes: bool = False
    odd: tuple[str, ...] = ()
    first: str = ""


def message(
    title: object,
    asked: Mapping[str, Ask],
    given: Encodings,
    date_formats: Mapping[str, str],
    writing: Writing,
    listed: Sequence[str | float] = (),
) -> str:
    """The lines of an error; those with settings can be pasted as they are.

    `given`, `date_formats`, `listed`: what the settings have, and what has been detected beside it.
    """
    named = dict(given) if isinstance(given, Mapping) else {}
    likely = {name: ask for name, ask in asked.items() if ask.unsaid or ask.forms}
    lines, said = (
        list[str](),
        {name: str(ask.meant.encode) for name, ask in likely.items() if encoding_of(given, name) is None},
    )
    if said:
        auto = writing.line("encode", {OTHERS: AUTO, **named} if named else AUTO)
        lines += [f"  {auto}  # or, which says the same:", f"  {writing.line('encode', named | said)}"]
    dated = {name: ask.forms or (ask.meant.date_format,) for name, ask in likely.items()}
    dated = {name: forms for name, forms in dated.items() if forms[0] != ISO}
    for place in range(max(map(len, dated.values()), default=0)):
        forms = {name: several[min(place, len(several) - 1)] for name, several in dated.items()}
        shown = next(forms[name] for name, several in dated.items() if len(several) > place)
        line = writing.line("date_format", {**date_formats, **forms})
        lines.append(f"  {line}  # {'or ' if place else ''}as in {_SHOWN.strftime(shown)}")
    odd = {name: ask for name, ask in asked.items() if ask.odd}
    grouped = odd if len(odd) > 1 else {}
    if odd:
        cells = list(dict.fromkeys(cell if writing.shows else "…" for ask in odd.values() for cell in ask.odd))
        line = writing.missing.format(json.dumps([*listed, *cells], ensure_ascii=False))
        lines.append(f"  {line}  # where such a text means a missing value")
    if coded := {name: str(ask.meant.encode) for name, ask in grouped.items() if ask.codes}:
        lines.append(f"  {writing.line('encode', named | coded)}  # where these are categories")
    why = [_group(grouped)] if grouped else []
    why += [
        f"column {name!r} {it.why}{_remedy(name, it, writing)}" for name, it in asked.items() if name not in grouped
    ]
    if len(asked) == 1:
        return "\n".join([f"{title}: {why[0]}{f'; write {writing.place}:' if lines else ''}", *lines])
    more = [f"  and {len(why) - _NAMED} more columns"] if len(why) > _NAMED else []
    shorter = [f"  {clause}" for clause in why[:_NAMED]]
    return "\n".join([f"{title}: {len(asked)} columns need a word {writing.place}:", *shorter, *more, *lines])


def _group(odd: Mapping[str, Ask]) -> str:
    """Columns of numbers or dates with a few other texts, as one clause."""
    different, most = {ask.odd for ask in odd.values()}, max(len(ask.odd) for ask in odd.values())
    texts = "one text" if most == 1 else f"up to {most} texts"
    same = ", the same in all" if len(different) == 1 else ""
    places = [f"{name!r} first in {ask.first}" for name, ask in odd.items()][:_NAMED]
    more = f" and {len(odd) - len(places)} more" if len(odd) > len(places) else ""
    return f"{len(odd)} columns have {texts} among numbers or dates{same}: {', '.join(places)}{more}"


def _remedy(name: str, ask: Ask, writing: Writing) -> str:
    """The advice on a column of which the lines below say nothing."""
    if ask.unsaid or ask.forms or ask.meant.encode is None:
        return ""
    out, codes = writing.out.format(quoted(name)), writing.line("encode", {name: str(ask.meant.encode)})
    if ask.unique and writing.id is not None:
        return f": if it identifies records, {writing.id.format(quoted(name))}; else {out}"
    what = f"; or, if these are categories, {codes}" if ask.codes else ""
    return f": {out}{what}" if ask.out else what
