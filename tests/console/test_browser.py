"""The pages of a console in Chromium: every view by axe-core, wide and narrow, light and dark, without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="the console needs the extra console")

from tests.attacks.browser import Browser, checker, found
from tests.console.full import full, listening
from treetap.ops.console.pages import VIEWS

pytestmark = [
    pytest.mark.second_tier,
    pytest.mark.skipif(found() is None, reason="no Chromium on this machine: apt-get install chromium"),
]
JOB = f"/jobs/credit-7/{'07' * 32}"
PATHS = ("/", JOB, *(f"/{view}" for view in VIEWS), "/nowhere")
#: What axe finds: rule, and the elements.
FINDS = "axe.run(document).then(it => it.violations.map(one => [one.id, ...one.nodes.map(node => node.html)]))"
#: Content that is wider than the page.
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
#: Submit the form that is posted to a path.
POSTS = "document.querySelector('form[action$=\"{}\"]').requestSubmit()"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path) as started:
        yield started


def submit(browser: Browser, script: str) -> None:
    """Have a page post a form, and wait for the page that answers."""
    browser.evaluate(script)
    browser._until(lambda message: message.get("method") == "Page.loadEventFired")


def enter(browser: Browser, address: str, token: str) -> str:
    """Show a token by hand: the page's own form, filled in. Returns the address of the session."""
    browser.go(f"{address}/")
    submit(browser, f"document.querySelector('#token').value = '{token}'; {POSTS.format('/enter')}")
    return str(browser.evaluate("document.location.href")).rstrip("/")


def look(browser: Browser, width: int, scheme: str) -> None:
    """A window of that width, in light or dark."""
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(scheme: str, browser: Browser) -> None:
    """Nor is a page wider than a window of 390 pixels, or complains the browser of what its rules forbid."""
    axe = checker()
    with listening(full()) as (address, made):
        browser.go(f"{address}/")
        look(browser, 390, scheme)
        browser.evaluate(axe)
        assert browser.evaluate(FINDS) == []
        own = enter(browser, address, made.sessions.token())
        assert browser.evaluate("document.querySelector('h1').textContent") == "Jobs"
        for path in (*PATHS, "confirm"):
            for width in (1280, 390):
                look(browser, width, scheme)
                if path == "confirm":
                    browser.go(f"{own}{JOB}")
                    submit(browser, POSTS.format("/decision"))
                    assert browser.evaluate("document.querySelector('h1').textContent") == "Confirm"
                else:
                    browser.go(f"{own}{path}")
                browser.evaluate(axe)
                assert browser.evaluate(FINDS) == [], (path, width)
                assert browser.evaluate(WIDER) <= 0, (path, width)
                assert browser.evaluate("document.scripts.length") == 0, path
        here = f"asked for {address}/"
        assert [one for one in browser.complaints if not one.startswith(here) and "404" not in one] == []
