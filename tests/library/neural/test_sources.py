"""Sources of networks: they read and write no pickle, and draw from no generator of the whole process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.second_tier

ROOT = Path(__file__).parents[3]
FOLDERS = ("treetap/neural", "treetap/models", "party/splitnn", "attacks/networks")
#: Modules that execute what they read, and names of PyTorch that use them.
PICKLES = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
OF_TORCH = {"load", "save", "package", "jit", "hub"}
#: Generators that a whole process shares.
GENERATORS = {"manual_seed", "seed", "rand", "randn", "randint", "randperm", "bernoulli", "normal", "multinomial"}


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute, or ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def names_in(source: str) -> Iterator[str]:
    """Modules and names that code imports, attributes, and keywords with their values, each as text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Attribute):
            yield dotted(node)
        elif isinstance(node, ast.keyword):
            yield f"{node.arg}={ast.unparse(node.value)}"


def reads_pickles(source: str) -> list[str]:
    """Names in code that stand for pickles."""
    found = []
    for name in names_in(source):
        first, *rest = name.split(".")
        of_torch = first == "torch" and bool(rest) and rest[0] in OF_TORCH
        if first in PICKLES or of_torch or (name.startswith("allow_pickle=") and name != "allow_pickle=False"):
            found.append(name)
    return found


def draws_from_shared_generators(source: str) -> list[str]:
    """Names in code that stand for generators of the process."""
    found = []
    for name in names_in(source):
        first, *rest = name.split(".")
        of_torch = first == "torch" and bool(rest) and (rest[0] == "random" or rest[-1] in GENERATORS)
        if first == "random" or name.startswith(("np.random", "numpy.random")) or of_torch:
            found.append(name)
    return found


def sources(folder: str) -> dict[str, str]:
    """Path → text of the files below a folder."""
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sorted((ROOT / folder).rglob("*.py"))}


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_pickle(folder: str) -> None:
    """States and weights are arrays with names: a file that another party has written executes nothing."""
    files = sources(folder)
    assert files
    assert {path: found for path, text in files.items() if (found := reads_pickles(text))} == {}


def test_no_generator_of_the_process() -> None:
    """All draws have a key and a name."""
    files = sources("treetap/neural")
    assert {path: found for path, text in files.items() if (found := draws_from_shared_generators(text))} == {}


def test_a_training_draws_from_no_generator_of_the_process() -> None:
    """PyTorch's, numpy's and Python's are as they were, with dropout, DIMIP, noise and a resume."""
    torch = pytest.importorskip("torch", reason="needs treetap[neural]")
    import random

    from tests.library.neural.worlds import World
    from treetap.neural.defences import GradientDefence, LabelDefences
    from treetap.neural.params import Bottom, SplitnnParams

    bottom = {"default": Bottom(kind="resnet", channels=(2,), blocks=(1, 1), width=2)}
    params = SplitnnParams(epochs=2, batch_size=10, party_dropout={"shop": 0.5}, bottom=bottom)
    defences = LabelDefences({"shop": 0.1}, GradientDefence("ppdl", scale=0.1, share=0.5))
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    World(params, images=True, classes=2, defences=defences).federation().train(resume_at=1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert random.getstate() == before[2]
