"""Pictures of a console's pages for the docs, 400 pixels wide, several in one: docs/console-*.png.

Usage: python -m tests.console.pictures. Needs Chromium and Pillow, which matplotlib brings.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from PIL import Image

from tests.attacks.browser import Browser
from tests.console.full import full, listening
from tests.console.test_browser import JOB, POSTS, enter, look, submit

DOCS = Path(__file__).parents[2] / "docs"
#: Pixels of a page in a picture, the space between two, and colours.
WIDTH, HEIGHT, SPACE, COLOURS = 400, 820, 12, 32
#: Picture → light or dark, and the pages in it; None: the page that asks again.
PICTURES: dict[str, tuple[str, tuple[str | None, ...]]] = {
    "decide": ("light", ("/", JOB, None)),
    "watch": ("dark", ("/running", "/exchanged", "/limits")),
    "kept": ("light", ("/ledger", "/models", "/certificates", "/transcripts")),
}


def main() -> None:
    """Take the pictures."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        listening(full()) as (address, made),
        Browser(Path(folder)) as browser,
    ):
        own = enter(browser, address, made.sessions.token())
        for name, (scheme, paths) in PICTURES.items():
            look(browser, WIDTH, scheme)
            pages = [_taken(browser, own, path) for path in paths]
            whole = Image.new("RGB", (len(pages) * (WIDTH + SPACE) - SPACE, HEIGHT), "#888888")
            for place, page in enumerate(pages):
                whole.paste(page, (place * (WIDTH + SPACE), 0))
            whole.quantize(COLOURS, dither=Image.Dither.NONE).save(DOCS / f"console-{name}.png", optimize=True)


def _taken(browser: Browser, own: str, path: str | None) -> Image.Image:
    browser.go(f"{own}{path or JOB}")
    if path is None:
        submit(browser, POSTS.format("/decision"))
    clip = {"x": 0.0, "y": 0.0, "width": float(WIDTH), "height": float(HEIGHT)}
    return Image.open(io.BytesIO(browser.screenshot(clip))).convert("RGB")


if __name__ == "__main__":
    main()
