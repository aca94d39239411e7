"""Pages are carried out as they stand: files are written, what is printed is compared, a failure names its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import carry_out, own_environment, pages, unlabelled

ROOT = Path(__file__).parents[2]


@pytest.fixture
def faults(tmp_path):
    """What is wrong with a page of this text."""

    def of(text: str):
        page = tmp_path / "page.md"
        page.write_text(text)
        return carry_out(page, tmp_path, own_environment(), 20).faults

    return of


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


def test_every_block_has_a_known_language():
    """Of README, pages and decisions: highlighted on the site, and carried out or not by what it is."""
    assert [fault for page in pages(ROOT) for fault in unlabelled(page)] == []
