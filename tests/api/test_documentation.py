"""The documentation of the estimators: parameters with their defaults, the sections of numpydoc, examples that run."""

from __future__ import annotations

import doctest
import re
from inspect import Parameter, getdoc, signature
from typing import Any

import pytest

import treetap
from treetap.commands.jobs.job_file import ALIASES

ESTIMATORS = ("FederatedClassifier", "FederatedRegressor")
#: Entry of a section: `name : type`, then its sentences further to the right.
_ENTRY = re.compile(r"^(\w+) : (\S.*)$")


def _sections(documented: Any) -> dict[str, list[str]]:
    """Heading → its lines, without the indentation of the docstring."""
    lines = (getdoc(documented) or "").splitlines()
    sections: dict[str, list[str]] = {}
    for line, under in zip(lines, [*lines[1:], ""], strict=True):
        if re.fullmatch("-{3,}", under) and len(under) == len(line):
            heading = sections.setdefault(line, [])
        elif sections and not re.fullmatch("-{3,}", line):
            heading.append(line)
    return sections


def _entries(lines: list[str]) -> dict[str, tuple[str, str]]:
    """Name → type, and what is said of it."""
    entries: dict[str, tuple[str, str]] = {}
    for line in lines:
        if match := _ENTRY.match(line):
            name, entries[match[1]] = match[1], (match[2], "")
        elif line.strip():
            kind, said = entries[name]
            entries[name] = kind, f"{said} {line.strip()}".strip()
    return entries


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_parameter_is_documented_with_its_default(name: str) -> None:
    """In the order of the constructor, each with a sentence; so is every attribute that a fit sets for its caller."""
    kind = getattr(treetap, name)
    sections = _sections(kind)
    assert list(sections) == ["Parameters", "Attributes", "Examples"]
    entries, given = _entries(sections["Parameters"]), signature(kind).parameters
    assert list(entries) == list(given)
    for parameter, (documented, said) in entries.items():
        shown = {"None": "None", "nan": "nan"}.get(repr(given[parameter].default), repr(given[parameter].default))
        assert documented.endswith(f", default={shown}".replace("'", '"')), parameter
        assert (said.endswith((".", ")")) and said[0].isupper()) or said[0] in '"[', parameter
    attributes = _entries(sections["Attributes"])
    fitted = kind(simulate=True, n_estimators=2).fit([[0, 1], [1, 0], [1, 1], [2, 3]] * 9, [0, 0, 1, 1] * 9)
    public = {key for key in vars(fitted) if key.endswith("_")} - {"n_features_in_", "feature_names_in_"}
    public |= {key for key in dir(kind) if key.endswith("_") and not key.startswith("_")}
    assert set(attributes) == public


@pytest.mark.parametrize("name", ESTIMATORS)
def test_parameters_have_xgboosts_names(name: str) -> None:
    """What XGBoost's own interface of scikit-learn calls otherwise, or files do, is no parameter here."""
    given = set(signature(getattr(treetap, name)).parameters)
    assert not given & set(ALIASES)
    assert {"n_estimators", "learning_rate", "reg_lambda", "gamma", "early_stopping_rounds", "base_score"} <= given


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    "method", ["fit", "predict", "predict_proba", "predict_frame", "score", "save", "serve", "connect", "evals_result"]
)
def test_methods_have_the_sections_of_numpydoc(name: str, method: str) -> None:
    """All arguments are documented, and what comes back."""
    kind = getattr(treetap, name)
    if not hasattr(kind, method):
        assert (name, method) == ("FederatedRegressor", "predict_proba")
        return
    documented = getattr(kind, method)
    sections = _sections(documented)
    arguments = [it.name for it in signature(documented).parameters.values() if it.name != "self"]
    assert list(_entries(sections.get("Parameters", []))) == arguments
    assert _entries(sections.get("Returns", sections.get("Yields", [])))
    for argument in signature(documented).parameters.values():
        if argument.default is not Parameter.empty:
            assert re.search(
                ", (optional|default=.+)$|column name$", _entries(sections["Parameters"])[argument.name][0]
            )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_example_runs(name: str) -> None:
    """It ends with the figure that it prints."""
    kind = getattr(treetap, name)
    (example,) = doctest.DocTestFinder(recurse=False).find(kind, name, globs={})
    assert len(example.examples) >= 4
    assert doctest.DocTestRunner().run(example).failed == 0


def test_names_are_those_of_the_interface() -> None:
    """No module that happens to be imported, and none of typing; a representation has no list of columns."""
    shown = dir(treetap)
    assert [name for name in shown if not name.startswith("_")] == sorted(treetap.__all__)
    columns = [f"column {number}" for number in range(30)]
    model = treetap.FederatedClassifier({"bank": columns[:29], "telco": columns[29:]}, max_depth=3)
    assert repr(model) == "FederatedClassifier(max_depth=3, parties={'bank': 29 columns, 'telco': 1 column})"
    assert model.parties == {"bank": columns[:29], "telco": columns[29:]}
    assert repr(treetap.FederatedClassifier(["bank", "telco"])) == "FederatedClassifier(parties=['bank', 'telco'])"
