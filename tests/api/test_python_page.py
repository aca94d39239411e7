"""The examples of docs/python.md run as they are written there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from treetap.api import federated, loopback

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.second_tier
@pytest.mark.xdist_group("api")
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With keys of 1024 bits and one worker, which change neither the model nor what is printed."""
    table, settings = federated.FederatedEstimator._job, loopback.Settings.of

    def job(self: federated.FederatedEstimator, objective: str, alignment: str) -> federated.JobTable:
        return table(self, objective, alignment).model_copy(update={"key_bits": 1024})

    monkeypatch.chdir(PAGE.parents[1])  # they read `examples/loans`
    monkeypatch.setattr(federated.FederatedEstimator, "_job", job)
    monkeypatch.setattr(loopback.Settings, "of", lambda self, party: {**settings(self, party), "workers": 1})
    exec(compile(EXAMPLES[number], f"{PAGE.name}, example {number + 1}", "exec"), {})  # our own text
    assert capsys.readouterr().out.strip()


def test_examples_are_found() -> None:
    """A page whose examples are written in another way would have none."""
    assert len(EXAMPLES) >= 5
