"""Every line of a protocol's tables of steps is taken in some prediction, and no prediction takes another step."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from party.prediction.order import table_for
from party.runtime.step_order import id_of
from tests.replay import CLOSING
from tests.serving.served import IDS, WAYS, ask, serving
from tests.simulator import run
from tests.step_tables import Asked, Line, TableReader, lines_of, table_at, taken
from tests.worlds import PARTIES
from treetap.protocols.prediction import predict_request
from treetap.wire.frame import name_of

LABEL_HOLDER, B, C = PARTIES


#: Protocol → the tables of the label holder and of the feature parties, and predictions of a table in two blocks.
PROTOCOLS: dict[str, tuple[Any, Any, list[dict[str, bool]]]] = {
    "interactive": (
        table_at("interactive.label_holder"),
        table_at("interactive.feature_party"),
        [{"explain": True}, {}],
    ),
    "eini": (
        table_at("eini.label_holder"),
        table_at("eini.feature_party"),
        [{"explain": True, "attributions": True}, {}],
    ),
    "eini-lattice": (
        table_for("eini-lattice", table_at("eini.label_holder")),
        table_for("eini-lattice", table_at("eini.feature_party")),
        [{"explain": True}, {}],
    ),
}
POLICIES = {name: {"emits": {"EXPLANATION": ["parties"], "FEATURE_NAME": ["parties"]}} for name in (B, C)}


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_line_is_taken(protocol: str, tmp_path: Path) -> None:
    """A served model with and without requests, then predictions of two blocks, explained and not."""
    label_holder, feature_party, predictions = PROTOCOLS[protocol]
    lines: dict[str, set[Line]] = {name: set() for name in PARTIES}

    async def main() -> None:
        async with serving(tmp_path, WAYS[protocol], policies=POLICIES) as federation:
            await ask(federation, IDS[0])
            await asyncio.sleep(6)
            for k in (1, 2, 3):  # blocks after the first one may take other steps
                await ask(federation, IDS[k])
            explained = set()
            for number, changes in enumerate(predictions):
                job = f"p{number}"
                if changes:
                    explained.add(job)
                asked = predict_request(model="job", job=job, block=4, **{**WAYS[protocol], **changes})
                status = await federation.predict(asked)
                assert (status.state, status.error) == ("finished", "")
            steps: defaultdict[tuple[str, str], list[Asked]] = defaultdict(list)
            for kind, to, request in federation.conducted:
                if kind == "end" and request.job != "job" and name_of(request) not in CLOSING:
                    steps[to, request.job].append(id_of(request))
            for (name, job), done in steps.items():
                own = name == LABEL_HOLDER
                naming = ("take_names" if own else "name_features") if job in explained else None
                aligning = "compare_digests" if own else "send_digest"
                reader = TableReader(label_holder if own else feature_party, aligning, naming=naming)
                lines[name] |= taken(reader, done)

    run(main())
    assert lines[LABEL_HOLDER] == lines_of(label_holder)
    assert lines[B] | lines[C] == lines_of(feature_party)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_step_has_a_row(protocol: str) -> None:
    """Every step that may come has a row of its own, so no step is a dead end."""
    for table in PROTOCOLS[protocol][:2]:
        assert {line.step for line in lines_of(table)} <= set(table)
