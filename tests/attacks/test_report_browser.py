"""The report in a real browser: it loads without a complaint, and its pictures show something."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.browser import BROKEN, OVERLAPS, Browser, found
from tests.attacks.documents import made
from tests.attacks.sums_documents import both_directions, figures
from treetap.attacks.advice.advise import AdvisedJob, advise
from treetap.attacks.advice.names import Guessed
from treetap.attacks.document import Document
from treetap.attacks.report.page import html

pytestmark = [
    pytest.mark.second_tier,
    pytest.mark.skipif(found() is None, reason="no Chromium on this machine: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
]

#: Places of all pictures that are shown, in the document's pixels.
BOXES = """[...document.querySelectorAll("svg")].filter(it => it.checkVisibility()).map(it => {
  const box = it.getBoundingClientRect();
  return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height, role: it.getAttribute("role")};
})"""
#: Texts of pictures that reach out of their picture by more than a pixel.
OUTSIDE = """[...document.querySelectorAll("svg text")].filter(it => it.checkVisibility()).filter(it => {
  const text = it.getBoundingClientRect(), box = it.ownerSVGElement.getBoundingClientRect();
  return text.left < box.left - 1 || text.right > box.right + 1
    || text.top < box.top - 1 || text.bottom > box.bottom + 1;
}).map(it => it.textContent)"""
#: Texts of splits that a box covers.
COVERED = """[...document.querySelectorAll(".tree text.split")].filter(it => it.checkVisibility()).filter(it => {
  const text = it.getBoundingClientRect();
  return [...it.ownerSVGElement.querySelectorAll(".box")].map(box => box.getBoundingClientRect()).some(
    box => text.left < box.right && box.left < text.right && text.top + 2 < box.bottom && box.top < text.bottom - 2);
}).map(it => it.textContent)"""
#: What can be scrolled sideways and does not say so, what says so and cannot, how many say so, what leaves the page.
SIDEWAYS = """(async () => {
  document.querySelectorAll("details").forEach(it => { it.open = true; });
  for (let k = 0; k < 2; k++) await new Promise(requestAnimationFrame);
  const every = [...document.querySelectorAll("body *")];
  const shown = every.filter(it => it.checkVisibility() && !it.closest(".cards thead, .bars thead"));
  const wider = shown.filter(it => getComputedStyle(it).overflowX !== "visible" && it.scrollWidth > it.clientWidth + 1);
  const said = shown.filter(it => /scroll sideways/.test(getComputedStyle(it, "::before").content));
  const outside = shown.filter(it => it.getBoundingClientRect().right > innerWidth + 1 && !it.closest(".scroll, svg"));
  return {said: said.length, ...Object.fromEntries(Object.entries({
    unsaid: wider.filter(it => !said.includes(it)), narrow: said.filter(it => !wider.includes(it)), outside
  }).map(([name, found]) => [name, found.map(it => it.outerHTML.slice(0, 80))]))};
})()"""
#: How many colours a screenshot has in each of some boxes.
COLOURS = """(async () => {
  const bytes = await (await fetch("data:image/png;base64,%s")).blob();
  const image = await createImageBitmap(bytes);
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  return %s.map(box => new Set(new Uint32Array(
    canvas.getImageData(box.x, box.y, Math.ceil(box.width), Math.ceil(box.height)).data.buffer)).size);
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests here."""
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two parties and a few trees; one column has a long name."""
    columns = ["age", "a column with a name of quite some length, as exports have them", "hdl"]
    path = tmp_path_factory.mktemp("report") / "audit.html"
    path.write_text(html(made(trees=4, classes=3, columns=columns, withheld=0.5)), encoding="utf-8")
    return path


def _opened(browser: Browser, folder: Path, document: Document | dict[str, Any], width: int) -> None:
    """Open the page of a document, which loads without a complaint."""
    path = folder / "audit.html"
    path.write_text(html(document), encoding="utf-8")
    browser.open(path, width=width)
    assert browser.complaints == []


def _narrow(browser: Browser) -> int:
    """How many places say that they scroll sideways: all that do, in a page as wide as a telephone's screen."""
    found = browser.evaluate(SIDEWAYS)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 400
    assert [found[name] for name in ("unsaid", "narrow", "outside")] == [[], [], []]
    assert browser.evaluate(OVERLAPS) == []
    assert browser.evaluate(BROKEN) == []
    said: int = found["said"]
    return said


def _boxes(browser: Browser) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = browser.evaluate(BOXES)
    return found


@pytest.mark.campaign(but=1)
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (380, "light")])
def test_every_picture_is_shown(width: int, scheme: str, page: Path, browser: Browser) -> None:
    """No complaint of the console, no request, no picture without a size, without colours or with a text cut off."""
    browser.open(page, width=width, scheme=scheme)
    boxes = _boxes(browser)
    assert browser.complaints == []
    assert len([box for box in boxes if box["role"] == "img"]) >= 2 * (1 + 1 + 2 + 1 + 1 + 1)
    assert all(box["width"] > 0 and box["height"] > 0 for box in boxes)
    assert browser.evaluate(OUTSIDE) == []
    assert browser.evaluate(COVERED) == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    picture = base64.b64encode(browser.screenshot()).decode()
    within = [box for box in boxes if box["role"] == "img" and box["x"] + box["width"] <= width]
    assert len(within) >= 8
    browser.go("about:blank")
    colours = browser.evaluate(COLOURS % (picture, json.dumps(within)))
    assert min(colours) > 3


@pytest.mark.parametrize("protocol", ["boosting", "pivodl"])
def test_nothing_scrolls_sideways_unseen(protocol: str, tmp_path: Path, browser: Browser) -> None:
    """On a telephone the page is as wide as the screen, what is wider says so at its place, and the advice is not."""
    content = made(parties=4, trees=3, classes=3, columns=["a column with a name of quite some length", "hdl"]).plain()
    guessed = {"accuracy": Guessed(before=0.2, after=0.6)}
    job = AdvisedJob(protocol, "clinic", list(content["parties"]), 2, guessed, "severe")
    advice = advise(job, None)
    _opened(browser, tmp_path, content | {"protocol": protocol, "advice": advice.model_dump()}, 400)
    assert _narrow(browser) > 3
    assert browser.evaluate('document.querySelectorAll("#lowers .wide:has(.cards)").length') == 0


def test_both_directions(tmp_path: Path, browser: Browser) -> None:
    """Of a label holder that attacked columns too, on a telephone: both pictures, and nothing wider than the screen."""
    _opened(browser, tmp_path, both_directions(figures("lab-north"), figures("insurer"), trees=3), 400)
    sizes = browser.evaluate(
        '[...document.querySelectorAll("#columns img")].map(it => [it.naturalWidth, it.getBoundingClientRect().width])'
    )
    assert len(sizes) == 4
    assert all(pixels == 4 and shown > 100 for pixels, shown in sizes)
    _narrow(browser)


def test_dark_is_dark(page: Path, browser: Browser) -> None:
    """The page follows the reader's scheme."""
    grounds = []
    for scheme in ("light", "dark"):
        browser.open(page, width=800, scheme=scheme)
        grounds.append(browser.evaluate("getComputedStyle(document.body).backgroundColor"))
    light, dark = (sum(map(int, ground.strip("rgb()").split(","))) for ground in grounds)
    assert light > 600
    assert dark < 150


def test_the_reader_chooses_a_tree(page: Path, browser: Browser) -> None:
    """One tree of each party is shown; another choice shows another."""
    browser.open(page, width=1200)
    shown = '[...document.querySelectorAll("svg.tree")].filter(it => it.checkVisibility()).map(it => it.ariaLabel[5])'
    assert browser.evaluate(shown) == ["0", "0"]
    browser.evaluate(
        'const box = document.querySelector("[data-choose] select");'
        'box.selectedIndex = 2; box.dispatchEvent(new Event("change"))'
    )
    assert browser.evaluate(shown) == ["2", "0"]


def test_without_script(page: Path, browser: Browser) -> None:
    """A reader who runs no script unfolds trees instead: all are there, the first of each party is open."""
    browser.open(page, width=1200, script=False)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)  # DevTools may look again; the page has loaded
    assert browser.evaluate('document.querySelectorAll("[data-choose] select").length') == 0
    open_ones = '[...document.querySelectorAll("[data-choose] > details")].map(it => it.open)'
    assert browser.evaluate(open_ones) == [True, False, False, False] * 2


@pytest.mark.parametrize(
    "options",
    [
        {"labelled": False},
        {"classes": None},
        {"parties": 0},
        {"attacks": False},
        {"trees": 0},
        {"trees": 1, "parties": 1},
    ],
    ids=["no labels", "regression", "no party", "no attack", "no tree", "one of each"],
)
def test_little_to_show(options: dict[str, Any], tmp_path: Path, browser: Browser) -> None:
    """Where something is missing the page still loads without a complaint and nothing is drawn without a size."""
    _opened(browser, tmp_path, made(**{"trees": 2, **options}), 1000)
    assert all(box["width"] > 0 and box["height"] > 0 for box in _boxes(browser))
    assert browser.evaluate(OUTSIDE) == []


def test_hostile_names_do_nothing(tmp_path: Path, browser: Browser) -> None:
    """Names that are scripts are shown, not run, and nothing is fetched for them."""
    evil = '"><img src=x onerror=document.title="run"><script>document.title="run"</script>'
    _opened(browser, tmp_path, made(trees=1, parties=[evil], columns=[evil]), 1000)
    assert browser.evaluate("document.title") == "Audit of example-7f3a"
    assert evil in browser.evaluate('document.querySelector("#glance th[scope=row]").textContent')
