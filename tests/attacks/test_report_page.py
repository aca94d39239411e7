"""The report as text: one file that fetches nothing, names that stay text, figures that are all there."""

from __future__ import annotations

import re
from functools import cache
from html import unescape
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest

from tests.attacks.documents import COLUMNS, made
from treetap.attacks.document import Document, parse
from treetap.attacks.registry import GROUPING
from treetap.attacks.report import html, trees
from treetap.attacks.report.glossary import ATTACKS, KINDS, SOURCES, rank
from treetap.errors import BadInput
from treetap.wire.disclosure import CLASSES

HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=https://example.org/x onerror=alert(1)>",
    "</style><style>*{display:none}</style>",
    "{{ 7 * 7 }}{% raw %}<!--",
    "]]></svg><a href='javascript:alert(1)'>",
]


class _Reader(HTMLParser):
    """Every element with its attributes' names, every address, all text by kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.addresses: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@cache
def _ordinary() -> tuple[Document, str]:
    document = made(trees=3)
    return document, html(document.plain())


@cache
def _large() -> tuple[Document, str]:
    document = made(parties=10, trees=100, depth=6, records=1200)
    return document, html(document)


def test_nothing_is_fetched() -> None:
    """No address but places of this page, no import, no font, no image; the policy in the page forbids them as well."""
    page = _ordinary()[1]
    assert {it[0] for it in _Reader(page).addresses if it != "data:,"} == {"#"}
    policy = re.search(r'content="(default-src[^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    rest = page.replace(policy[1], "")
    assert re.findall(r"https?:|//|@import|url\(|@font-face|<iframe|<object|<embed", rest) == []


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("evil", HOSTILE)
def test_hostile_names_stay_text(evil: str) -> None:
    """Names change the text of the page and nothing else: elements and attributes are those of harmless names."""
    pages = []
    for name in ("harmless", evil):
        content = made(trees=2, parties=[name], columns=[name, *COLUMNS]).plain()
        content |= {"job": name, "label_holder": name, "treetap": name}
        party = content["parties"][name]
        party |= {"transcript": name, "faults": [name]}
        party["attacks"]["id2graph"]["parameters"] = {name: name}
        for row in content["traffic"]:
            row["step"] = name
        pages.append(_Reader(html(content)))
    harmless, hostile = pages
    assert hostile.elements == harmless.elements
    assert len(hostile.addresses) == len(harmless.addresses)
    assert sum(text.count(evil) for text in hostile.text) >= 10


def test_all_scores_are_in_the_table() -> None:
    """Every score of every attack of every party, to three decimals."""
    document, page = _ordinary()
    for party in document.parties.values():
        for it in party.attacks.values():
            for value in (it.v_measure, it.homogeneity, it.completeness, it.ari, it.nmi, it.accuracy):
                assert f"{value:.3f}<" in page


def test_bytes_and_messages_of_each_class() -> None:
    """The matrix has what a transcript counts, added up over senders and steps."""
    document, page = _ordinary()
    for party in document.parties.values():
        for kind in {row.disclosure for row in party.received}:
            messages = sum(row.messages for row in party.received if row.disclosure == kind)
            row = re.search(rf"<th scope=\"row\"><bdi>{kind}</bdi><small>.*?</tr>", page, re.DOTALL)
            assert row is not None
            assert f"<small>{messages:,} message" in row[0]


@pytest.mark.second_tier
def test_a_large_job_is_a_small_file() -> None:
    """Ten parties, a hundred trees of depth 6: below 4 MB, and the page says how many trees it draws."""
    document, page = _large()
    assert len(page.encode()) < 4_000_000
    assert all(f"<bdi>{name}</bdi>" in page for name in document.parties)
    drawn = trees.choose(document)
    assert all(1 <= len(found) < 100 for found in drawn.values())
    assert page.count(" of 100 trees are drawn") == 10
    assert page.count('<svg class="tree"') == sum(map(len, drawn.values()))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"labelled": False}, "No labels were given, so nothing is scored"),
        ({"classes": None}, "The label is a number, not a class (regression)"),
        ({"attacks": False}, "No attack was run on the view of"),
        ({"parties": 0}, "No feature party's transcript is at hand"),
        ({"trees": 0}, "saw no complete tree"),
    ],
)
def test_what_is_missing_is_said(options: dict[str, Any], sentence: str) -> None:
    """Without labels, classes, attacks, parties or trees the page says so."""
    page = unescape(html(made(**{"trees": 2, **options})))
    assert sentence in page
    assert sentence not in _ordinary()[1]


def test_without_labels_no_figure_needs_one() -> None:
    """No bound, no curve of V-measure, no class colour; traffic and trees are there."""
    page = html(made(trees=2, labelled=False))
    assert "label entropy 0" not in page
    assert "V-measure by number of trees" not in page
    assert 'class="c0"' not in page
    assert page.count('<svg class="tree"') == 4


def test_faults_of_a_transcript_come_first() -> None:
    """What a reader of any figure must know stands before the figures."""
    content = made(trees=1, parties=1).plain()
    content["parties"]["lab-north"]["faults"] = ["the last record is torn"]
    page = html(content)
    assert page.index("the last record is torn") < page.index("At a glance</h2>")


def test_an_unknown_field_is_named() -> None:
    """A field that this version does not know, or a figure of the wrong type, is bad input: path and reason."""
    content = made(trees=1, parties=1).plain()
    content["parties"]["lab-north"]["attacks"]["cl"]["purity"] = 0.5
    content["traffic"][0]["class"] = "GOSSIP"
    content["records"] = -1
    with pytest.raises(BadInput) as refused:
        html(content)
    for part in ("parties.lab-north.attacks.cl.purity", "traffic.0.class: ", "'GOSSIP'", "records: "):
        assert part in str(refused.value)


def test_a_document_survives_its_json() -> None:
    """What `plain` writes, `parse` reads."""
    document = made(trees=2, classes=3)
    assert parse(document.plain()) == document
    assert {"class", "from", "to", "step", "messages", "bytes"} == document.plain()["traffic"][0].keys()


def test_words_for_everything() -> None:
    """Every kind of disclosure class, attack and source that can occur has a name and an explanation."""
    assert {it.kind for it in CLASSES.values()} == set(KINDS)
    ranked = [CLASSES[name].kind for name in sorted(CLASSES, key=rank)]
    assert list(dict.fromkeys(ranked)) == list(KINDS)
    assert len(ranked) == len({rank(name) for name in CLASSES})
    assert set(ATTACKS) == set(GROUPING)
    assert set(SOURCES) == {"received", "own", "difference"}


def test_pictures_and_tables_have_names() -> None:
    """A screen reader hears what each picture and each scrolling table is; every table has heads."""
    page = _ordinary()[1]
    pictures = re.findall(r"<svg[^>]*>", page)
    assert pictures
    assert all('aria-hidden="true"' in it or re.search(r'role="img" aria-label="[^"]{8,}"', it) for it in pictures)
    assert all(re.search(r'aria-label="[^"]{8,}"', it) for it in re.findall(r'<div class="scroll"[^>]*>', page))
    assert page.count("<table") == page.count("<thead>")


def _luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast(scheme: int) -> None:
    """Text and all colours that name something stand out by 4.5 to 1, or 3 to 1 where they only mark (WCAG 2.2)."""
    style = (resources.files("treetap.pages") / "templates" / "style.css").read_text(encoding="utf-8")
    block = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", block))
    marks = {"received", "difference", "root", "hidden", "open", "sealed", "plain"}
    grounds = {"ground", "panel", "faint", "line"}
    for name in colours.keys() - grounds:
        pair = sorted((_luminance(colours[name]), _luminance(colours["panel"])))
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= (3 if name in marks else 4.5), name
