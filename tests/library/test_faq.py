"""Messages of docs/faq.md are those of the code, with `…` for the parts that differ."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.weight import PRODUCTION

#: Files that one has parsed serve the others.
pytestmark = pytest.mark.xdist_group("faq")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `([^`]+)` \| ", PAGE, re.M)


@cache
def _files() -> dict[Path, str]:
    """The product's files."""
    paths = (path for folder in PRODUCTION for path in sorted((ROOT / folder).rglob("*.py")))
    return {path: path.read_text(encoding="utf-8") for path in paths}


def _texts(message: str) -> Iterator[str]:
    """Every text of the files that have all words of a message, with `…` for what is filled in."""
    words = re.findall(r"\w+", message)
    for path, content in _files().items():
        if all(word in content for word in words):
            yield from _texts_of(path)


@cache
def _texts_of(path: Path) -> list[str]:
    return list(_of(ast.parse(_files()[path])))


def _of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(it.value if isinstance(it, ast.Constant) else "…" for it in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_there_are_ten() -> None:
    """As the heading says."""
    assert "## Ten messages" in PAGE
    assert len(MESSAGES) == 10


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_in_the_code(message: str) -> None:
    """Its parts stand in one text of the code, in their order."""
    pattern = re.compile(".*".join(re.escape(part.strip()) for part in message.split("…")), re.S)
    assert any(pattern.search(text) for text in _texts(message))
