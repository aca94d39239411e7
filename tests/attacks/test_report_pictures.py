"""Where things stand in the report's pictures: against places worked out by hand."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from tests.attacks.documents import made
from treetap.attacks.document import Document, SeenTree
from treetap.attacks.report import bounds, labels, page, trees
from treetap.pages.pictures import Linear, Log, Matrix, spread
from treetap.pages.section import Section, Table


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
    found = labels.curves(document, "lab-north", document.parties["lab-north"], 1.0)
    assert found is not None
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
    found = bounds.joint(document, "lab-north", party)
    assert found is not None
    information, entropy = party.signature.mutual_information, party.signature.label_entropy
    assert information is not None
    assert entropy is not None
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
