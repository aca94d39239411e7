"""The joined table's columns: their encodings, taken once for all runs and said as the parties' files would, and times.

What looks wrong with them: columns that rank the label by themselves.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from treetap import terminal
from treetap.arrays import Bools, Floats, Ints
from treetap.errors import DataError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.file_tables import PartyTable
from treetap.lab.experiment.results import RunResult
from treetap.pages.printing import print_words
from treetap.tables.asked_columns import OF_EXPERIMENT
from treetap.tables.auto_encoding import Cells, Rules, Settled, declared_in, may_identify, settle
from treetap.tables.categories import as_written, category_texts, encoded, no_numbers, one_hot_names
from treetap.tables.cells import is_tensor
from treetap.tables.config import AUTO, CATEGORICAL, DAYS, TableConfig, encoding_of, text_as, with_taken
from treetap.tables.dates import ISO, is_date, timestamps
from treetap.tables.opening import missing_words
from treetap.tables.source import Origin, Source, is_text, numbers_of, row_name
from treetap.trees import metrics, sampling
from treetap.trees.job_params import REGRESSIONS

#: Entries of the joined table's metadata: the encodings that `AUTO` took, by column; sentences about what was merged;
#: the categories of columns whose source orders them.
_TAKEN, _CODED, _ORDERS = b"taken", b"coded", b"orders"


def settled_in(
    experiment: ExperimentFile, source: Source, configs: Sequence[TableConfig], columns: Mapping[str, pa.ChunkedArray]
) -> Settled:
    """The encodings that `AUTO` takes for columns that some party gets, and the formats of their dates; says them.

    `DataError` names all columns that need a word.
    """
    data, params = experiment.data, experiment.job.params()
    chosen = [(name, encoding_of(config.encode, name)) for config in configs for name in config.columns]
    encode = {name: it for name, it in chosen if it is not None and not is_tensor(columns[name].type)}
    encode |= {name: AUTO for name, it in chosen if it == AUTO and name in encode}
    cells = {name: Cells(source, columns[name], len(columns[name])) for name in encode}
    declared = declared_in(source)
    rules = Rules(
        encode, data.date_format, params.missing, params.splits_categories, declared, OF_EXPERIMENT, data.missing
    )
    claims = experiment.claims(list(columns))
    holders = {name for party in experiment.party if party.labels for name in claims.get(party.name, ())}
    settled = settle(source, cells, rules).of_feature_parties(but=holders)
    lost = [*missing_words(source, {name: columns[name] for name in encode}), *source.cleared(list(encode))]
    taken = _lines(experiment, source, settled, list(columns))
    print_words(terminal.err, *taken, *(f"{source}: {sentence}" for sentence in lost))
    for name in encode if data.id is None else ():
        if encode[name] == AUTO and may_identify(columns[name]):
            key = OF_EXPERIMENT.line("id", name)
            said = f"holds another number in each record. If it identifies records:\n    {key}  # in [data]"
            print_words(terminal.err, f"{source}: column {name!r} {said}")
    return settled


def _lines(experiment: ExperimentFile, source: Source, settled: Settled, names: Sequence[str]) -> list[str]:
    """What was taken for text and dates, as the lines that the parties' own files would need for the same, set in."""
    if not settled.taken:
        return []
    by_party = experiment.claims(names)
    claimed = {name for own in by_party.values() for name in own}
    rest = [party.name for party in experiment.party if party.columns is None and party.share == 1.0]
    by_party["".join(rest) or "columns by share"] = [name for name in settled.taken if name not in claimed]
    said = {name: settled.lines(columns=own) for name, own in by_party.items()}
    lines = ["\n    ".join([f"  {name}:", *own]) for name, own in said.items() if own]
    return [f"{source}: what text and dates were taken for, as a party's own file would say it:", *lines]


def time_ranks(origin: Origin, name: str, column: pa.ChunkedArray, date_format: str = ISO) -> Ints:
    """Each row's place by the time in a plain column (N,): numbers, dates, times with a date, or text of these.

    Rows of one time keep the order of the table.

    Raises:
        DataError: a cell is missing or no time, by its place, or the column has another type.
    """
    # text is numbers if its first cell is one
    if (
        date_format != ISO
        or is_date(column.type)
        or (is_text(column.type) and no_numbers(origin, [column[0].as_py() or ""]))
    ):
        moments = timestamps(origin, name, as_written(origin, name, column, None, date_format), date_format)
        absent, values = moments.is_null().to_numpy(), moments.cast(pa.int64()).fill_null(0).to_numpy()
    elif pa.types.is_integer(column.type):  # exact, as large ones are not in double precision
        absent, values = column.is_null().to_numpy(), column.fill_null(0).to_numpy()
    elif pa.types.is_boolean(column.type):
        raise DataError(f"{origin}: time column {name!r} holds bool; rows are ordered by numbers, dates or times")
    else:
        values = numbers_of(origin, name, column)
        absent = np.isnan(values)
    if np.any(absent):
        row = int(np.flatnonzero(absent)[0])
        raise DataError(f"{origin}: {row_name(origin, row)}, time column {name!r}: the cell is missing")
    ranks = np.empty(len(values), dtype=np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def time_ranks_in(experiment: ExperimentFile, source: Source, name: str, column: pa.ChunkedArray) -> Ints:
    """Each row's place by the time in a plain column, whose dates in text are detected as those of features are."""
    rules = Rules({name: DAYS}, experiment.data.date_format, None, False, writing=OF_EXPERIMENT)
    dated = settle(source, {name: Cells(source, column, len(column))}, rules).date_formats.get(name, ISO)
    return time_ranks(source, name, column, dated)


def noted(table: pa.Table, settled: Settled, coded: Sequence[str], orders: Mapping[str, Sequence[str]]) -> pa.Table:
    """The joined table with what was taken, for `encode_in`, what `codes_in` gives back, and what `ordered_in` does."""
    parts = ((_TAKEN, settled.taken), (_CODED, coded), (_ORDERS, orders))
    return table.replace_schema_metadata({key: json.dumps(part) for key, part in parts})


def ordered_in(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Some of the joined table's columns, those whose source orders their categories as dictionaries of that order."""
    orders = json.loads((table.schema.metadata or {}).get(_ORDERS, b"{}"))
    made = {name: table.column(name) for name in columns}
    for name in orders.keys() & made.keys():
        texts = category_texts(Path(), name, made[name], None)
        made[name] = texts.dictionary(list(dict.fromkeys([*orders[name], *texts.values()])), ordered=True)
    return pa.table(made)


def codes_in(table: pa.Table) -> list[str]:
    """The sentences about columns of the joined table that look like codes, or whose texts are taken for one."""
    said: list[str] = json.loads((table.schema.metadata or {}).get(_CODED, b"[]"))
    return said


def encode_in(
    experiment: ExperimentFile, table: pa.Table, party: PartyTable, columns: Sequence[str]
) -> str | dict[str, str] | None:
    """The encodings of these columns at a party, with what was taken when the joined table was read."""
    taken = json.loads((table.schema.metadata or {}).get(_TAKEN, b"{}"))
    return with_taken(experiment.encode(party, columns), columns, taken)


#: AUC of a column by itself from which it may be a leak, and from which it may with this share of the model's gain.
ALONE, BESIDE, SHARE = 0.99, 0.9, 0.8
#: Fewest records of each class by which a column is judged, and most records that are looked at.
FEWEST, MOST = 10, 50_000
#: Values up to which a column is ranked by its values' shares of the class, too.
VALUES = 256


def leaks(experiment: ExperimentFile, table: pa.Table, run: RunResult) -> list[str]:
    """Sentences about the columns of a run by which alone the label, of two classes, is ranked nearly at best."""
    labels = np.asarray(table.column(experiment.data.label).to_pylist(), dtype=object).astype(str)
    classes, numbers = np.unique(labels, return_inverse=True)
    if experiment.job.params().objective in REGRESSIONS or len(classes) != 2 or np.bincount(numbers).min() < FEWEST:
        return []
    rows = sampling.generator(0, "experiment data").permutation(len(numbers))[:MOST]
    truth, gains, named = numbers[rows] == 1, _gains(run), dict[str, str]()
    for party in experiment.party:
        names = [name for name in run.columns[party.name] if not is_tensor(table.column(name).type)]
        encode = text_as(CATEGORICAL, encode_in(experiment, table, party, names))
        columns, missing = {name: table.column(name) for name in names}, experiment.job.params().missing
        made = encoded(Path(experiment.data.title), columns, len(numbers), encode, None, missing)
        for name, values in zip(made.names, made.values[rows].T, strict=True):
            auc, hot = auc_alone(values, truth), made.categories[name].values if name in made.categories else []
            share = sum(gains[party.name, feature] for feature in {name, *one_hot_names(name, hot)})
            if auc >= ALONE or (auc >= BESIDE and share >= SHARE):
                most = "" if share < SHARE else f", and {SHARE:.0%} or more of the model's gain"
                named[name] = f"column {name!r} of {party.name} ranks the label by itself, with AUC {auc:.3f}{most}"
    drop = f"drop = {json.dumps([*experiment.data.drop, *named], ensure_ascii=False)}"
    remedy = f"If it is written after the outcome, name it under no party, and leave it out:\n    {drop}  # in [data]"
    return [f"{said}. {remedy}" for said in named.values()]


def auc_alone(values: Floats, truth: Bools) -> float:
    """The AUC by which a column (N,), NaN where missing, ranks the records of a class, in whichever direction.

    By its values, the missing ones before or behind all others; and by each value's share of the class among every
    other record, if values are few: the records come in a drawn order.
    """
    gone = np.isnan(values)
    ends = (-np.inf, np.inf) if gone.any() else (0.0,)
    ranked = [metrics.auc(np.where(gone, end, values), truth) for end in ends]
    different, codes = np.unique(values, return_inverse=True)
    if len(different) <= VALUES:
        odd = np.arange(len(values)) % 2 == 1
        halves = [metrics.auc(_shares(codes, truth, ~half)[half], truth[half]) for half in (odd, ~odd)]
        ranked.append(float(np.mean(halves)))
    return max((max(auc, 1 - auc) for auc in ranked if np.isfinite(auc)), default=0.5)


def _shares(codes: Ints, truth: Bools, known: Bools) -> Floats:
    """The share of the class among the known records of each record's value; a value that none has is as all are."""
    whole = np.bincount(codes[known], minlength=codes.max() + 1)
    own = np.bincount(codes[known & truth], minlength=codes.max() + 1)
    return np.asarray(((own + truth[known].mean()) / (whole + 1))[codes])


def _gains(run: RunResult) -> Counter[tuple[str, str]]:
    """Each feature's share of the model's gain, by party; none where no party keeps gains."""
    known = [row for row in run.importance if row.gain is not None]
    whole = sum(row.size for row in known) or 1.0
    return Counter({(row.party, row.feature): row.size / whole for row in known})
