"""`treetap protocol`: it prints what a protocol's text says, and draws every step and message."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.needs import needs_library_of
from tests.protocol_texts import FOLDER, NAMES
from treetap.commands.protocol import show, shown
from treetap.errors import ConfigError

#: A line of a text: a content, the classes of which some are not certain, who sends it to whom.
SENT = re.compile(r"(\w+): ([A-Z_? ]+)(, by tables)?: \S+>")
#: A line of a step, and a step that may follow it.
DONE, FOLLOWS = re.compile(r"(\w+): "), re.compile(r"(?:^|; )(\w+) \(")
ALL = [pytest.param(name, marks=[pytest.mark.second_tier] if name == "splitnn" else []) for name in NAMES]


@pytest.mark.parametrize("name", ALL)
def test_the_printed_table_is_as_the_text_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each step the steps that may follow, at every actor; of each message its classes, by the jobs of the text."""
    needs_library_of(name)
    parts = [
        part
        for part in re.split(
            r"^# (?:training|prediction)\n", (FOLDER / f"{name}.txt").read_text(encoding="utf-8"), flags=re.M
        )
        if part
    ]
    show(name, None, as_json=True)
    printed: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert len(printed) == len(parts)
    for one, part in zip(printed, parts, strict=True):
        follows, sent = _of_text(part)
        # (step, step that may follow) of a printed table; phases have their words.
        phases = {"the steps of the alignment": "alignment", "the step of the names": "names"}
        pairs = set()
        for step in one["steps"]:
            for may_come in step["may_follow"]:
                words = next((phase for said, phase in phases.items() if may_come.startswith(said)), None)
                pairs.add((step["step"], words or re.split(r"[( ]", may_come)[0]))
        assert pairs == follows
        messages = {}
        for message in one["messages"]:
            classes = {*message["classes"], *(f"{cls}?" for cls in message["perhaps"])}
            messages.setdefault(message["message"], set()).add(frozenset(classes))
        assert messages == sent


def _of_text(part: str) -> tuple[set[tuple[str, str]], dict[str, set[frozenset[str]]]]:
    """The same of a text, and content → its classes in some job."""
    follows, sent = set[tuple[str, str]](), dict[str, set[frozenset[str]]]()
    steps = False
    for line in part.splitlines():
        if line.startswith("## "):
            steps = line.startswith("## steps")
        elif steps:
            done, _, after = line.partition(": ")
            follows |= {(done, name) for name in FOLLOWS.findall(after)}
        elif found := SENT.match(line):
            sent.setdefault(found[1], set()).add(frozenset(found[2].split()))
    return follows, sent


@pytest.mark.parametrize("name", ALL)
def test_a_message_is_sent_in_a_step_of_its_sender(name: str) -> None:
    """Each row names a step that some actor has, alignment and names included; answers of every step name none."""
    needs_library_of(name)
    for one in shown(name):
        steps = {step.step for step in one.steps}
        phases = {
            "blind_ids",
            "pass_ids",
            "match_ids",
            "agree_ids",
            "prove_ids",
            "send_digest",
            "compare_digests",
            "name_features",
            "number_columns",
        }
        for message in one.messages:
            of_any_step = ("done", "accounted")
            assert {message.step, *message.also} <= steps | phases or message.message in of_any_step, message
            assert message.at_most or message.often == "in answer", message


@pytest.mark.parametrize("name", ALL)
def test_the_picture_has_every_step_and_message(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A valid document with a text for each; what is drawn is what is printed."""
    needs_library_of(name)
    show(name, tmp_path / "drawn.svg", as_json=False)
    capsys.readouterr()
    root = ElementTree.parse(tmp_path / "drawn.svg").getroot()
    texts = {(text.text or "").partition(" (")[0] for text in root.iter("{http://www.w3.org/2000/svg}text")}
    one = shown(name)[0]
    called = {"alignment": "the alignment", "names": "the names"}
    assert {called.get(step.step, step.step) for step in one.steps} - {"opening"} <= texts
    assert {message.message for message in one.messages if message.step} <= texts


def test_protocols_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name each protocol is a line, also one whose library is not installed; a wrong name is refused."""
    show("", None, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(NAMES)
    assert "splitnn: trains and predicts" in lines
    with pytest.raises(ConfigError, match="did you mean 'boosting'"):
        show("boostin", None, as_json=False)
