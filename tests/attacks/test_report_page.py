"""A report's page and its pictures.

- The report as text: one file that fetches nothing, names that stay text, figures that are all there.
- Where things stand in the report's pictures: against places worked out by hand.
"""

from __future__ import annotations

import re
from functools import cache
from html import unescape
from html.parser import HTMLParser
from importlib import resources
from itertools import pairwise
from typing import Any

import pytest

from tests.attacks.documents import COLUMNS, made, printed
from tests.attacks.present import present
from treetap.attacks.document import Document, SeenTree
from treetap.attacks.registry import GROUPING
from treetap.attacks.report import bounds, labels, page, trees
from treetap.attacks.report.glossary import ATTACKS, KINDS, SOURCES, rank
from treetap.attacks.report.page import html
from treetap.errors import BadInput
from treetap.pages.pictures import Linear, Log, Matrix, spread
from treetap.pages.section import Section, Table
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
    policy = present(re.search(r'content="(default-src[^"]*)"', page))
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
            row = present(re.search(rf"<th scope=\"row\"><bdi>{kind}</bdi><small>.*?</tr>", page, re.DOTALL))
            assert f"<small>{messages:,} message" in row[0]


@pytest.mark.second_tier
@pytest.mark.campaign
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
    """Without labels, classes, attacks, parties or trees page and terminal say so; what is there is still shown."""
    document = made(**{"trees": 2, **options})
    assert sentence in unescape(html(document))
    assert sentence not in _ordinary()[1]
    said = " ".join(printed(document, 400))
    assert sentence in said or not document.trees
    assert "per node, not joint" in said


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


def _tree(*rows: tuple[int, str | None, int | None]) -> SeenTree:
    """A tree of (node, source, records)."""
    known = {node for node, source, _ in rows if source}
    content = [
        {
            "node": node,
            "depth": node.bit_length() - 1,
            "known": source is not None,
            "source": source,
            "records": records,
            "leaf": source is not None and not {2 * node, 2 * node + 1} & known,
            "feature": "age" if node == 3 else None,
            "threshold": 51.25 if node == 3 else None,
            "classes": None if records is None else [records - records // 4, records // 4],
        }
        for node, source, records in rows
    ]
    return SeenTree.model_validate({"tree": 0, "nodes": content})


SEEN = _tree(
    (1, "root", 100), (2, None, None), (3, "received", 60), (4, "received", 12), (5, None, None), (6, "own", 40)
)


def _drawn(document: Document, seen: SeenTree) -> tuple[trees.Tree, Table]:
    """The picture of a tree and the table below it."""
    picture, table = trees.draw(document, "lab-north", seen).parts
    assert isinstance(picture, trees.Tree)
    assert isinstance(table, Table)
    return picture, table


def _bounds(document: Document) -> tuple[list[bounds.Strip], list[Table]]:
    """The pictures of bounds, by size and by depth, and the tables below them."""
    grid, *tables = bounds.pictures(document, "lab-north", document.parties["lab-north"], 0.5)
    assert isinstance(grid, Section)
    strips = [part for part in grid.parts if isinstance(part, bounds.Strip)]
    return strips, [table for table in tables if isinstance(table, Table)]


def test_a_tree_shows_what_is_known_and_what_is_hidden() -> None:
    """Known nodes have their records, hidden ones none; the own split has its column and threshold."""
    drawn, table = _drawn(made(trees=1, records=100), SEEN)
    assert [(box.style, box.text) for box in drawn.boxes] == [
        *[("root", "100"), ("hidden", "hidden"), ("received", "60")],
        *[("received", "12"), ("hidden", "hidden"), ("own", "40")],
    ]
    assert [box.split for box in drawn.boxes] == ["", "", "age < 51.25", "", "", ""]
    assert [box.leaf for box in drawn.boxes] == [False, False, False, True, False, True]
    assert trees.draw(made(trees=1), "lab-north", SEEN).title == "Tree 0: 4 nodes known, 2 hidden"
    assert drawn.boxes[2].title == "node 3, received, 60 records (1: 45, 2: 15), own split age < 51.25"
    assert table.rows[2] == ["3", "1", "received", "60", "1: 45, 2: 15", "age < 51.25"]


def test_class_bars_fill_a_box() -> None:
    """Widths of classes are in their proportion and add up to the bar."""
    (first, second) = _drawn(made(trees=1), SEEN)[0].boxes[2].segments
    assert float(first[1]) == pytest.approx(3 * float(second[1]), abs=0.02)
    assert float(first[1]) + float(second[1]) == pytest.approx(trees.BOX - 6, abs=0.02)


def test_boxes_do_not_overlap() -> None:
    """In one column each box is clear of the next one and of the text below it; children lie right of parents."""
    for seen in made(trees=3, depth=6, records=2000).parties["insurer"].trees:
        drawn, _ = _drawn(made(trees=1), seen)
        columns: dict[str, list[float]] = {}
        for box in drawn.boxes:
            columns.setdefault(box.x, []).append(float(box.y))
        for ys in columns.values():
            gaps = [below - above for above, below in pairwise(sorted(ys))]
            assert min(gaps, default=99) >= trees.BOX_HEIGHT + 8
        assert max(float(box.y) for box in drawn.boxes) + trees.BOX_HEIGHT <= drawn.height


def test_a_tree_with_gaps_is_drawn() -> None:
    """A node whose parent is not listed hangs below its nearest ancestor that is."""
    drawn, _ = _drawn(made(trees=1), _tree((1, "root", 100), (12, "received", 9)))
    assert len(drawn.links) == 1
    assert len(drawn.boxes) == 2


def test_long_names_of_columns_keep_their_thresholds() -> None:
    """A picture shortens the name, never the threshold; the table has both whole."""
    content = SEEN.model_dump()
    content["nodes"][2]["feature"] = "a-name-that-is-much-too-long-for-a-picture"
    drawn, table = _drawn(made(trees=1), SeenTree.model_validate(content))
    assert drawn.boxes[2].split == "a-name-that-i… < 51.25"
    assert table.rows[2][-1] == "a-name-that-is-much-too-long-for-a-picture < 51.25"


def _points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"M([-\d.]+) ([-\d.]+)", path)]


def _bounded(*rows: tuple[int, int, float]) -> Document:
    """A document whose one party has these bounds: (node, records, nats)."""
    content = made(parties=1, trees=1).plain()
    content["parties"]["lab-north"]["bounds"] = [
        {"tree": 0, "node": node, "depth": node.bit_length() - 1, "records": records, "source": "received"}
        | {"nats": nats, "node_nats": nats, "complement_nats": 0.0}
        for node, records, nats in rows
    ]
    return Document.model_validate(content)


def test_bounds_stand_where_size_and_depth_say() -> None:
    """Ten times the records is always the same step to the right; more nats is higher; deeper is further right."""
    document = _bounded((2, 9, 0.1), (3, 90, 0.2), (4, 900, 0.4))
    (by_size, by_depth), (depths, top) = _bounds(document)
    (path,) = by_size.clouds.values()
    (a, b, c) = sorted(_points(path))
    assert b[0] - a[0] == pytest.approx(c[0] - b[0], abs=0.11)
    assert a[1] - b[1] == pytest.approx((b[1] - c[1]) / 2, abs=0.2)
    (deep,) = by_depth.clouds.values()
    by_height = sorted(_points(deep), key=lambda it: -it[1])
    assert max(by_height[0][0], by_height[1][0]) < by_height[2][0]
    assert top.rows[0][:5] == ["0", "4", "2", "900", "received"]
    assert [row[:3] for row in depths.rows] == [["1", "2", "2"], ["2", "1", "1"]]


def test_points_that_coincide_are_drawn_once() -> None:
    """Thousands of equal bounds cost one point, and are counted in the table all the same."""
    document = _bounded(*((node, 50, 0.25) for node in range(1024, 2048)))
    (by_size, _), (depths, _) = _bounds(document)
    assert len(_points(by_size.clouds["received"])) == 1
    assert depths.rows[0][1] == "1,024"


def test_cl_is_a_level_line_and_others_have_their_course() -> None:
    """CL looks at no tree; a course that was not computed is its end alone, a gap is a gap."""
    content = made(parties=1, trees=4).plain()
    results = content["parties"]["lab-north"]["attacks"]
    results["cl"] |= {"v_measure": 0.25, "by_tree": None}
    results["uni"] |= {"v_measure": 0.5, "by_tree": None}
    results["id2graph"] |= {"v_measure": 0.75, "by_tree": [0.25, None, 0.5, 0.75]}
    document = Document.model_validate(content)
    found = present(labels.curves(document, "lab-north", document.parties["lab-north"], 1.0))
    paths = {curve.label: curve.path for curve in found.curves}
    level = re.findall(r"[ML][\d.]+ ([\d.]+)", paths["CL"])
    assert len(level) == 4
    assert len(set(level)) == 1
    assert paths["UNI"].count("M") == 1
    assert "L" not in paths["UNI"]
    assert re.sub(r"[\d. ]", "", paths["ID2Graph"]) == "MML"
    assert [row[found.table.heads.index("ID2Graph")] for row in found.table.rows] == ["0.250", "–", "0.500", "0.750"]


def test_information_is_a_share_of_the_entropy() -> None:
    """The signature's last point stands at information ÷ label entropy."""
    document = made(parties=1, trees=2)
    party = document.parties["lab-north"]
    found = present(bounds.joint(document, "lab-north", party))
    information, entropy = present(party.signature.mutual_information), present(party.signature.label_entropy)
    end = float(found.curves[-1].end[1])
    assert (found.frame.y_end - end) / (found.frame.y_end - found.frame.top) == pytest.approx(
        information / entropy, abs=0.001
    )


def test_who_is_counted_by_whose_transcript() -> None:
    """Feature parties by what they received; others by what feature parties recorded that they sent."""
    document = made(trees=2)
    found = page.amounts(document)
    assert list(found) == ["lab-north", "insurer", "clinic"]
    sent = [row for party in document.parties.values() for row in party.sent if row.disclosure == "CANDIDATE_SUM"]
    assert found["clinic"]["CANDIDATE_SUM"] == (sum(row.messages for row in sent), sum(row.bytes for row in sent))
    (matrix,) = (part for part in page.learned(document).parts if isinstance(part, Matrix))
    assert matrix.columns == ["lab-north", "insurer", "clinic *"]


def test_ticks_are_round() -> None:
    """Multiples of 1, 2 or 5, within the axis; powers of ten on a logarithmic one."""
    assert [tick.label for tick in Linear(0, 1, 0, 100).ticks()] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert [tick.label for tick in Linear(1, 3, 0, 100, whole=True).ticks()] == ["1", "2", "3"]
    assert [tick.label for tick in Log(8, 120_000, 0, 100).ticks()] == ["10", "100", "1,000", "10,000", "100,000"]
    assert [(tick.at, tick.label) for tick in Linear(1, 1, 0, 100).ticks()] == [("50", "1")]


def test_labels_are_spread() -> None:
    """Labels keep their order and their distance and stay within the picture."""
    placed = spread([50.0, 50.0, 51.0, 98.0, 99.0], 10, 0, 100)
    gaps = [after - before for before, after in pairwise(placed)]
    assert min(gaps) >= 10
    assert placed[-1] <= 100
