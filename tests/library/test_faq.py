"""Messages of docs/faq.md are those of the code, with `…` for the parts that differ."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `([^`]+)` \| ", PAGE, re.M)


@cache
def _texts() -> tuple[str, ...]:
    """Every text of the product, with `…` for what is filled in."""
    return tuple(
        text
        for folder in ("treetap", "party", "coordinator")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in _of(ast.parse(path.read_text(encoding="utf-8")))
    )


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
    assert any(pattern.search(text) for text in _texts())
