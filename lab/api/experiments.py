"""`treetap.experiment` and `treetap.audit`: the commands of these names, with objects in the place of files."""

from __future__ import annotations

import html
import importlib
import json
import os
import sys
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from treetap import terminal
from treetap.commands.jobs import progress_view
from treetap.lab.api.frames import InvalidInput, arrow_of, checked, data_frame, frame_of
from treetap.lab.api.models import LoadedModel, PartyModel, load_model
from treetap.lab.experiment.all_runs import PAGE, run_experiment
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.kept import RUNS, TABLE, opened
from treetap.lab.experiment.results import OF_COLUMNS, Results, RunResult
from treetap.strict import load, text_of
from treetap.tables.sending import VERDICTS
from treetap.tables.written import written
from treetap.version import install


def experiment(
    file: str | Path | Mapping[str, Any],
    *,
    frame: Any = None,
    workdir: str | Path | None = None,
    verbose: bool = True,
) -> ExperimentResult:
    """Split one table between parties and run the federation on it, once per seed or fold.

    Args:
        file: an experiment file (docs/experiment.md), or its content as a dictionary.
        frame: the joined table as a data frame, in the place of `[data] path`.
        workdir: a new or empty folder for the results; by default the next free one of `runs/NAME`.
        verbose: show progress.

    Raises:
        ValueError: the experiment or its table cannot be used.
        TreetapError: a run failed; results of those that finished are in the folder.
    """
    place = None if isinstance(file, Mapping) else Path(file)
    with checked(ExperimentFile):
        if place is not None:
            given = load(place, ExperimentFile)
        else:
            assert isinstance(file, Mapping)
            # a table in memory takes the place of a path, which the schema asks for
            usual = {} if frame is None else {"path": TABLE}
            given = ExperimentFile.model_validate({**file, "data": {**usual, **file.get("data", {})}})
        name = "experiment" if place is None else place.stem
        base = Path() if place is None else place.absolute().parent
        mlflow = given.output.mlflow_address(base)
        kept = opened(
            given,
            RUNS / name if workdir is None else Path(workdir),
            base=base,
            table=None if frame is None else arrow_of(frame),
            file=None if place is None else text_of(place),
            name=name if place is None else str(place),
            place="numbered" if workdir is None else "empty",
        )
        live = progress_view.live if verbose else lambda _: nullcontext(lambda _: None)
        results = run_experiment(kept, name=name, mlflow=mlflow, live=live)
    return ExperimentResult(results, Path(results.folder or ""))


def audit(
    run: str | Path | ExperimentResult,
    *,
    attacks: Sequence[str] | None = None,
    by_tree: bool | Literal["few"] = "few",
    number: int = 0,
) -> AuditResult:
    """Attack the transcripts of a run's feature parties, and measure what each could infer about the labels.

    Args:
        run: a folder that holds audit.toml, or a result of `treetap.experiment` with an `audit` table.
        attacks: their names; by default all that fit (docs/measure.md).
        by_tree: group records after each number of trees; "few": after 1, 2, 5, 10, … and all; False: all.
        number: of a result, which of its runs.

    Raises:
        ImportError: the attacks need the extra `audit`.
        ValueError: there is no audit.toml, an attack is not known, or a transcript was changed.
    """
    folder = run.federation(number) if isinstance(run, ExperimentResult) else Path(run)
    try:
        from treetap.lab.experiment import audited
    except ModuleNotFoundError as missing:
        raise ImportError(f"treetap.audit needs {missing.name}: {install('audit')}", name=missing.name) from None
    with checked():
        document = audited.audit_folder(folder, attacks=attacks, by_tree=by_tree)
    return AuditResult(document, folder / audited.REPORT)


#: Columns of a frame of attacks, and of one of verdicts.
_ATTACKS = ("party", "attack", "v_measure", "accuracy", "groups")
_VERDICTS = tuple(VERDICTS.names)


class AuditResult:
    """Inferences that curious parties could draw. `document`: the audit's JSON document; `report`: its page."""

    def __init__(self, document: Mapping[str, Any], report: Path) -> None:
        self.document, self.report = dict(document), report

    @property
    def attacks(self) -> Any:
        """A row per party and attack: `v_measure`, `accuracy`, `groups`, as far as the attack has them."""
        parties = {party: results["attacks"] for party, results in self.document["parties"].items()}
        return frame_of(list(_attacks(parties)), _ATTACKS)

    @property
    def verdicts(self) -> Any:
        """A row per party and direction: what it could guess `before` and `after`, and a `word` for it."""
        rows = [{key: row.get(key) for key in _VERDICTS} for row in self.document["verdicts"]]
        return frame_of(rows, _VERDICTS)

    def show(self) -> None:
        """Show what each side learned and the report: see `ExperimentResult.show`."""
        _show(self._lines, self.report)

    @property
    def _lines(self) -> list[str]:
        from treetap.lab.experiment.audited import verdict_lines

        return verdict_lines(self.document)

    def v_measure(self, party: str, attack: str) -> float:
        """V-measure of the groups in which a party's attack sorts the training records: 0 chance, 1 the labels.

        Raises:
            ValueError: the audit has no such party or attack.
        """
        figures = self.document["parties"].get(party, {"attacks": {}})["attacks"].get(attack)
        if figures is None:
            raise InvalidInput(f"the audit has no attack {attack!r} of party {party!r}")
        return float(figures["v_measure"])

    def __repr__(self) -> str:
        return "\n".join([f"Audit: {self.report}", *self._lines])

    def _repr_html_(self) -> str:
        return _page("Audit", {"verdicts": self.verdicts, "attacks": self.attacks}, f"report: {self.report}")


class ExperimentResult:
    """The runs of an experiment. `results`: as `treetap experiment --json` has them; `folder`: of all files.

    Frames have a row per run and more, with its `seed` and, of cross-validation, `fold`.
    """

    def __init__(self, results: Results, folder: Path) -> None:
        self._results, self.folder, self.report = results, folder, folder / PAGE

    @property
    def document(self) -> dict[str, Any]:
        """The document of `treetap experiment --json`."""
        return self._results.plain()

    @property
    def headline(self) -> str | None:
        """Together against alone in one line; None where it was not compared."""
        return self._results.headline

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The reports of the runs in the document."""
        return list(self.document["runs"])

    @property
    def metrics(self) -> Any:
        """A row per run and set of records (`set`): train, test, and centralised models where they were compared."""
        return self._frame(lambda run: ({"set": name, **measured} for name, measured in run.metrics.items()), ("set",))

    @property
    def traffic(self) -> Any:
        """Bytes by sender, receiver, step and disclosure class."""
        columns = ("from", "to", "step", "class", "messages", "bytes")
        return self._frame(lambda run: (row.plain() for row in run.traffic), columns)

    @property
    def importance(self) -> Any:
        """Gain, cover and number of splits by party and feature."""
        columns = ("party", "feature", "weight", "gain", "cover")
        return self._frame(lambda run: (row.plain() for row in run.importance), columns)

    @property
    def history(self) -> Any:
        """Metrics after each round."""
        return self._frame(lambda run: ({"round": number, **row} for number, row in enumerate(run.history)), ("round",))

    @property
    def seconds(self) -> Any:
        """Wall time by phase."""
        columns = ("phase", "seconds")
        return self._frame(lambda run: (dict(zip(columns, item, strict=True)) for item in run.seconds.items()), columns)

    @property
    def predictions(self) -> Any:
        """Predictions of the held-out rows, beside their ids and labels; `run` is the file's name."""
        tables = []
        for path in sorted((self.folder / "predictions").iterdir()):
            read = written(path)
            tables.append(read.add_column(0, "run", pa.array([path.stem] * read.num_rows)))
        return data_frame(pa.concat_tables(tables, promote_options="permissive"))

    @property
    def audits(self) -> Any:
        """A row per run, party and attack, as of `AuditResult`; empty without an audit."""
        return self._frame(lambda run: _attacks(run.audit or {}), _ATTACKS)

    def show(self) -> None:
        """Print what federating gains and what each side learned, and show the report.

        In a notebook the report is a page in the output; elsewhere it opens in a browser if there is a screen.
        """
        _show(self._lines, self.report)

    @property
    def _lines(self) -> list[str]:
        """Together against alone, and the verdicts of each run that was audited."""
        lines = [] if self.headline is None else [self.headline]
        runs = self._results.runs
        for number, run in enumerate(runs):
            if run.audit is None:
                continue
            from treetap.lab.experiment.audited import DOCUMENT, verdict_lines

            document = self.federation(number) / DOCUMENT
            if document.is_file():
                lines += [f"{run.planned.title}:"] if len(runs) > 1 else []
                lines += verdict_lines(json.loads(document.read_text(encoding="utf-8")))
        return lines

    def federation(self, run: int = 0) -> Path:
        """The folder of a run's processes: their tables, states, transcripts and logs."""
        return self._results.runs[run].federation

    def model(self, run: int = 0) -> LoadedModel | PartyModel:
        """The joint model of a run; raises as `treetap.load_model`."""
        return load_model(self.federation(run))

    def _frame(self, rows: Callable[[RunResult], Iterable[Mapping[str, Any]]], columns: tuple[str, ...]) -> Any:
        runs = self._results.runs
        named = list(dict.fromkeys(key for run in runs for key in run.planned.keys))
        every = [{**dict.fromkeys(named), **run.planned.keys, **row} for run in runs for row in rows(run)]
        keys = list(dict.fromkeys(key for row in every for key in row))
        return frame_of([{key: row.get(key) for key in keys} for row in every], (*named, *columns))

    def __repr__(self) -> str:
        count = len(self._results.runs)
        said = f"Experiment of {count} run{'' if count == 1 else 's'}: {self.folder}\n{self.metrics}"
        return said if self.headline is None else f"{self.headline}\n{said}"

    def _repr_html_(self) -> str:
        tables = {"metrics": self.metrics}
        if any(run.audit for run in self._results.runs):
            tables["audit"] = self.audits
        return _page(self.headline or "Experiment", tables, f"report: {self.report}")


def _attacks(parties: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    """A row per party and attack on labels."""
    for party, attacks in parties.items():
        for name, figures in attacks.items():
            if name in OF_COLUMNS:
                continue
            yield {"party": party, "attack": name, **{key: figures.get(key) for key in _ATTACKS[2:]}}


def _page(title: str, tables: Mapping[str, Any], foot: str) -> str:
    """Tables as HTML; of Arrow as text."""
    parts = [f"<b>{html.escape(title)}</b>"]
    for name, table in tables.items():
        shown = table._repr_html_() if hasattr(table, "_repr_html_") else f"<pre>{html.escape(str(table))}</pre>"
        parts.append(f"<p>{html.escape(name)}</p>{shown}")
    return "".join([*parts, f"<p>{html.escape(foot)}</p>"])


#: Pixels of a report's page in a notebook.
_HEIGHT = 560
#: Variables that name a screen, where a system has none without.
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")


def _show(lines: Sequence[str], report: Path) -> None:
    """Lines and a page in a notebook; else lines, and the page in a browser where one has a screen."""
    text = "\n".join([*lines, f"report: {report}"])
    if not report.exists():  # a page that could not be drawn
        print("\n".join(lines))
        return
    if terminal.err.is_jupyter:
        shown: Any = importlib.import_module("IPython.display")  # of notebooks alone
        page = html.escape(report.read_text(encoding="utf-8"), quote=True)
        frame = f'<iframe srcdoc="{page}" sandbox="allow-scripts" width="100%" height="{_HEIGHT}"></iframe>'
        content = {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>{frame}"}
        shown.display(content, raw=True)
        return
    print(text)
    if sys.platform in ("darwin", "win32") or any(map(os.environ.get, _SCREENS)):
        webbrowser.open(report.absolute().as_uri())
