"""Weight of the house: commands, keys and words, and how far a message, a step and a feature spread.

`python -m tests.weight` (`make weight`) prints them beside their limits, which `tests/library/test_house.py` holds:
a figure may fall and not rise.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from typer.main import get_command

from tools.renderers.commands import commands
from treetap.commands.cli import app
from treetap.party.policy import Policy
from treetap.party.policy_tables import PLACES, TABLES
from treetap.protocols.exclusions import PREDICTIONS, TRAININGS

ROOT = Path(__file__).parents[1]
PRODUCTION = ("treetap", "party", "coordinator", "attacks", "lab", "ops")
#: Where a feature may be named: code that is shipped, and the messages.
FOLDERS = ("protos", *PRODUCTION)
SUFFIXES = {".py", ".proto", ".html", ".j2", ".js", ".css"}
#: Prints the modules of a party that trains; those of a protocol are imported when a job needs them.
TRAINING_PARTY = (
    "import importlib, sys; from treetap.party.server.main import OF_JOBS; "
    "[*map(importlib.import_module, OF_JOBS)]; print(*sorted(sys.modules), sep='\\n')"
)
#: A message and a step that stand for all.
MESSAGES = ("candidate_sums", "won_splits", "leaf_entries")
STEPS = ("begin_tree", "choose_splits")
#: Pages that are rendered as a whole from the code, which is counted there, and records of decisions.
NOT_GUIDES = ("docs/exclusions.md", "docs/register.md", "docs/reference/*.md", "docs/adr/*.md")
#: Parts of a page that are no prose: what is rendered between two markers, and blocks of code.
RENDERED = re.compile(r"<!-- (.+?): begin -->.*?<!-- \1: end -->", re.DOTALL)
BLOCK = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1[ \t]*$", re.MULTILINE | re.DOTALL)
#: Most characters of a line of a page.
WIDE = 120
#: Files that may name what grows trees: the protocol's own, its rows, and readers of transcripts.
OF_GROWTH = (
    *("party/growth/", "coordinator/growth.py", "attacks/view/"),
    *(f"treetap/protocols/{name}.py" for name in ("growth", "dealing")),
)
TREES = ("boosting", "forest")
OF_TREES = (*OF_GROWTH, *(f"{place}/{name}" for name in TREES for place in ("party", "treetap/protocols")))
#: Message or step → the files that may name it.
OWN = {
    "candidate_sums": OF_GROWTH,
    "won_splits": OF_GROWTH,
    "leaf_entries": ("party/eini/", "coordinator/eini.py", "treetap/protocols/eini.py", "attacks/view/"),
    "begin_tree": OF_TREES,
    "choose_splits": OF_TREES,
}
#: Feature → how it is spelt in code, in lower case. A file whose path has the spelling is the feature's own.
FEATURES = {
    "monotone": "monotone",
    "partitions": r"(?<!\.)(?<!\.r)(?<!arg)partition|\.partition\w",  # not methods of strings and arrays
    "base_model": "base[_ ]model",  # not pydantic's class
    "eval_table": "eval.?table",
    "party_dropout": "party.?dropout",
    "early stopping": "early.?stop",
    "id_lmid": "id.?lmid",
    "label_dp": "label.?dp",
}
#: Lines of a thin module.
THIN = 60
#: The share of its limit below which a figure has the limit lowered.
SLACK = 0.99
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def generated(path: Path) -> bool:
    """True for code that protoc makes from protos/."""
    return path.match("treetap/wire/v2/*_pb2*")


@cache
def production() -> dict[str, Path]:
    """Module → its file, of hand-written code and of packages."""
    found = {}
    for path in (path for top in PRODUCTION for path in sorted((ROOT / top).rglob("*.py"))):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if not generated(path):
            named = parts if parts[0] == "treetap" else ("treetap", *parts)
            found[".".join(named[:-1] if named[-1] == "__init__" else named)] = path
    return found


@cache
def text_of(path: Path) -> str:
    """The text of a file."""
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a module, which is not to be changed."""
    return ast.parse(text_of(path))


def code_of(path: Path) -> str:
    """The names and texts in a source file, without comments and, of Python, without docstrings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".proto":
        return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return text if path.suffix != ".py" else "\n".join(_names(ast.parse(text)))


def _names(tree: ast.Module) -> Iterator[str]:
    """Every identifier and every text of a module but for docstrings; an attribute has its dot."""
    nodes = list(ast.walk(tree))
    bare = {
        statement.value
        for node in nodes
        if isinstance(body := getattr(node, "body", None), list)
        for statement in body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }
    for node in nodes:
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and node not in bare:
                yield node.value
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield f".{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        else:
            fields = (getattr(node, field, None) for field in ("name", "arg", "asname"))
            yield from (name for name in fields if isinstance(name, str))


@cache
def sources() -> dict[str, Path]:
    """Name → path of every file of text below the folders but for generated ones."""
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))
    return {
        str(path.relative_to(ROOT)): path
        for path in paths
        if path.is_file() and path.suffix in SUFFIXES and not generated(path)
    }


@cache
def _lower_code(path: Path) -> str:
    return code_of(path).lower()


def files_with(pattern: str) -> list[str]:
    """Files that hold a pattern in an identifier or a string; few are parsed, since their text holds it too."""
    wanted = re.compile(pattern)
    return [
        name
        for name, path in sources().items()
        if wanted.search(text_of(path).lower()) and wanted.search(_lower_code(path))
    ]


def files_that_name(pattern: str) -> set[str]:
    """Files without the pattern in their paths that hold it in an identifier or a string."""
    return {name for name in files_with(pattern) if not re.search(pattern, name.lower())}


def imports_of(module: str, *, anywhere: bool = True) -> set[str]:
    """Hand-written modules that a module imports when it runs; `anywhere`: inside functions too."""
    named: set[str] = set()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, FUNCTIONS) and not anywhere:
                continue
            if isinstance(child, ast.Import):
                named.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module:
                named.update([child.module, *(f"{child.module}.{alias.name}" for alias in child.names)])
            visit(child)

    visit(tree_of(production()[module]))
    return named & set(production()) - {module}


def thin_modules() -> set[str]:
    """Modules of few lines that one other module imports, in the same folder."""
    importers: dict[str, list[str]] = {}
    for module in production():
        for name in imports_of(module):
            importers.setdefault(name, []).append(module)
    return {
        module
        for module, others in importers.items()
        if len(others) == 1
        and others[0].rpartition(".")[0] == module.rpartition(".")[0]
        and production()[module].name != "__init__.py"
        and len(text_of(production()[module]).splitlines()) <= THIN
    }


def modules_of_a_training_party() -> tuple[int, int]:
    """Own modules that a party has imported when it takes its first job: hand-written and generated."""
    command = [sys.executable, "-c", TRAINING_PARTY]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    own = [name for name in ended.stdout.split() if name.partition(".")[0] == "treetap"]
    made = sum("_pb2" in name for name in own)
    return len(own) - made, made


@cache
def _counted(path: Path) -> list[ast.AST]:
    """The nodes of a module, of the kinds that are counted."""
    kinds = (ast.ClassDef, ast.Dict, ast.Call, *FUNCTIONS)
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, kinds)]


def nodes_of(*kinds: type[ast.AST], naming: str = "") -> Iterator[tuple[str, ast.AST]]:
    """(Module, node) of every class, function, dictionary or call in production code whose file has a text."""
    files = ((module, path) for module, path in production().items() if naming in text_of(path))
    return ((module, node) for module, path in files for node in _counted(path) if isinstance(node, kinds))


def most_parameters() -> int:
    """The longest list of parameters of a function, but for the Python API's, which has XGBoost's."""
    longest = 0
    for module, node in nodes_of(*FUNCTIONS):
        assert isinstance(node, FUNCTIONS)
        of = node.args
        count = len(of.posonlyargs + of.args + of.kwonlyargs) + sum(each is not None for each in (of.vararg, of.kwarg))
        longest = max(longest, 0 if module.startswith("treetap.lab.api") else count)
    return longest


def functions_with_a_local(*names: str) -> int:
    """Functions that set a local variable of one of these names."""

    def sets(node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names

    return sum(any(sets(node) for node in ast.walk(function)) for _, function in nodes_of(*FUNCTIONS))


def growers() -> int:
    """Classes that decide which node of a tree is split next."""
    return sum(
        any(isinstance(node, ast.Call) and ast.unparse(node.func) == "Expansions" for node in ast.walk(each))
        for _, each in nodes_of(ast.ClassDef)
    )


def declarations(name: str) -> set[str]:
    """Kinds of places that declare a message or a step: the proto, a method, entries of dictionaries, rows.

    A row is a call whose first argument is the name. `Next(name)` mentions a step, and declares none.
    """
    kinds = {"proto"} if any(file.endswith(".proto") for file in files_with(re.escape(name))) else set()
    for _, node in nodes_of(ast.Dict, ast.Call, *FUNCTIONS, naming=name):
        if isinstance(node, FUNCTIONS) and node.name == name:
            kinds.add("method")
        elif isinstance(node, ast.Dict):
            entries = zip(node.keys, node.values, strict=True)
            kinds |= {f"entry: {_kind(value)}" for key, value in entries if _says(key, name)}
        elif isinstance(node, ast.Call) and node.args and _says(node.args[0], name) and _kind(node) != "Next":
            kinds.add(f"row: {_kind(node)}")
    return kinds


def _says(node: ast.AST | None, name: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == name


def _kind(value: ast.AST) -> str:
    """The function of a call, or the type of another expression."""
    return ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else type(value).__name__


def words(*patterns: str) -> int:
    """Words of files, by patterns from the root."""
    return sum(len(text_of(path).split()) for pattern in patterns for path in ROOT.glob(pattern))


def prose(pattern: str) -> int:
    """Words of pages outside tables and blocks of code."""
    count = 0
    for path in ROOT.glob(pattern):
        text = re.sub(r"^```.*?^```$", "", text_of(path), flags=re.MULTILINE | re.DOTALL)
        count += sum(len(line.split()) for line in text.splitlines() if not line.lstrip().startswith("|"))
    return count


def guides() -> list[str]:
    """The texts of the pages of docs/ that are written, without what is rendered in them and without blocks of code."""
    left_out = {path for pattern in NOT_GUIDES for path in ROOT.glob(pattern)}
    texts = [text_of(path) for path in sorted((ROOT / "docs").rglob("*.md")) if path not in left_out]
    return [BLOCK.sub("", RENDERED.sub("", text)) for text in texts]


def wide_lines() -> int:
    """Lines of pages, decisions and the README above `WIDE` characters, but for what is rendered and rows of tables.

    The address of a link does not count.
    """
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts = (RENDERED.sub("", text_of(path)) for path in pages if path.parent.name != "reference")
    lines = (re.sub(r"\]\([^)]*\)", "]", line) for text in texts for line in text.splitlines())
    return sum(len(line) > WIDE and not line.lstrip().startswith("|") for line in lines)


def figures() -> list[tuple[str, int]]:
    """What is counted, and how many there are."""
    own, made = modules_of_a_training_party()
    return [
        ("commands", sum(bool(words) for words, _ in commands(get_command(app), ()))),
        ("keys of a policy", len(PLACES) + len(Policy.model_fields) - len(TABLES)),
        ("rows of exclusions", len(TRAININGS) + len(PREDICTIONS)),
        *((f"kinds of places that declare {name}", len(declarations(name))) for name in (MESSAGES[0], STEPS[0])),
        *((f"files that name {name}", len(naming(name))) for name in (*MESSAGES, *STEPS)),
        ("growers of trees", growers()),
        ("modules of a training party", own),
        ("generated modules of a training party", made),
        (f"modules of {THIN} lines or fewer that one sibling imports", len(thin_modules())),
        ("most parameters of a function", most_parameters()),
        ("functions with a local `found` or `each`", functions_with_a_local("found", "each")),
        ("words of docs", sum(len(text.split()) for text in guides())),
        (f"lines of docs above {WIDE} characters", wide_lines()),
        ("words of decisions", words("docs/adr/*.md")),
        ("words of the changelog", words("CHANGELOG.md")),
        ("words of prose of reproductions", prose("benchmarks/reproductions/**/README.md")),
        ("words of the README", words("README.md")),
        *((f"files that {name} costs", len(files_that_name(pattern))) for name, pattern in FEATURES.items()),
    ]


def naming(word: str) -> list[str]:
    """Hand-written files of Python that name a message or a step, outside its protocol; a module's name is another."""
    files = files_with(rf"(?<!treetap\.trees\.)\b{word}\b")
    return [file for file in files if file.endswith(".py") and not file.startswith(OWN[word])]


def compared(limits: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """(A line of a figure beside its limit, what is wrong) of every figure; the second is empty where nothing is."""
    for name, value in figures():
        limit, fault = limits[name], ""
        if value > limit:
            fault = f"{name}: {value:,} are more than {limit:,}"
        elif value < SLACK * limit:
            fault = f"{name}: only {value:,}: lower the limit of {limit:,}, so that nothing grows back unseen"
        yield f"{value:>8,} of {limit:>7,}  {name}", fault


def main() -> None:
    """Print every figure beside its limit."""
    from tests.library.test_house import LIMITS

    for line, fault in compared(LIMITS):
        print(line, "  <- " * bool(fault) + fault, sep="")


if __name__ == "__main__":
    main()
