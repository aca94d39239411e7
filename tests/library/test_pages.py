"""The kit of pages: places of dots and lines worked out by hand, and a frame that runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from tests.attacks.documents import made
from tests.commands.experiment_documents import experiment, run
from treetap.attacks.report.page import html
from treetap.lab.experiment.page import html as experiment_html
from treetap.pages.pictures import LABELS, LEFT, LINES, Frame, dots, heat, lines, percent
from treetap.pages.section import DOTS, DOTS_MARGIN, Table


def test_dots_stand_where_their_figures_say() -> None:
    """0 and 1 at the ends of the line, a figure that is not known nowhere, the last one on top."""
    placed = dots([("cl", 0.0), ("own", None), ("graph", 1.0)], limit=0.5)
    assert placed.dots == [("cl", str(DOTS_MARGIN)), ("graph", str(DOTS - DOTS_MARGIN))]
    assert (placed.start, placed.end, placed.limit) == ("6", "234", "120")


def test_lines_end_at_their_last_figure() -> None:
    """A gap is no end, and labels of two rows keep the distance of two rows."""
    series = {("one", "cl"): [0.5, None, 0.5], ("other", "graph"): [0.5, 0.5, None]}
    drawn = lines(series, Table(["k"], []), ("k", "V"), "", "", rows=2)
    first, second = drawn.curves
    right = LINES[0] - LABELS
    assert (first.end[0], second.end[0]) == (str(right), f"{LEFT + (right - LEFT) / 2:g}")
    assert first.path.count("M") == 2
    assert abs(float(first.label_y) - float(second.label_y)) >= 30


def test_frames_and_bars() -> None:
    """An axis from its least to its largest figure; the strongest colour and the longest bar are the largest one's."""
    frame = Frame.linear((440, 300), (10, 20), (0, 1), ("x", "y"))
    assert (frame.x(10), frame.x(20), frame.y(0), frame.y(1)) == (LEFT, frame.x_end, frame.y_end, frame.top)
    assert (heat(0, 9), heat(9, 9), heat(0, 0)) == ("0.00", "1.00", "0.00")
    assert (percent(1, 4), percent(4, 4), percent(0, 0)) == ("25.00", "100.00", "0")


@pytest.mark.parametrize(
    "page", [html(made(trees=1)), experiment_html(experiment(), "exp", [run(0)])], ids=["audit", "experiment"]
)
def test_a_page_runs_its_own_script_alone(page: str) -> None:
    """The policy names the digest of the one script."""
    found = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in found]
    assert len(found) == 1
    assert re.findall(r"script-src 'sha256-([^']*)'", page) == digests
    assert page.count("default-src 'none'") == 1
