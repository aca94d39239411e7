"""`import treetap`: names found when they are asked for, their types, and what is missing without the extra."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import MISSING, fields
from importlib import metadata
from inspect import signature
from pathlib import Path

import pytest
from sklearn.base import clone

import treetap
from treetap.protocols.job_spec import DECIDES, PRIVATE
from treetap.trees.params import BoostingParams
from treetap.version import install

STUB = Path(treetap.__file__).with_suffix(".pyi")
#: What the API alone imports.
ONLY_API = ("sklearn", "pandas", "polars", "treetap.lab.api")


def test_names_are_there_and_have_types() -> None:
    """Each name of the face is an object, is listed by dir(), and stands in the stub that editors and mypy read."""
    named = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(STUB.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert named == set(treetap.__all__)
    assert set(treetap.__all__) <= set(dir(treetap))
    assert all(callable(getattr(treetap, name)) for name in treetap.__all__)
    assert treetap.__version__ == metadata.version("treetap")
    assert "__version__" in dir(treetap)
    with pytest.raises(AttributeError, match="no attribute 'FederatedForest'"):
        treetap.FederatedForest  # noqa: B018


def test_importing_treetap_imports_nothing_of_the_api() -> None:
    """A process that serves a party pays nothing for it."""
    program = f"import sys, treetap; print([name for name in {ONLY_API!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_package_is_named_with_its_extra() -> None:
    """Of scikit-learn; another import that fails is no matter of the extra."""
    program = "import sys; sys.modules['sklearn'] = None\nimport treetap\ntreetap.FederatedClassifier"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    expected = f"ImportError: treetap.FederatedClassifier needs sklearn: {install('api')}"
    assert done.stderr.strip().splitlines()[-1] == expected


@pytest.mark.parametrize("name", ["FederatedClassifier", "FederatedRegressor"])
def test_parameters_are_those_of_boosting(name: str) -> None:
    """Every parameter of a boosting job is a keyword with its default; the objective follows from the targets.

    `privacy` decides what is sent of instance spaces, and `model` the depth that is not given. Times that are known by
    bounds need a second column of labels, which an estimator does not take.
    """
    given = signature(getattr(treetap, name)).parameters
    for each in (
        it for it in fields(BoostingParams) if it.name not in DECIDES[PRIVATE] and not it.name.startswith("aft_")
    ):
        default = given[each.name].default
        if each.name in ("objective", "max_depth") or each.default is MISSING:
            assert default is None, each.name
        else:
            assert repr(default) == repr(each.default), each.name


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("eta", "; write learning_rate"),
        ("random_state", "; write seed"),
        ("n_jobs", "; write workers, of each party"),
        ("xgb_model", "; give fit a fitted estimator, as base_model"),
        ("booster", "; of XGBoost, not offered: trees are what is grown, as with booster = 'gbtree'"),
        ("max_dpeth", "; did you mean 'max_depth'?"),
        ("zzz", ""),
    ],
)
def test_an_unknown_keyword_is_a_type_error_that_says_what_to_write(name: str, remedy: str) -> None:
    """XGBoost's names, with the places that they have in an estimator; scikit-learn reads the constructor as before."""
    for kind in (treetap.FederatedClassifier, treetap.FederatedRegressor):
        with pytest.raises(TypeError) as failure:
            kind(**{name: 1})
        assert str(failure.value) == f"{kind.__name__}() got an unexpected keyword argument {name!r}{remedy}"
        assert clone(kind(["a", "b"], max_depth=2)).get_params() == kind(["a", "b"], max_depth=2).get_params()
        assert set(kind().get_params()) == set(signature(kind).parameters)
