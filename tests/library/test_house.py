"""The layout in figures: how far a name spreads, how many rooms a folder has, what imports what, words of docs.

And what no module may call: noise in floating point, of which low bits tell what is under it (Mironov 2012).
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.weight import ROOT, code_of, compared, declarations, files_that_name, generated, text_of, tree_of
from treetap.party.protocols import PREDICTION, TRAINING

#: They read the same files, and what one has read serves the others.
pytestmark = pytest.mark.xdist_group("house")
APPLICATIONS = ("treetap.party", "treetap.coordinator", "treetap.attacks")
#: A file that imports one has this in its text.
NAMED = re.compile(rf"^\s*(from|import)\b.*\b({'|'.join(APPLICATIONS)})\b", re.MULTILINE)
#: A protocol's name, and the files that name it beside its own: oneofs, descriptions, roles, course.
PROTOCOL = "forest"
REGISTRIES = {
    "protos/treetap/wire/v2/protocols.proto",
    "treetap/protocols/registry.py",
    "party/protocols.py",
    "coordinator/protocols.py",
}
#: The arithmetic of trees, where the word has its meaning in the field, noise on it, and what a mechanism measures.
MATHEMATICS = ("treetap/trees/", "treetap/privacy/", "lab/epsilon/")
#: Folder → most modules and packages at its root. The party's are those beside the packages of protocols, one for each.
ROOMS = {"treetap": 27, "party": 16}  # shares, transfers; dealer
#: Functions and classes of numpy, torch, `random` and `treetap.neural.draws` that draw noise in floating point.
FLOATING = {
    *("normal", "normal_", "log_normal_", "lognormal", "standard_normal", "multivariate_normal", "normalvariate"),
    *("randn", "randn_like", "gauss", "gaussian", "laplace", "exponential", "exponential_", "standard_exponential"),
    *("expovariate", "Normal", "MultivariateNormal", "Laplace", "Exponential"),
}
#: Folders of the modules that run at a party, and a module that may draw such noise: why.
AT_A_PARTY = ("treetap", "party")
NO_EPSILON = {
    "treetap/neural/gradient_defences.py": "`gradient` is the noise of published baselines, for which no ε is claimed",
    "treetap/neural/draws.py": "Laplace noise for them",
}
#: What the house weighs at most beside its lines (`tests.weight`). A limit falls with its figure.
LIMITS = {
    "commands": 60,  # `treetap decisions`, its list, count and export; `treetap send`; `treetap screen`
    "keys of a policy": 42,  # min_decision_days; joins from the left
    "rows of exclusions": 150,  # what shared sums, joins from the left, look-ups, reasons and screenings do not go with
    "kinds of places that declare candidate_sums": 2,
    "kinds of places that declare begin_tree": 2,
    "files that name candidate_sums": 0,
    "files that name won_splits": 0,
    "files that name leaf_entries": 0,
    "files that name begin_tree": 0,
    "files that name choose_splits": 0,
    "growers of trees": 1,
    "modules of a training party": 119,  # rules of ids that parties write differently
    "generated modules of a training party": 26,
    "modules of 60 lines or fewer that one sibling imports": 0,
    "most parameters of a function": 11,
    "functions with a local `found` or `each`": 0,
    "words of docs": 60_300,  # walks, the paper, what is stable, screenings, several keys, joins from the left
    "lines of docs above 120 characters": 0,
    "words of decisions": 8_667,
    "words of the changelog": 1_072,  # decisions, keys, joins from the left, rows sent, new records, reasons
    "words of prose of reproductions": 2_993,
    "words of the README": 475,
    "files that monotone costs": 17,  # its own file lies beside the criterion
    "files that partitions costs": 26,
    "files that base_model costs": 11,
    "files that eval_table costs": 11,
    "files that party_dropout costs": 6,
    "files that early stopping costs": 10,
    "files that id_lmid costs": 11,
    "files that label_dp costs": 22,
}


def files_that_name_protocol(word: str) -> set[str]:
    """Files outside `MATHEMATICS`, and not the protocol's own, that hold its name."""
    return {name for name in files_that_name(word) if not name.startswith(MATHEMATICS)}


def upward_imports() -> list[str]:
    """Imports of an application by the library outside its commands, as `file: module`."""
    found = []
    for path in sorted((ROOT / "treetap").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name.startswith("treetap/commands/") or generated(path) or not NAMED.search(text_of(path)):
            continue
        for node in ast.walk(tree_of(path)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{name}: {module}" for module in modules if module.startswith(APPLICATIONS)]
    return found


@pytest.mark.second_tier
def test_no_figure_rises() -> None:
    """A limit falls with its figure, and every limit has one."""
    lines, faults = zip(*compared(LIMITS), strict=True)
    print("\n".join(lines))
    assert [fault for fault in faults if fault] == []
    assert len(lines) == len(LIMITS)


def test_declarations_are_found() -> None:
    """A count of nothing would never rise."""
    assert declarations("begin_tree") == {"proto", "method"}
    assert {"proto", "row: MessageRow"} <= declarations("candidate_sums")
    assert declarations("no_such_step") == set()


def test_a_protocol_is_named_in_the_registries_and_nowhere_else() -> None:
    """Beside its own files and the mathematics, a protocol's name stands in four files; what is counted is found."""
    assert files_that_name_protocol(PROTOCOL) == REGISTRIES
    assert len(REGISTRIES) <= 4
    assert "party/policy.py" in files_that_name_protocol("min_key_bits")  # the walk reads code


def test_names_in_comments_and_docstrings_are_not_counted(tmp_path: Path) -> None:
    """Strings, identifiers in any spelling and imports count; comments and docstrings do not."""
    quiet, loud = tmp_path / "quiet.py", tmp_path / "loud.py"
    quiet.write_text('"""A forest."""\n\nX = 1  # a forest\n\n\ndef f() -> None:\n    """Of a forest."""\n')
    assert PROTOCOL not in code_of(quiet).lower()
    for line in ("ForestParams = 1", "x = 'of a forest'", "import a.forest", "def f(in_forest): ...", "f(FOREST=1)"):
        loud.write_text(f"{line}\n")
        assert PROTOCOL in code_of(loud).lower(), line
    proto = tmp_path / "a.proto"
    proto.write_text("// forest\nmessage A {} // forest\n/* forest\n forest */\n")
    assert PROTOCOL not in code_of(proto).lower()


@pytest.mark.parametrize(("folder", "most"), ROOMS.items())
def test_a_folder_has_few_rooms(folder: str, most: int) -> None:
    """Modules and packages at the root of the library and of the party."""
    inside = (path for path in (ROOT / folder).iterdir() if not path.is_symlink())  # the applications lie elsewhere
    rooms = {path.name for path in inside if not path.name.startswith("__")} - {"py.typed"}
    rooms -= {package.removeprefix("treetap.party.") for package in (*TRAINING.values(), *PREDICTION.values())}
    assert len(rooms) <= most, sorted(rooms)


def test_contracts_have_no_long_lists_and_no_exceptions() -> None:
    """A contract that names few folders needs no edit for a module; an exception would hide an import."""
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = configuration["tool"]["importlinter"]["contracts"]
    lists = {(each["name"], key): value for each in contracts for key, value in each.items() if isinstance(value, list)}
    assert {name: value for name, value in lists.items() if len(value) > 10} == {}
    assert [each["name"] for each in contracts if "ignore_imports" in each] == []


def test_the_library_imports_no_application() -> None:
    """Commands start applications; everything below them does not know that there are any."""
    assert upward_imports() == []


def floating_noise(path: Path) -> list[str]:
    """Names in a module that draw noise in floating point."""
    if not any(name in text_of(path) for name in FLOATING):
        return []
    nodes = list(ast.walk(tree_of(path)))
    return [name for node in nodes for kind in ("attr", "id", "name") if (name := getattr(node, kind, "")) in FLOATING]


def test_no_module_of_a_party_draws_noise_in_floating_point() -> None:
    """But where no ε is claimed; each exception is one still."""
    found = {
        str(path.relative_to(ROOT)): names
        for folder in AT_A_PARTY
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (names := floating_noise(path))
    }
    allowed = {name for name in found if name.startswith(tuple(NO_EPSILON))}
    assert found.keys() - allowed == set(), found
    assert [each for each in NO_EPSILON if not any(name.startswith(each) for name in allowed)] == []


@pytest.mark.parametrize(
    "line",
    [
        "torch.normal(0.0, 1.0, (3,))",
        "torch.randn_like(x)",
        "x.normal_()",
        "torch.distributions.Laplace(0, 1)",
        "np.random.default_rng().standard_normal(3)",
        "np.random.laplace(0, 1)",
        "random.gauss(0, 1)",
        "random.normalvariate(0, 1)",
        "draws.laplace(1.0, 3)",
        "from random import gauss as drawn",
    ],
)
def test_noise_in_floating_point_is_found(line: str, tmp_path: Path) -> None:
    """In any spelling, and not where a docstring speaks of it."""
    loud, quiet = tmp_path / "loud.py", tmp_path / "quiet.py"
    loud.write_text(f"{line}\n")
    quiet.write_text(f'"""A gaussian: {line}"""\nnormalise = discrete_gaussians(3)\n')
    assert floating_noise(loud) != []
    assert floating_noise(quiet) == []
