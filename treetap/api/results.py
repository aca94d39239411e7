"""Results as objects with data frames: of `treetap.experiment` and of `treetap.audit`."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from treetap.api.errors import InvalidInput
from treetap.api.frames import data_frame, frame_of
from treetap.api.models import LoadedModel, PartyModel, load_model
from treetap.tables.written import written

#: Keys of a run that say which it is.
_KEYS = ("seed", "fold")


class AuditResult:
    """Inferences that curious parties could draw. `document`: the audit's JSON document; `report`: its page."""

    def __init__(self, document: Mapping[str, Any], report: Path) -> None:
        self.document, self.report = dict(document), report

    @property
    def attacks(self) -> Any:
        """A row per party and attack: `v_measure`, `accuracy`, `groups`, as far as the attack has them."""
        rows = [
            {"party": party, "attack": name, **{key: each.get(key) for key in ("v_measure", "accuracy", "groups")}}
            for party, found in self.document["parties"].items()
            for name, each in found["attacks"].items()
        ]
        return frame_of(rows, ("party", "attack", "v_measure", "accuracy", "groups"))

    def v_measure(self, party: str, attack: str) -> float:
        """V-measure of the groups in which a party's attack sorts the training records: 0 chance, 1 the labels.

        Raises:
            ValueError: the audit has no such party or attack.
        """
        found = self.document["parties"].get(party, {"attacks": {}})["attacks"].get(attack)
        if found is None:
            raise InvalidInput(f"the audit has no attack {attack!r} of party {party!r}")
        return float(found["v_measure"])

    def __repr__(self) -> str:
        return f"Audit: {self.report}\n{self.attacks}"

    def _repr_html_(self) -> str:
        return _page("Audit", {"attacks": self.attacks}, f"report: {self.report}")


class ExperimentResult:
    """The runs of an experiment. `document`: as `treetap experiment --json`; `folder`: of all results.

    Frames have a row per run and more, with its `seed` and, of cross-validation, `fold`.
    """

    def __init__(self, document: Mapping[str, Any], folder: Path, page: Path) -> None:
        self.document, self.folder, self.report = dict(document), folder, page

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The reports of the runs."""
        return list(self.document["runs"])

    @property
    def metrics(self) -> Any:
        """A row per run and set of records (`set`): train, test, and centralised models where they were compared."""
        return self._frame(
            lambda run: ({"set": name, **measured} for name, measured in run["metrics"].items()), ("set",)
        )

    @property
    def traffic(self) -> Any:
        """Bytes by sender, receiver, step and disclosure class."""
        return self._frame(lambda run: run["traffic"], ("from", "to", "step", "class", "messages", "bytes"))

    @property
    def importance(self) -> Any:
        """Gain, cover and number of splits by party and feature."""
        return self._frame(lambda run: run["importance"], ("party", "feature", "weight", "gain", "cover"))

    @property
    def history(self) -> Any:
        """Metrics after each round."""
        return self._frame(
            lambda run: ({"round": number, **row} for number, row in enumerate(run["history"])), ("round",)
        )

    @property
    def seconds(self) -> Any:
        """Wall time by phase."""
        return self._frame(
            lambda run: ({"phase": name, "seconds": value} for name, value in run["seconds"].items()),
            ("phase", "seconds"),
        )

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

        def rows(run: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
            for party, attacks in (run.get("audit") or {}).items():
                for name, each in attacks.items():
                    figures = {key: each.get(key) for key in ("v_measure", "accuracy", "groups")}
                    yield {"party": party, "attack": name, **figures}

        return self._frame(rows, ("party", "attack", "v_measure", "accuracy", "groups"))

    def federation(self, run: int = 0) -> Path:
        """The folder of a run's processes: their tables, states, transcripts and logs."""
        return Path(next(iter(self.runs[run]["model"].values()))).parents[3]

    def model(self, run: int = 0) -> LoadedModel | PartyModel:
        """The joint model of a run; raises as `treetap.load_model`."""
        return load_model(self.federation(run))

    def _frame(self, rows: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]], columns: tuple[str, ...]) -> Any:
        named = [key for key in _KEYS if any(key in run for run in self.runs)]
        found = [{**{key: run.get(key) for key in named}, **row} for run in self.runs for row in rows(run)]
        keys = list(dict.fromkeys(key for row in found for key in row))
        return frame_of([{key: row.get(key) for key in keys} for row in found], (*named, *columns))

    def __repr__(self) -> str:
        return f"Experiment of {len(self.runs)} run{'' if len(self.runs) == 1 else 's'}: {self.folder}\n{self.metrics}"

    def _repr_html_(self) -> str:
        tables = {"metrics": self.metrics}
        if any(run.get("audit") for run in self.runs):
            tables["audit"] = self.audits
        return _page("Experiment", tables, f"report: {self.report}")


def _page(title: str, tables: Mapping[str, Any], foot: str) -> str:
    """Tables as HTML; of Arrow as text."""
    parts = [f"<b>{html.escape(title)}</b>"]
    for name, table in tables.items():
        shown = table._repr_html_() if hasattr(table, "_repr_html_") else f"<pre>{html.escape(str(table))}</pre>"
        parts.append(f"<p>{html.escape(name)}</p>{shown}")
    return "".join([*parts, f"<p>{html.escape(foot)}</p>"])
