"""All stored figures of the audit's measures, measured anew by one command that goes on where it was interrupted.

    python benchmarks/stored_figures.py [--list] [--only NAME …] [--workdir FOLDER]

Carries out the rows of `ROWS` that are not finished, in order, each in a folder of its own below FOLDER, where N.out
and N.err are the streams of its Nth command; then says what to compare with which folder. Pictures and the frontiers of
the advice are written in their places. A row is finished for the sources that decide its figures: modules of `DECIDE`,
what its commands name, and what that imports of benchmarks/ and tests/, comments left out. When they change it is
measured anew, and the old output deleted. Hours are those of one processor. --list measures nothing.
Status 1: a command failed, or TREETAP_DATA lacks a table. Needs the extras `audit`, `neural` and `bench`.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
ROOT, TABLES = HERE.parent, Path(os.environ.get("TREETAP_DATA", os.devnull)).resolve()
sys.path[:0] = [str(HERE / "reproductions"), str(HERE)]

from measured_frontiers import table_of  # noqa: E402
from resumable import Results  # noqa: E402

#: Folders of modules that decide figures, whichever command asks for them.
DECIDE = (
    *("attacks", "party", "treetap/additive", "treetap/lattice", "treetap/neural", "treetap/privacy"),
    *("treetap/protocols", "treetap/tables", "treetap/trees", "lab/epsilon"),
    "lab/experiment",
)
BANK, CREDIT, FARS, OBESITY = (f"{name}.parquet" for name in ("bank_marketing", "credit_default", "fars", "obesity"))
MEASURED, OWN, README = "benchmarks/measured", "benchmarks/stored", "benchmarks/README.md"
COLUMNS, LEAKS, AUDITS = (f"{MEASURED}/{name}.md" for name in ("columns", "leaks", "audits"))
EXPERIMENTS, PROTECTION, PRICE = f"{MEASURED}/experiments.md", "docs/data-protection.md", "docs/column-privacy.md"
SUMS, FOUR, SETS = "columns_from_sums.py", "--set breast_cancer diabetes credit obesity", f"{CREDIT} {OBESITY}"
PIVODL, ADVICE = f"{MEASURED}/pivodl-columns.md", f"attacks/advice/frontiers {MEASURED}/defences.md"
#: Commands that go on where they were interrupted; of another the row begins with an empty folder.
RESUMED = (
    *("treetap frontier", "treetap measure-epsilon"),
    *("measured_frontiers.py", "sensfl.py", "reproduce.py", "id2graph_table2.py"),
)


class Row(NamedTuple):
    """A command as its page names it (several: joined by &&), files that have its figures, hours, and tables needed."""

    name: str
    command: str
    pages: str
    hours: float
    data: str = ""

    @property
    def commands(self) -> list[str]:
        """One after the other."""
        return self.command.split(" && ")


def _benchmark(name: str, command: str, pages: str, hours: float, data: str = "") -> Row:
    return Row(name, f"python benchmarks/{command}", pages, hours, data)


ROWS = (
    _benchmark("partitions", "measure_partitions.py", LEAKS, 0.01),
    Row(
        "demo",
        "treetap demo --workdir demo --details && python -m tools.renderers.demo",
        f"{AUDITS} docs/demo.svg",
        0.05,
    ),
    Row("demo-splitnn", "treetap demo --protocol splitnn --workdir demo --details", AUDITS, 0.01),
    Row("readme", "python tests/documents.py README.md", "README.md", 0.1),
    Row(
        "tutorial",
        "python tests/documents.py docs/tutorial.md && python -m tools.renderers.frontier runs/exp-2/frontier.json",
        "docs/tutorial.md docs/defend.md docs/frontier.svg",
        0.2,
    ),
    Row(
        "measure",
        "python tests/documents.py docs/measure.md && python -m tools.renderers.samples",
        "docs/measure.md docs/audit.png",
        0.02,
    ),
    Row("loans", "treetap experiment examples/loans/exp.toml --details", f"{PROTECTION} {EXPERIMENTS}", 0.01),
    Row("loans-label-dp", f"treetap experiment {OWN}/loans-label-dp.toml --details", PROTECTION, 0.01),
    Row("loans-unaudited", f"treetap experiment {OWN}/loans-unaudited.toml", EXPERIMENTS, 0.01),
    Row("credit", f"treetap experiment {OWN}/credit.toml", EXPERIMENTS, 0.01, CREDIT),
    Row("credit-unaudited", f"treetap experiment {OWN}/credit-unaudited.toml", EXPERIMENTS, 0.01, CREDIT),
    _benchmark("steps", "defended_steps.py", README, 0.02),
    _benchmark("beaten", "beaten.py", AUDITS, 0.1, f"{BANK} {CREDIT}"),
    _benchmark("known-labels", "known_labels.py", AUDITS, 0.03, SETS),
    _benchmark("published", "published_models.py --trees 10", AUDITS, 0.1, SETS),
    _benchmark("recipient", "reproductions/pivodl/recipient.py", AUDITS, 0.1, CREDIT),
    _benchmark("pivodl", "pivodl_columns.py", PIVODL, 0.2, CREDIT),
    _benchmark("pivodl-threshold", "pivodl_columns.py --set breast_cancer --threshold 1", PIVODL, 0.03),
    _benchmark("withheld", "withheld.py", COLUMNS, 0.16, f"{CREDIT} {FARS} {OBESITY}"),
    _benchmark("crafted", "crafted_gradients.py", COLUMNS, 0.01, CREDIT),
    _benchmark("equations", "cell_records.py --equations --set breast_cancer --own 10 --trees 100", COLUMNS, 0.01),
    _benchmark("cells", "cell_records.py --set breast_cancer credit", COLUMNS, 0.02, CREDIT),
    _benchmark("cells-20", f"cell_records.py {FOUR} --trees 20 --least 10", COLUMNS, 0.01, SETS),
    Row(
        "both-directions",
        f"treetap frontier {OWN}/breast_cancer.toml"
        " && python -m tools.renderers.frontier runs/breast_cancer/frontier.json frontier-columns.svg",
        f"{COLUMNS} docs/defend.md docs/frontier-columns.svg",
        0.3,
    ),
    _benchmark("sums", f"{SUMS} --trees 1 10 20 50 100", README, 0.01),
    _benchmark("sums-diabetes", f"{SUMS} --set diabetes --trees 20", README, 0.01),
    _benchmark("sums-bins-8", f"{SUMS} --trees 10 20 50 100 --bins 8", README, 0.01),
    _benchmark("sums-drawn", f"{SUMS} --set synthetic --records 20000 --trees 100", LEAKS, 0.01),
    _benchmark("sums-leaks", f"{SUMS} {FOUR} --trees 1 10 20 100", LEAKS, 0.04, SETS),
    _benchmark("left-sets", "left_sets.py --records 30000", LEAKS, 0.02, SETS),
    _benchmark("sums-least-5", f"{SUMS} {FOUR} --trees 20 100 --min-cell-records 5", COLUMNS, 1.0, SETS),
    _benchmark("sums-least-10", f"{SUMS} {FOUR} --trees 20 100 --min-cell-records 10", COLUMNS, 1.0, SETS),
    _benchmark("sums-least-20", f"{SUMS} {FOUR} --trees 20 100 --min-cell-records 20", COLUMNS, 1.0, SETS),
    _benchmark("price-breast-cancer", "column_privacy.py --set breast_cancer --cells", PRICE, 0.02),
    _benchmark("price-credit", "column_privacy.py --set credit --cells", PRICE, 0.24, CREDIT),
    _benchmark("price-bank", "column_privacy.py --set bank", PRICE, 0.01, BANK),
    _benchmark("price-credit-2", "column_privacy.py --set credit-2", PRICE, 0.3, "give_me_some_credit.parquet"),
    _benchmark("advice-breast-cancer", "measured_frontiers.py --sets breast_cancer", ADVICE, 0.01),
    _benchmark("advice-obesity", "measured_frontiers.py --sets obesity", ADVICE, 0.02, OBESITY),
    _benchmark("advice-credit", "measured_frontiers.py --sets credit_default", ADVICE, 0.08, CREDIT),
    _benchmark("advice-fars", "measured_frontiers.py --sets fars", ADVICE, 0.11, FARS),
    _benchmark(
        "sensfl",
        "reproductions/sensfl/sensfl.py table-1 table-2 --dp-sgd --json results.jsonl --out .",
        "benchmarks/reproductions/sensfl",
        0.6,
        f"{BANK} {CREDIT} fashion_mnist.npz cifar10_subset.npz",
    ),
    _benchmark(
        "defences",
        "reproductions/id2graph_defences/reproduce.py figure-8 figure-10 wire --json results.jsonl --out ."
        " && python benchmarks/reproductions/id2graph_defences/reproduce.py figure-8 --sets drive --seeds 42"
        " --json results.jsonl --out .",
        f"{MEASURED}/defences.md benchmarks/reproductions/id2graph_defences",
        0.9,
        f"{OBESITY} {CREDIT} {FARS} sensorless_drive_subset.parquet",
    ),
    _benchmark(
        "table-2",
        "reproductions/id2graph_table2.py --markdown --results results.jsonl",
        "benchmarks/reproductions/README.md docs/register.md docs/threats.md",
        0.5,
        f"{OBESITY} {FARS} sensorless_drive_subset.parquet pucrio_har_partial.parquet fashion_mnist.npz",
    ),
    Row("epsilon", f"treetap measure-epsilon {OWN}/noise.toml", "docs/measure-epsilon.md", 1.0),
)


def words_of(command: str) -> list[str]:
    """A command's words as they are run in a row's folder: files of the project by their whole paths."""
    program, *others = shlex.split(command)
    words = [str(ROOT / word) if (ROOT / word).is_file() else word for word in others]
    return [sys.executable, *(["-m", "treetap"] if program == "treetap" else []), *words]


@cache
def _imported(path: Path) -> frozenset[Path]:
    """The modules of benchmarks/ and tests/ that a module of theirs imports, itself included."""
    found, left = {path}, [path]
    while left:
        module = left.pop()
        names = re.findall(r"^\s*(?:from|import) ([\w.]+)", module.read_text(encoding="utf-8"), re.MULTILINE)
        files = [base / f"{name}.py" for name in names for base in (module.parent, HERE, HERE / "reproductions")]
        files += [ROOT / f"{name.replace('.', '/')}.py" for name in names if name.startswith("tests.")]
        new = set(filter(Path.is_file, files)) - found
        left += new
        found |= new
    return frozenset(found)


@cache
def _content(path: Path) -> bytes:
    text = path.read_text(encoding="utf-8")
    return ast.dump(ast.parse(text)).encode() if path.suffix == ".py" else text.encode()


def sources(row: Row) -> str:
    """A digest of what decides a row's figures."""
    files = {path for folder in DECIDE for path in (ROOT / folder).rglob("*.py")}
    for path in (Path(word) for command in row.commands for word in words_of(command)[1:]):
        if path.is_relative_to(ROOT):
            files |= _imported(path) if path.suffix == ".py" else {path}
    digest = hashlib.sha256(row.command.encode())
    for path in sorted(files):
        digest.update(hashlib.sha256(str(path.relative_to(ROOT)).encode() + b"\0" + _content(path)).digest())
    return digest.hexdigest()[:12]


def folder_of(row: Row, workdir: Path) -> Path:
    """Where a row's output lies, by the sources as they are."""
    return workdir / row.name / sources(row)


def finished(row: Row, workdir: Path) -> list[dict[str, float]]:
    """Seconds of the row's commands that have ended well, in order: all of them, or those before an interruption."""
    kept = Results(folder_of(row, workdir) / "commands.jsonl")
    return list(filter(None, (kept.get({"command": command}) for command in row.commands)))


def carry_out(row: Row, workdir: Path) -> bool:
    """Run the commands that the row lacks; False, with the last lines, where one of them fails."""
    folder, done = folder_of(row, workdir), len(finished(row, workdir))
    if not done and not any(word in row.command for word in RESUMED):
        shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / "examples").symlink_to(ROOT / "examples")
        if "breast_cancer.toml" in row.command:
            pq.write_table(table_of("breast_cancer"), folder / "breast_cancer.parquet")
    environment = dict(os.environ, PYTHONPATH=str(ROOT), PWD=str(folder), COLUMNS="200", TREETAP_DATA=str(TABLES))
    for number, command in list(enumerate(row.commands, start=1))[done:]:
        began, clock = os.times(), time.perf_counter()
        out, err = (folder / f"{number}.{stream}" for stream in ("out", "err"))
        with out.open("wb") as to, err.open("wb") as said:
            run = subprocess.run(words_of(command), cwd=folder, env=environment, stdout=to, stderr=said, check=False)
        if run.returncode:
            lines = [line for stream in (out, err) for line in stream.read_text(errors="replace").splitlines()[-12:]]
            print(f"{row.name}: {command}: status {run.returncode}", *lines, sep="\n  ", file=sys.stderr, flush=True)
            return False
        ended = os.times()
        seconds = {"seconds": time.perf_counter() - clock, "processor": sum(ended[2:4]) - sum(began[2:4])}
        Results(folder / "commands.jsonl").add({"trial": {"command": command}, **seconds})
    for other in set(folder.parent.iterdir()) - {folder}:
        shutil.rmtree(other)
    return True


def _line(row: Row, workdir: Path) -> str:
    """Measured hours, and what is left."""
    done = finished(row, workdir)
    wall, processor = (sum(it[name] for it in done) / 3600 for name in ("seconds", "processor"))
    expected = "" if len(done) == len(row.commands) else f"; {row.hours:g} h are expected"
    return f"{row.name:20} {processor:.2f} h of a processor, in {wall:.2f} h{expected}"


def main() -> int:
    """Carry out what is missing, then list the rows; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the rows and run nothing")
    names = [row.name for row in ROWS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--workdir", type=Path, default=ROOT / "runs" / "stored-figures", help="what was measured")
    given = parser.parse_args()
    rows, workdir, status = [row for row in ROWS if row.name in given.only], given.workdir.resolve(), 0
    for number, row in enumerate([] if given.list else rows, start=1):
        if lacks := [name for name in row.data.split() if not (TABLES / name).is_file()]:
            print(f"{row.name}: skipped: TREETAP_DATA lacks {', '.join(lacks)}", file=sys.stderr, flush=True)
            status = 1
        elif len(finished(row, workdir)) < len(row.commands):
            print(f"[{number} of {len(rows)}] {row.name}: some {row.hours:g} h", file=sys.stderr, flush=True)
            status |= not carry_out(row, workdir)
    for row in rows:
        print(_line(row, workdir), *row.commands, f"{row.pages}: compare {folder_of(row, workdir)}", sep="\n    ")
    print(f"{sum(row.hours for row in rows):.1f} h of a processor, as expected")
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on with what is missing")
