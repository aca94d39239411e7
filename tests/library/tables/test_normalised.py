"""Rules of ids: what they make of texts, in every way in, and what they refuse."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from treetap.errors import DataError
from treetap.tables.config import TableConfig
from treetap.tables.normalised import checked, joined_id, normaliser, rules_of
from treetap.tables.reading import read_ids, read_table
from treetap.tables.record_ids import sorted_keys

PATH = Path("own.csv")
WORDS = ("nfkc", "casefold", "strip", "digits")


def of(*words: str) -> tuple[str, ...]:
    """The rules of one column."""
    return rules_of(["id"], checked(list(words)))


@pytest.mark.parametrize(
    ("words", "texts", "made"),
    [
        (["casefold"], ["MASSE", "Maße", "masse", " Masse "], "masse"),
        (["nfkc"], ["caf\u00e9", "cafe\u0301"], "caf\u00e9"),
        (["nfkc", "casefold"], ["ＡＢ１２", "ab12", "Ab１2"], "ab12"),
        (["nfkc"], ["ﬁx", "fix"], "fix"),
        (["nfkc", "casefold"], ["\u01f0", "J\u030c", "j\u030c"], "\u01f0"),
        (["nfkc", "digits"], ["１２３", "123", "①２３", "no. 1-2-3"], "123"),
        (["digits"], ["١٢٣", "१२३", "x1 2.3"], "123"),
        (["strip"], ["\ufeffa b\u200b", "\u00a0a b\u2003", "a b\x00"], "a b"),
        ([], [" a "], "a"),
        # Turkish letters are those of no language in particular: I is i, the dotless one stays another
        (["casefold"], ["ISPARTA", "isparta"], "isparta"),
        (["casefold"], ["ısparta"], "ısparta"),
        (["casefold", "nfkc"], ["İZMİR", "i\u0307zmi\u0307r"], "i\u0307zmi\u0307r"),
    ],
)
def test_texts_of_one_customer_become_one_id(words: list[str], texts: list[str], made: str) -> None:
    for text in texts:
        ids, _ = sorted_keys(PATH, {"id": pa.chunked_array([[text]])}, of(*words))
        assert list(ids) == [made]


@pytest.mark.parametrize(
    ("words", "texts", "made"),
    [
        (["e164:DE"], ["+49 30 123456", "0049 (30) 12 34 56", "030/123456", "+49(0)30-123456"], "+4930123456"),
        (["digits", "e164:DE"], ["030 123456", "+49 30 123456", "0049 30 123456"], "4930123456"),
        (["e164:DE", "nfkc"], ["０３０ １２３４５６"], "+4930123456"),
        (["e164:DE"], ["+33 1 23 45 67 89"], "+33123456789"),
        (["e164:FR"], ["01 23 45 67 89", "0033123456789"], "+33123456789"),
        (["e164:IT"], ["06 1234567", "+39 06 1234567"], "+39061234567"),
        (["e164:DE"], ["none", "", "7", "tel."], ""),
    ],
)
def test_telephone_numbers(words: list[str], texts: list[str], made: str) -> None:
    """With the country's prefix, the international one or a plus; in whatever order the rules are listed."""
    pytest.importorskip("phonenumbers")
    assert {normaliser(of(*words))(text) for text in texts} == {made}


def test_a_country_that_is_none() -> None:
    pytest.importorskip("phonenumbers")
    with pytest.raises(DataError, match="e164:XX: phonenumbers knows no such country"):
        normaliser(of("e164:XX"))


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """When a table is read, not when its settings are."""
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    normaliser.cache_clear()
    with pytest.raises(DataError, match=r"e164:DE needs phonenumbers: .*pip install .*\[phone\]"):
        sorted_keys(PATH, {"id": pa.chunked_array([["1"]])}, of("e164:DE"))


@given(st.lists(st.sampled_from(WORDS), unique=True), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
def test_rules_made_twice_change_nothing_more(words: list[str], text: str) -> None:
    """So an id that was written by the rules, in a file of predictions, is the same id again."""
    rule = normaliser(of(*words)) if words else str
    assert rule(rule(text)) == rule(text)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["casefold", "Strip"], "'Strip' is no rule: write some of 'nfkc', .*did you mean 'strip'"),
        (["soundex"], "'soundex' is no rule.*ids are equal or not, and no rule takes similar ones for one"),
        (["e164:de"], "'e164:de' is no rule.*did you mean 'e164:CC'"),
        (["e164:DE", "e164:AT"], "lists e164 twice"),
        ("strip", "is a list of rules"),
        ({"phne": ["digits"]}, "names 'phne', which is no id column; did you mean 'phone'"),
        ({"phone": "digits"}, "is a list of rules"),
    ],
)
def test_settings_that_are_refused(given: Any, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        TableConfig(path=PATH, id="phone", normalise=given)


def test_a_normalised_table(tmp_path: Path) -> None:
    """Equal ids after the rules are refused or kept by `duplicates`, empty ones refused, by rows alone."""
    path = tmp_path / "t.csv"
    path.write_text("who,x\nAnn,1\nbob,2\n ann,3\nBOB,4\n")
    config = TableConfig(path=path, id="who", columns=["x"], normalise=["casefold"])
    said = r"line 4, column 'who' \(normalise = \['casefold'\]\): the id is there already, at line 2; 2 ids are there"
    with pytest.raises(DataError, match=said) as refused:
        read_table(config, with_label=False, missing=None)
    assert "nn" not in str(refused.value).partition("the id is")[2].partition("duplicates")[0]
    last = read_table(config.model_copy(update={"duplicates": "last"}), with_label=False, missing=None)
    assert (list(last.ids), last.features.ravel().tolist(), last.ids.rules) == (["ann", "bob"], [3, 4], ("casefold",))
    with pytest.raises(
        DataError, match=r"line 2, column 'who': normalise = \['digits'\] leaves nothing of the id, nor"
    ):
        read_table(config.model_copy(update={"normalise": ["digits"]}), with_label=False, missing=None)


def test_ids_of_several_columns_and_of_files(tmp_path: Path) -> None:
    """Each column has its own rules; an id of a file is that of the table, and another form is no id."""
    path, lines = tmp_path / "t.csv", tmp_path / "ids.txt"
    path.write_text("name,nr,x\nAnn, 0-7,1\nBob,08,2\n")
    config = TableConfig(
        path=path, id=["name", "nr"], columns=["x"], normalise={"name": ["casefold"], "nr": ["digits"]}
    )
    table = read_table(config, with_label=False, missing=None)
    assert list(table.ids) == [joined_id(["ann", "07"]), joined_id(["bob", "08"])]
    assert [column.to_pylist() for column in table.id_columns.at(table.rows)] == [["ann", "bob"], ["07", "08"]]
    lines.write_text("3:ANN3:0-7\n3:Bob\n9:x2:08\n")
    assert table.ids.places_of(read_ids(lines, table.ids.rules)).tolist() == [0, -1, -1]
    lines.write_text("3:ANN2:07\n3:ann3:0-7\n")
    with pytest.raises(DataError, match=r"row 2, column 'id' .*: the id is there already, at row 1"):
        read_ids(lines, table.ids.rules)
