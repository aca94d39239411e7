"""Pages are carried out as they stand: files are written, what is printed is compared, a failure names its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import blocks, carry_out, is_carried_out, own_environment, pages, unlabelled

ROOT = Path(__file__).parents[2]


@pytest.fixture
def faults(tmp_path):
    """What is wrong with a page of this text."""

    def of(text: str):
        page = tmp_path / "page.md"
        page.write_text(text)
        return carry_out(page, tmp_path, own_environment(), 20).faults

    return of


def test_a_page_that_holds(faults):
    """Files, an addition, a process in the background, Python, and lines that are printed in between."""
    page = """
```toml
# a/exp.toml
x = 1
```
```toml
# a/exp.toml, added below
y = 2
```
```sh
sleep 5 &
cat a/exp.toml; echo "seconds  12.3"
```
```text
x = 1
…
y = 2
seconds …
```
```python
print(1 + 1)
```
```text
2
```
"""
    assert faults(page) == []


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```sh\ntrue\n```\n\n```sh\nfalse\n```\n", "line 6: ended with status 1"),
        ("```sh\necho one\n```\n\n```text\ntwo\n```\n", "line 6: not printed: 'two'"),
        ("```sh\necho one; echo two\n```\n\n```text\ntwo\none\n```\n", "not printed: 'one'"),
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```sh\necho $missing\n```\n", "unbound variable"),
    ],
)
def test_a_page_that_does_not_hold(faults, page, said):
    """Each kind of fault is named."""
    assert said in faults(page)[0]


def test_a_block_that_is_left_out(tmp_path):
    """Only where the page says why."""
    page = tmp_path / "page.md"
    page.write_text("<!-- not carried out: needs two hosts -->\n```sh\nfalse\n```\n\n```sh\ntrue\n```\n")
    assert [block.text for block in blocks(page)] == ["true\n"]


def test_every_block_has_a_known_language():
    """Of README, pages and decisions: highlighted on the site, and carried out or not by what it is."""
    assert [fault for page in pages(ROOT) for fault in unlabelled(page)] == []


def test_a_block_without_a_known_language_is_told(tmp_path):
    """At the left and in an item; a fence inside a block is its text."""
    page = tmp_path / "page.md"
    page.write_text("```sh\nls\n```\n\n```\nx\n```\n\n- a\n\n  ```mermaid\n  x\n  ```\n\n````text\n```x\n````\n")
    lines = [fault.partition(": ")[0] for fault in unlabelled(page)]
    assert lines == ["page.md, line 5", "page.md, line 11"]
    assert is_carried_out(page)
    page.write_text("<!-- not carried out: two hosts -->\n```sh\nls\n```\n\n```python\n# a.py\n```\n```text\nx\n```\n")
    assert not is_carried_out(page)
