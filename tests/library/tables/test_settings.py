"""Settings of a table that cannot be: each is refused by its key, before a file is opened, and never with a secret."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from treetap.strict import faults_of
from treetap.tables.config import TableConfig

_ONE = "give either path, or uri with query or table"
_CLINIC = {"path": None, "uri": "$CLINIC"}
FAULTS: list[tuple[dict[str, Any], str]] = [
    # where the table is
    ({"path": None}, _ONE),
    ({"uri": "$CLINIC", "table": "t"}, _ONE),
    ({"path": 3}, "path: a path is text (it is 3)"),
    ({"path": ""}, "path: a path is text (it is '')"),
    ({"path": []}, "path: names no file (it is [])"),
    ({"path": ["a", "s3://b"]}, "path: a path in an object store is written s3://BUCKET/KEY"),
    ({"endpoint_override": "http://127.0.0.1:9000"}, "no path begins with s3://"),
    ({"path": "s3://b/k", "endpoint_override": "http://u:geheim@h"}, "endpoint_override: is http://HOST:PORT or"),
    # databases
    (_CLINIC, "give one of query"),
    (_CLINIC | {"table": "t", "query": "SELECT 1"}, "give one of query"),
    ({"table": "t"}, "query and table are of a database, whose uri is missing"),
    ({"path": None, "uri": "postgresql://u:geheim@h/d", "table": "t"}, "uri: is the name of an environment variable"),
    (_CLINIC | {"table": "t", "decimal": ","}, "decimal is a key of files, and uri of a database"),
    (_CLINIC | {"table": "t", "deadline_s": 0}, "deadline_s: Input should be greater than 0"),
    ({"deadline_s": 3.0}, "deadline_s is of a database, whose uri is missing"),
    # how a file is written
    ({"format": "xlsx"}, "format: Input should be 'csv', 'parquet', 'feather' or 'jsonl'"),
    ({"format": "parquet", "decimal": ","}, "decimal is a key of CSV"),
    ({"delimiter": ";;"}, "delimiter: is one character of ASCII"),
    ({"decimal": ";"}, "decimal: Input should be '.' or ','"),
    ({"thousands": "x"}, "thousands: is , . ' _ or a space, or empty where there is none (it is 'x')"),
    ({"decimal": ",", "thousands": ","}, "thousands and decimal are both ','"),
    ({"thousands": "."}, 'write decimal = "," too'),
    ({"encoding": "klingon"}, "encoding: is no encoding of text"),
    ({"encoding": "hex"}, "encoding: is no encoding of text"),
    ({"quote": "ab"}, "quote: is one character of ASCII, or empty"),
    ({"quote": ";", "delimiter": ";"}, "delimiter and quote are both ';'"),
    # columns
    ({"id": ["name", "name"]}, "id names 'name' twice"),
    ({"id": []}, "is a column, a list of columns"),
    ({"id": ["name", "a"]}, "column 'a' is the id or the label"),
    ({"id": ["name", "born"], "label": "born"}, "column 'born' cannot be both the id and the label"),
    ({"columns": ["w"], "label": "y", "weight": "w"}, "column 'w' is the id or the label or the weight"),
    ({"label": "w", "weight": "w"}, "column 'w' cannot be both the weight and the id or the label"),
    ({"id": "w", "label": "y", "weight": "w"}, "column 'w' cannot be both the weight and the id or the label"),
    ({"weight": "w"}, "weight names a column of the label holder's table, and this one has no label"),
    # encodings
    (
        {"encode": "onehot"},
        "'onehot' is no encoding: write 'ordinal', 'one-hot', 'days', 'categorical' or 'auto', or a table with one",
    ),
    ({"encode": {"a": "date"}}, "'date' is no encoding"),
    ({"encode": 3}, "3 is no encoding"),
    ({"encode": {"b": "days"}}, "encode names 'b', which is none of the table's columns"),
    ({"date_format": "%d.%m"}, "'%d.%m' has no year and month"),
    ({"date_format": "dd.mm.yyyy"}, "'dd.mm.yyyy' has no year and month: write one such as"),
    ({"date_format": "%d.%m.%Q"}, "has %Q, which is none of %Y"),
    ({"date_format": "%d.%d.%Y"}, "has a directive twice"),
    ({"date_format": "%d.%m.%Y %H:%M %p"}, "has %p, which goes with %I"),
    ({"date_format": {"e": "%d.%m.%Y"}}, "date_format names 'e', which is none of the table's columns"),
    ({"date_format": 3}, "a format of dates is text"),
    # cuts and constraints
    ({"cuts": {"A": [1]}}, "cuts names 'A', which is none of the feature columns; did you mean 'a'"),
    ({"cuts": {"id": [1]}}, "cuts names 'id', which is none of the feature columns"),
    ({"cuts": {"a": [2, 1]}}, "has the cut 1 behind 2: list each once, in increasing order"),
    ({"cuts": {"a": [1, 1]}}, "has the cut 1 behind 1"),
    ({"cuts": {"a": [1, math.inf]}}, "has the cut inf: write finite numbers"),
    ({"cuts": {"a": [math.nan]}}, "has the cut nan: write finite numbers"),
    ({"cuts": {"a": []}}, "at least 1 item"),
    ({"cuts": {"a": ["x"]}}, "valid number"),
    (
        {"monotone_constraints": {"A": 1}},
        "monotone_constraints names 'A', which is none of the table's columns; did you mean 'a'",
    ),
    (
        {"monotone_constraints": {"a": 2}},
        "must be 1 (increasing) or -1 (decreasing), not 2; leave out a column without one",
    ),
    ({"monotone_constraints": {"a": True}}, "must be 1 (increasing) or -1 (decreasing), not True"),
    # keys of other libraries
    ({"id_column": "x"}, "id_column: unknown key; did you mean 'id'?"),
    ({"parse_dates": "x"}, "parse_dates: unknown key; did you mean 'date_format'?"),
    ({"target": "x"}, "target: unknown key; did you mean 'label'?"),
    ({"encod": "x"}, "encod: unknown key; did you mean 'encode'?"),
]


@pytest.mark.parametrize(("given", "said"), FAULTS)
def test_settings_that_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TableConfig.model_validate({"path": Path("t.csv"), "id": "id", "columns": ["a"], **given})
    lines = "\n".join(faults_of(refused.value, TableConfig))
    assert said in lines
    assert "geheim" not in lines
