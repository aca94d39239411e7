"""`treetap forget`: a forgotten id is in no file of the state folder, and the rest is as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from party.forgetting.forget import forget
from party.forgetting.kinds import row_of
from party.trail.verify import misfits, removed
from tests.campaign.small_jobs import PREDICTIONS, PREVIEWS, TRAININGS, begin, play, trained, training_of
from tests.forgetting.searched import holding
from tests.serving.served import IDS
from tests.simulator import Federation, run
from treetap.models.store import read_manifest
from treetap.tables.record_ids import Ids

FIRST = ["serving", "eini", "preview of records"]
STORIES = [*FIRST, *(story for story in (*TRAININGS, *PREDICTIONS, *PREVIEWS) if story not in FIRST)]
#: Of the training, and of the prediction.
GONE = ["r00003", IDS[0]]


def _played(folder: Path, story: str) -> Federation:
    """A federation at its end, whose parties count queries of records."""

    async def main() -> Federation:
        federation = begin(folder, story)
        for name, config in federation.configs.items():
            partners: dict[str, Any] = {"*": {"queries_per_record": 9}}
            policy = config.policy.model_validate(
                {**config.policy.model_dump(exclude_unset=True), "partners": partners}
            )
            federation.configs[name] = config.under(policy)
            federation.kill(name)
            federation.start(name)
        status = await play(federation, story)
        assert status.state in ("finished", "cancelled"), status.error
        await federation.close()
        return federation

    if story not in (*TRAININGS, *PREVIEWS):
        trained(training_of(story))
    return run(main())


def _content(state: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}


@pytest.mark.second_tier(but=len(FIRST))
@pytest.mark.parametrize("story", STORIES)
def test_a_forgotten_id_is_in_no_file(story: str, tmp_path: Path) -> None:
    """Neither as text nor as a hash that the party can compute; all files of the state folder have a kind."""
    federation = _played(tmp_path, story)
    for name, config in federation.configs.items():
        before, had = _content(config.state), holding(config.state, GONE)
        assert [place for place in before if row_of(place.relative_to(config.state).as_posix()) is None] == []
        looked = forget(config, Ids.of(GONE), dry=True, transcripts=True)
        assert _content(config.state) == before, name
        done = forget(config, Ids.of(GONE), dry=False, transcripts=True)
        assert (done.files, done.removed) == (looked.files, looked.removed)
        assert had == {*done.files, *(place for place in had if place.split("/")[1] in done.removed)}
        assert holding(config.state, GONE) == set()
        assert forget(config, Ids.of(GONE), dry=False, transcripts=True).files == {}
        for model in (config.state / "models").iterdir():
            read_manifest(model)
        assert [fault for fault in misfits(config) if "signed" not in fault] == []
        assert [f"transcripts of {', '.join(done.removed)}" in line for line in removed(config)] == [True] * bool(
            done.removed
        )
        trail = (config.state / "trail.jsonl").read_text().splitlines()
        line = next(line for line in map(json.loads, trail) if line["kind"] == "erased")
        assert line.keys() <= {"kind", "seconds", "records", "transcripts", "sha256"}, line.keys()
