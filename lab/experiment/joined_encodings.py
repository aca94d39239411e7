"""The encodings of the joined table's columns: taken once for all runs, and said as the parties' own files would."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa

from treetap import terminal
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.file_tables import PartyTable
from treetap.lab.experiment.held_out import Rows, time_ranks
from treetap.tables.asked_columns import OF_EXPERIMENT
from treetap.tables.auto_encoding import Cells, Rules, Settled, declared_in, may_identify, settle
from treetap.tables.config import AUTO, DAYS, TableConfig, encoding_of, with_taken
from treetap.tables.date_formats import ISO
from treetap.tables.opening import missing_words
from treetap.tables.source import Source
from treetap.tables.tensors import is_tensor

#: Entries of the joined table's metadata: the encodings that `AUTO` took, by column; sentences about codes.
_TAKEN, _CODED = b"taken", b"coded"


def settled_in(
    experiment: ExperimentFile, source: Source, configs: Sequence[TableConfig], columns: Mapping[str, pa.ChunkedArray]
) -> Settled:
    """The encodings that `AUTO` takes for columns that some party gets, and the formats of their dates; says them.

    `DataError` names all columns that need a word.
    """
    data, params, encode = experiment.data, experiment.job.params(), dict[str, str]()
    for config in configs:
        for name in config.columns:
            own = encoding_of(config.encode, name)
            if own is not None and encode.get(name) != AUTO and not is_tensor(columns[name].type):
                encode[name] = own
    cells = {name: Cells(source, columns[name], len(columns[name])) for name in encode}
    declared = declared_in(source)
    rules = Rules(
        encode, data.date_format, params.missing, params.splits_categories, declared, OF_EXPERIMENT, data.missing
    )
    settled = settle(source, cells, rules)
    lost = [*missing_words(source, {name: columns[name] for name in encode}), *source.cleared(list(encode))]
    for line in (*_lines(experiment, source, settled, list(columns)), *(f"{source}: {sentence}" for sentence in lost)):
        terminal.err.print(terminal.text(line), soft_wrap=True)
    for name in encode if data.id is None else ():
        if encode[name] == AUTO and may_identify(columns[name]):
            key = OF_EXPERIMENT.line("id", name)
            said = f"{source}: column {name!r} holds another number in each record: if it identifies records, {key}"
            terminal.err.print(terminal.text(said), soft_wrap=True)
    return settled


def _lines(experiment: ExperimentFile, source: Source, settled: Settled, names: Sequence[str]) -> list[str]:
    """What was taken for text and dates, as the lines that the parties' own files would need for the same."""
    if not settled.taken:
        return []
    by_party = experiment.claims(names)
    claimed = {name for own in by_party.values() for name in own}
    rest = [party.name for party in experiment.party if party.columns is None and party.share == 1.0]
    by_party["".join(rest) or "columns by share"] = [name for name in settled.taken if name not in claimed]
    lines = [f'{source}: encode = "{AUTO}" took text and dates so, as a party\'s own file would say it:']
    return lines + [f"  {name}: {line}" for name, own in by_party.items() for line in settled.lines(columns=own)]


def time_ranks_in(experiment: ExperimentFile, source: Source, name: str, column: pa.ChunkedArray) -> Rows:
    """Each row's place by the time in a plain column, whose dates in text are detected as those of features are."""
    rules = Rules({name: DAYS}, experiment.data.date_format, None, False, writing=OF_EXPERIMENT)
    dated = settle(source, {name: Cells(source, column, len(column))}, rules).date_formats.get(name, ISO)
    return time_ranks(source, name, column, dated)


def noted(table: pa.Table, settled: Settled, coded: Sequence[str]) -> pa.Table:
    """The joined table with what was taken, for `encode_in`, and what `codes_in` gives back."""
    return table.replace_schema_metadata({_TAKEN: json.dumps(settled.taken), _CODED: json.dumps(coded)})


def codes_in(table: pa.Table) -> list[str]:
    """The sentences about columns of the joined table that look like codes."""
    said: list[str] = json.loads((table.schema.metadata or {}).get(_CODED, b"[]"))
    return said


def encode_in(
    experiment: ExperimentFile, table: pa.Table, party: PartyTable, columns: Sequence[str]
) -> str | dict[str, str] | None:
    """The encodings of these columns at a party, with what was taken when the joined table was read."""
    taken = json.loads((table.schema.metadata or {}).get(_TAKEN, b"{}"))
    return with_taken(experiment.encode(party, columns), columns, taken)
