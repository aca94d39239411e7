"""Protocols as text: the steps of their roles, and what their jobs send, each by a line.

`python -m tests.protocol_texts` writes tests/fixtures/protocols/NAME.txt; `tests/runtime/test_protocol_texts.py`
compares them with what is declared today, so that a change of a protocol is read as a change of its text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.replay import JOB
from tests.simulator import COORDINATOR
from tests.step_tables import lines_of
from tests.trainings import jobs_of
from tests.worlds import spec
from treetap.coordinator.prediction import opening_of
from treetap.party.prediction.steps import table_for
from treetap.party.protocols import PREDICTION, TRAINING, roles_for_prediction, roles_for_training
from treetap.party.runtime.step_order import StepTable, table_of
from treetap.protocols.alignment import ALIGNMENTS
from treetap.protocols.exclusions import Feature
from treetap.protocols.job_spec import sent_in_training
from treetap.protocols.messages import Sent
from treetap.protocols.prediction import predict_request, sent_in_prediction
from treetap.protocols.registry import prediction, training
from treetap.wire.disclosure import classes_within, own_classes
from treetap.wire.frame import frame_of, type_of
from treetap.wire.v2 import setup_pb2

FOLDER = Path(__file__).parent / "fixtures" / "protocols"
NAMES = tuple(dict.fromkeys([*TRAINING, *PREDICTION]))
#: Predictions of a protocol by what they are asked for, of those that it has.
ASKED: dict[str, dict[str, Any]] = {
    "of a table": {},
    "served": {"serve": True},
    "served with look-ups": {"serve": True, "look_up": True},
    "served with reasons": {"serve": True, "reasons": True},
    "explained": {"explain": True},
    "with attributions": {"attributions": True},
}


def text_of(name: str) -> str:
    """All that is declared of a protocol, of its training and its prediction where both have the name."""
    lines: list[str] = []
    if name in TRAINING:
        lines += ["# training", *_steps(training_tables(name)), *_sent(trainings(name))]
    if name in PREDICTION:
        lines += ["# prediction", *_steps(prediction_tables(name)), *_sent(predictions(name))]
    return "\n".join(lines) + "\n"


def training_tables(name: str) -> dict[str, StepTable]:
    """Role → its table."""
    return {kind.__module__.rpartition(".")[2]: table_of(kind) for kind in roles_for_training(name).values()}


def prediction_tables(name: str) -> dict[str, StepTable]:
    """Role → its table."""
    return {
        kind.__module__.rpartition(".")[2]: table_for(name, table_of(kind))
        for kind in roles_for_prediction(name).values()
    }


def trainings(name: str) -> dict[str, list[Sent]]:
    """All that jobs of a protocol send, by what is special about the job."""
    found = {}
    for case, job in jobs_of(name).EMITTING.items():
        for alignment in ALIGNMENTS:
            order = setup_pb2.JobSpec()
            order.CopyFrom(job)
            order.alignment = alignment
            found[f"{case}, {alignment}"] = list(sent_in_training(order, COORDINATOR))
    return found


def predictions(name: str) -> dict[str, list[Sent]]:
    """The same of predictions."""
    described, trains = prediction(name), next(each for each in TRAINING if name in training(each).predicts)
    job = JOB if trains == "boosting" else spec(jobs_of(trains).PARAMS)
    lacking = {
        "served": Feature.SERVE not in described.capabilities,
        "served with look-ups": Feature.LOOK_UP not in described.capabilities,
        "served with reasons": Feature.REASONS not in described.capabilities,
        "explained": Feature.EXPLAIN not in described.capabilities,
        "with attributions": not described.sends_attributions,
    }
    found, aligned = {}, {alignment: setup_pb2.JobSpec() for alignment in ALIGNMENTS}
    for alignment, its in aligned.items():
        its.MergeFrom(job)
        its.alignment = alignment
    for case, options in ASKED.items():
        for alignment in () if lacking.get(case) else ALIGNMENTS:
            if alignment == "sorted-ids" and "look_up" in options:
                continue
            opening = opening_of(predict_request(name, model="m", **options), aligned[alignment], "", "")
            found[f"{case}, {alignment}"] = list(sent_in_prediction(opening, COORDINATOR))
    return found


def _steps(tables: dict[str, StepTable]) -> Iterator[str]:
    for role, table in sorted(tables.items()):
        yield f"## steps of {role}"
        lines = {line.done: [] for line in lines_of(table)} | {done: [] for done in table}
        for line in sorted(lines_of(table), key=lambda line: (line.step, line.place, line.when or "")):
            place = line.place.lower().replace("_", " ")
            lines[line.done].append(f"{line.step} ({place}){f' if {line.when}' if line.when else ''}")
        for done, after in sorted(lines.items()):
            yield f"{done}: {'; '.join(after) or 'nothing'}"


def _sent(jobs: dict[str, list[Sent]]) -> Iterator[str]:
    for case, sent in sorted(jobs.items()):
        yield f"## sent {case}"
        yield from _contents(sent)


def _contents(sent: Iterable[Sent]) -> Iterator[str]:
    """A line for each content: its classes, those that are not certain with a question mark, and its pairs."""
    pairs: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for each in sent:
        possible = classes_within(type_of(each.content)) | own_classes(frame_of(each.content))
        classes = [name if name in each.classes else f"{name}?" for name in sorted(possible)]
        says = f"{' '.join(classes)}{', by tables' if each.by_tables else ''}"
        pairs[each.content, says].add(f"{each.sender}>{each.receiver}")
    for (content, says), routes in sorted(pairs.items()):
        yield f"{content}: {says}: {' '.join(sorted(routes))}"


def main() -> None:
    """Write the texts."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (FOLDER / f"{name}.txt").write_text(text_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
