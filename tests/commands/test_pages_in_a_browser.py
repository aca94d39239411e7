"""Every kind of page in Chromium: at 1280 and 390 pixels, light and dark, printed, and without scripts."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.browser import Browser, checker, found
from tests.attacks.documents import made
from tests.attacks.features.documents import of_label_holder
from tests.attacks.frontiers import frontier, point
from tests.attacks.test_published import SHALLOW, audited, records, target, trained, written
from tests.commands.experiment_documents import experiment, run
from tests.commands.test_model import BANK
from treetap.attacks.report.page import html as audit_html
from treetap.attacks.report.verdict import intruder_page
from treetap.commands.model.view import card
from treetap.commands.model.view import page as model_html
from treetap.lab.experiment.frontier import html as frontier_html
from treetap.lab.experiment.headline import Gain
from treetap.lab.experiment.page import html as report_html
from treetap.lab.experiment.results import PrivacyRow
from treetap.ops.evidence.facts import Fact, Heading, Paper
from treetap.ops.evidence.folder import _page
from treetap.pages import page as frame
from treetap.protocols.job_spec import PRIVACY

#: A page of each kind.
PAGES = ("report", "audit", "embeddings", "frontier", "card", "evidence", "intruder")
SAMPLES = Path(__file__).parents[2] / "docs" / "samples"
in_a_browser = [
    pytest.mark.second_tier,
    pytest.mark.skipif(found() is None, reason="no Chromium on this machine: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
]
#: What axe finds: rule, and the elements.
FINDS = "axe.run(document).then(it => it.violations.map(one => [one.id, ...one.nodes.map(node => node.html)]))"
#: Letters below 11 pixels of the screen, each text with its size.
SMALL = """[...document.querySelectorAll("svg text, body :not(svg *, svg, script)")].map(it => {
  const {a, b} = it.getScreenCTM?.() ?? {a: 1, b: 0};
  return [it.textContent, Math.hypot(a, b) * parseFloat(getComputedStyle(it).fontSize), it.checkVisibility()];
}).filter(([text, size, shown]) => text.trim() && size < 11 && shown)"""
#: Marks on a line that reach out of their picture.
CUT = """[...document.querySelectorAll(".dumbbell circle")].filter(it => it.checkVisibility()).filter(it =>
  it.getBoundingClientRect().right > it.ownerSVGElement.getBoundingClientRect().right + 1).length"""
#: Tables that are wider than their place.
WIDE = """[...document.querySelectorAll(".scroll")].filter(it => it.checkVisibility())
  .filter(it => it.scrollWidth > it.clientWidth + 1).map(it => it.ariaLabel)"""
#: Texts of a picture that overlap, or that reach out of it.
COLLIDE = """[...document.querySelectorAll("figure > svg")].filter(it => it.checkVisibility()).flatMap(svg => {
  const whole = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map(it => [it.textContent, it.getBoundingClientRect()]);
  return texts.flatMap(([name, box], k) => [
    ...(box.left < whole.left - 1 || box.right > whole.right + 1 ? [name] : []),
    ...texts.slice(k + 1).filter(([, other]) => box.left + 1 < other.right && other.left + 1 < box.right
      && box.top + 4 < other.bottom && other.top + 4 < box.bottom).map(([other]) => `${name} / ${other}`)]);
})"""
#: Cards of which a tenth or more is empty at the right.
EMPTY = """[...document.querySelectorAll("main section")].filter(it => {
  const parts = [...it.querySelectorAll("table, p, ul, pre, .settings, figure")], box = it.getBoundingClientRect();
  return Math.max(...parts.map(part => part.getBoundingClientRect().right)) - box.left < 0.9 * box.width;
}).map(it => it.id)"""
#: Texts, also of pictures, with a contrast below 4.5 (WCAG 2.1, 1.4.3), by the colour behind them.
PALE = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const rgb = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = parts => parts.slice(0, 3).map(it => it / 255)
    .map(it => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4)
    .reduce((sum, it, k) => sum + it * [0.2126, 0.7152, 0.0722][k], 0.05);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), pale = [];
  for (let node; (node = walker.nextNode());) {
    let it = node.parentElement, ground = [0, 0, 0, 0];
    if (!node.data.trim() || !it.checkVisibility() || it.closest(".skip, title, script, option")) continue;
    const ink = light(rgb(getComputedStyle(it)[it.closest("svg") ? "fill" : "color"]));
    for (; it && ground[3] < 255; it = it.parentElement) ground = rgb(getComputedStyle(it).backgroundColor);
    if (Math.max(ink, light(ground)) / Math.min(ink, light(ground)) < 4.5) pale.push(node.data.trim());
  }
  return pale;
})()"""
#: Where parts of the page end that the first screen is to hold: the sentence, the defences, the command.
FIRST = """[...document.querySelectorAll("header > p, header .facts, header pre")]
  .map(it => [it.textContent, it.getBoundingClientRect().bottom])"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of one experiment: two companies, a verdict in each direction, a sweep of every defence."""
    folder = tmp_path_factory.mktemp("pages")
    document = made(trees=4, classes=3, columns=["age", "a column with a name of quite some length"], withheld=0.5)
    signed = {name: party.model_copy(update={"signed": "f" * 400}) for name, party in document.parties.items()}
    document = document.model_copy(update={"parties": signed})
    runs = [run(seed, names=("bank", "telco"), columns=("account_opened", "late_payments", "c")) for seed in range(2)]
    for it in runs:
        it.gain = Gain(measure="auc", together=0.728, alone={"bank": 0.661}, low=0.042, high=0.092)
        it.audit_report = str(folder / "audit.html")
        it.verdicts = document.verdicts
        it.by_privacy = [PrivacyRow.of(it, word) for word in PRIVACY]
    points = [
        point(name, {key: value}, 0.7 + 0.04 * value, 0.25 + 0.07 * k + 0.05 * value, read=0.2 + 0.01 * k)
        for k, (name, key) in enumerate({"id_lmid": "xi", "label_dp": "epsilon", "label_dp + refit": "epsilon"}.items())
        for value in (0.5, 1.0, 2.0, 4.0)
    ]
    (folder / "report.html").write_text(report_html(experiment(names=("bank", "telco")), "loans", runs))
    (folder / "audit.html").write_text(audit_html(document))
    (folder / "frontier.html").write_text(frontier_html(frontier(*points)))
    (folder / "embeddings.html").write_text(audit_html(of_label_holder()))
    (folder / "card.html").write_text(model_html(card(BANK, names=True)))
    facts = [
        Fact("job digest", "27585a95" * 8, "models/experiment/manifest.json#job_digest"),
        Fact("party", "b", "f#n"),
    ]
    paper = Paper("evidence", "Model card", "In order.", [Heading("General", facts), Heading("Risks", [], "No word.")])
    (folder / "evidence.html").write_text(_page(paper))
    table = records(60, noise=1.0)
    trained(folder, table[:40], **SHALLOW)
    tested = audited(target(folder / "model", written(folder, table, 40)))
    (folder / "intruder.html").write_text(intruder_page(tested))
    return folder


class TestInABrowser:
    """Every page, as wide as a desk's and as a telephone's screen."""

    pytestmark = in_a_browser

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", [1280, 390])
    @pytest.mark.parametrize("name", PAGES)
    def test_a_page_is_whole_and_can_be_read(
        self, name: str, width: int, scheme: str, pages: Path, browser: Browser
    ) -> None:
        """All unfolded: nothing is wider, cut, pale or small, cards are filled, and axe-core has no complaint."""
        browser.open(pages / f"{name}.html", width=width, scheme=scheme)
        browser.evaluate('document.querySelectorAll("details").forEach(it => { it.open = true; })')
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        for rule in (SMALL, COLLIDE, PALE, *([EMPTY, WIDE] if width == 1280 else [])):
            assert browser.evaluate(rule) == [], rule
        assert browser.evaluate(CUT) == 0
        if (width == 390) == (scheme == "dark"):  # seconds each
            browser.evaluate(checker())
            assert browser.evaluate(FINDS) == []

    @pytest.mark.parametrize("name", PAGES)
    def test_a_page_without_scripts_has_all_that_it_has_with_them(
        self, name: str, pages: Path, browser: Browser
    ) -> None:
        """Scripts add a choice of trees, and no word of the page."""
        lines = []
        for script in (True, False):
            browser.open(pages / f"{name}.html", width=1280, script=script)
            browser.call("Emulation.setScriptExecutionDisabled", value=False)  # the page has loaded
            browser.evaluate('document.querySelectorAll("details").forEach(it => { it.open = true; })')
            lines.append({*browser.evaluate("document.body.innerText").split("\n")})
        assert lines[0] - lines[1] <= {"Show "}
        assert len(lines[1]) > 5

    @pytest.mark.parametrize("name", PAGES)
    def test_a_page_on_paper(self, name: str, pages: Path, browser: Browser) -> None:
        """Dark letters on white whatever the screen has, nothing that only scrolls, no page left mostly empty."""
        browser.open(pages / f"{name}.html", width=717, scheme="dark")
        browser.call(
            "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
        )
        try:
            assert browser.evaluate("getComputedStyle(document.body).color") == "rgb(26, 31, 37)"
            assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
            assert browser.evaluate(
                '[...document.querySelectorAll(".scroll")].every(it => getComputedStyle(it).overflowX === "visible"'
                ' && getComputedStyle(it, "::before").content === "none")'
            )
            height = browser.evaluate("document.documentElement.scrollHeight")
        finally:
            browser.call("Emulation.setEmulatedMedia", media="")
        paper = base64.b64decode(browser.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"])
        assert 1 <= len(re.findall(rb"/Type /Page\b", paper)) <= 1.25 * height / 1045 + 1

    @pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 664)])
    def test_the_first_screen_of_a_report(self, width: int, height: int, pages: Path, browser: Browser) -> None:
        """It has the held-out cases, the defences that were on and the next command, whatever warnings are above."""
        browser.open(pages / "report.html", width=width, height=height)
        texts = {text.strip(): bottom for text, bottom in browser.evaluate(FIRST)}
        for said in ("60 held-out ones, 30 or more of each class", "defences on", "treetap frontier"):
            assert [bottom <= height for text, bottom in texts.items() if said in text.replace("\xa0", " ")] == [True]

    def test_settings_of_a_frontier_are_compared_on_a_telephone(self, pages: Path, browser: Browser) -> None:
        """A screen has eight settings or more, one below the other, and figures of one kind in one column."""
        browser.open(pages / "frontier.html", width=390, height=844)
        rows = browser.evaluate(
            '[...document.querySelectorAll("#points tbody tr")].map(it => [it.getBoundingClientRect().top,'
            ' it.querySelector("td").getBoundingClientRect().left])'
        )
        assert rows[8][0] - rows[0][0] < 844
        assert len({round(left) for _, left in rows}) == 1


def test_what_is_on_and_what_comes_next() -> None:
    """Defences by their keys and parties; after what no frontier compares the parties' own files come next."""
    plain = experiment()
    noised = {"defences": {"id_lmid": {"xi": 0.5}}}
    guarded = type(plain).model_validate({**plain.model_dump(exclude_unset=True), **noised})
    files = "treetap new federation clinic=clinic.csv lab=lab.csv"
    for given, on, after in ((plain, "none", "treetap frontier FILE"), (guarded, "id_lmid", files)):
        page = report_html(given, "exp", [run()])
        assert "held out once:<br><code>cv = 5  # in [data]</code>" in page
        assert re.search(f"defences on</dt><dd><bdi>{on}<.*<pre>{after}\n", page, re.DOTALL)


@pytest.mark.parametrize("name", ["report.html", "seed-0/audit.html"])
def test_samples_look_as_pages_do_now(name: str) -> None:
    """The pages that the site shows have today's style sheet, and no path of the machine on which they were made."""
    text = (SAMPLES / name).read_text(encoding="utf-8")
    style = frame._file("treetap.pages", "style.css")
    assert style in text, "docs/samples is stale: run python -m tools.renderers.samples"
    assert not re.search(r"/(?:tmp|home|root|work)/", text)
