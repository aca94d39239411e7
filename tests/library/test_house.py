"""The layout in figures: how far a protocol's name spreads, how many rooms a folder has, what imports what."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from party.protocols import PREDICTION, TRAINING

ROOT = Path(__file__).parents[2]
FOLDERS = ("protos", "party", "coordinator", "treetap", "attacks")
APPLICATIONS = {"party", "coordinator", "attacks"}
#: A protocol's name, and the files that name it beside its own: oneofs, descriptions, roles, course.
PROTOCOL = "forest"
REGISTRIES = {
    "protos/treetap/wire/v2/protocols.proto",
    "treetap/protocols/registry.py",
    "party/protocols.py",
    "coordinator/protocols.py",
}
#: The arithmetic of trees, where the word has its meaning in the field.
MATHEMATICS = "treetap/trees/"
#: Folder → most modules and packages at its root. The party's are those beside the packages of protocols, one for each.
ROOMS = {"treetap": 24, "party": 14}


def code_of(path: Path) -> str:
    """The text of a source file without comments and, of Python, without docstrings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".proto":
        return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    if path.suffix != ".py":
        return text
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [each for each in body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def sources() -> Iterator[Path]:
    """Every file of text below the folders, but for the code that protoc generates from protos/."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            generated = path.match("treetap/wire/v2/*_pb2*")
            if path.is_file() and path.suffix in {".py", ".proto", ".html", ".j2", ".js", ".css"} and not generated:
                yield path


def files_that_name(word: str) -> set[str]:
    """Files outside `MATHEMATICS` without the word in their paths that hold it in an identifier or a string."""
    paths = {str(path.relative_to(ROOT)): path for path in sources()}
    return {
        name
        for name, path in paths.items()
        if word not in name.lower() and not name.startswith(MATHEMATICS) and word in code_of(path).lower()
    }


def upward_imports() -> list[str]:
    """Imports of an application by the library outside its commands, as `file: module`."""
    found = []
    for path in sorted((ROOT / "treetap").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name.startswith("treetap/commands/") or path.match("*_pb2*"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{name}: {module}" for module in modules if module.partition(".")[0] in APPLICATIONS]
    return found


def test_a_protocol_is_named_in_the_registries_and_nowhere_else() -> None:
    """Beside its own files and the mathematics, a protocol's name stands in four files; what is counted is found."""
    assert files_that_name(PROTOCOL) == REGISTRIES
    assert len(REGISTRIES) <= 4
    assert "party/policy.py" in files_that_name("min_key_bits")  # the walk reads code


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
    rooms = {path.name for path in (ROOT / folder).iterdir() if not path.name.startswith("__")} - {"py.typed"}
    rooms -= {package.removeprefix("party.") for package in (*TRAINING.values(), *PREDICTION.values())}
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
