"""Samples of what `python -m tests.campaign` fuzz, certificates and raw-bytes carry out as a whole."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool

from tests.campaign import certificate_matrix, raw_bytes, security
from tests.campaign.answering_servers import METHODS
from tests.campaign.boundaries import changed, changes
from tests.campaign.fuzz import carry_out
from tests.campaign.fuzz_cases import STORIES, cases, drawn, recorded
from tests.campaign.fuzz_many import told
from treetap.wire import callers
from treetap.wire.frame import PATHS
from treetap.wire.v2 import control_pb2, exchange_pb2

pytestmark = [pytest.mark.second_tier, pytest.mark.filterwarnings("ignore:a 512-bit")]

SAMPLE = 18
#: Tests of recorded stories run in one worker, which records them once.
of_recorded_stories = pytest.mark.xdist_group("recorded-stories")


@pytest.mark.campaign
@of_recorded_stories
def test_altered_messages_end_by_name_or_rightly(tmp_path: Path) -> None:
    """One field of one message has a boundary value: an error that is named, or the oracle's model and scores."""
    found = [(case, carry_out(case, tmp_path / str(number))) for number, case in enumerate(drawn(SAMPLE, seed=10))]
    print(dict(Counter(f"{case.place.way}, {outcome.kind}" for case, outcome in found)))
    assert [told(case, outcome) for case, outcome in found if outcome.kind == "finding"] == []
    assert sum(outcome.kind == "named" for _, outcome in found) > SAMPLE // 4
    assert sum(outcome.hit for _, outcome in found) > SAMPLE * 3 // 4


def test_every_certificate_meets_every_method(tmp_path: Path) -> None:
    """Each kind in each role is heard, refused or has no connection, as it must; wrong servers hear nothing."""
    found = certificate_matrix.conduct(tmp_path)
    print(found["cases"], found["kinds"])
    assert found["failing"] == []
    assert found["cases"] > 1300
    assert found["kinds"]["callers, heard"] == 57
    assert found["kinds"]["callers, no method"] == 21
    assert found["kinds"]["servers, heard"] == len(certificate_matrix.CALLS)


def test_the_matrix_has_every_method() -> None:
    """Those of all services that the protocol has; a new one cannot be left out."""
    pool = descriptor_pool.Default()
    names = {method for methods in METHODS.values() for method in methods}
    for file in ("approvals", "control", "exchange", "jobs", "overview", "serving"):
        for service in pool.FindFileByName(f"treetap/wire/v2/{file}.proto").services_by_name.values():
            assert {f"/{service.full_name}/{method.name}" for method in service.methods} <= names


def test_the_matrix_finds_a_server_that_compares_no_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is no yes-man."""
    of_role = callers.Callers._of_role
    monkeypatch.setattr(callers.Callers, "_of_role", lambda self, caller, *_: of_role(self, caller))
    monkeypatch.setattr(certificate_matrix, "NAMES", dict(list(certificate_matrix.NAMES.items())[:1]))
    monkeypatch.setattr("tests.campaign.certificates.DEFECTS", {})
    found = asyncio.run(certificate_matrix.callers(tmp_path))
    services = {"Control": ["Step"], "Approvals": ["List", "Decide", "Stand", "ListStanding", "Revoke"]}
    services["Overview"] = ["Show"]
    assert found.findings == [
        f"in order, party at party /treetap.wire.v2.{service}/{method}: heard, not refused"
        for service, methods in services.items()
        for method in methods
    ]


def test_bytes_that_are_no_message(tmp_path: Path) -> None:
    """INVALID_ARGUMENT by name from every gRPC method, a status of the caller's from every HTTP one; no traceback."""
    found = raw_bytes.conduct(tmp_path, noise=1)
    print(found["cases"], found["kinds"])
    assert found["failing"] == []
    assert found["kinds"]["gRPC"] >= 100


def test_requests_over_http_as_the_document_has_them(tmp_path: Path) -> None:
    """Drawn from the OpenAPI document: every answer has a status and a form that the document gives."""
    pytest.importorskip("aiohttp", reason="the HTTP endpoint needs the extra serve")
    from tests.campaign import http_requests

    found = http_requests.conduct(tmp_path, examples=15)
    print(found["cases"], found["kinds"])
    assert found["failing"] == []
    assert {"200", "422"} <= set(found["kinds"])


def test_the_page_has_a_row_for_every_command() -> None:
    """docs/assurance.md is rendered, and names a command for every campaign."""
    page = (Path(__file__).parents[2] / "docs" / "assurance.md").read_text()
    for name in security.COMMANDS:
        assert f"`python -m tests.campaign {name}" in page, f"run python -m tests.campaign {name}, then make assurance"


@of_recorded_stories
def test_cases_are_drawn_from_all_messages() -> None:
    """A seed is its cases; every word of every way is among them, and a change of a message is another message."""
    pytest.importorskip("torch", reason="needs treetap[neural]")
    assert drawn(50, seed=3) == drawn(50, seed=3) != drawn(50, seed=4)
    words: dict[str, set[str]] = {}
    for story in STORIES:
        for case in cases(story):
            words.setdefault(case.place.way, set()).add(case.place.word)
    # a check is of no job: what parties are asked then is altered as the operator's order
    assert words["request"] == set(PATHS[control_pb2.StepRequest]) - {"check_job"}
    assert words["message"] == set(PATHS[exchange_pb2.PeerMessage])
    assert words["event"] - {"progress"} == set(PATHS[control_pb2.StepResult]) - {"checked_job"}
    for place, message in recorded("boosting").items():
        assert [change for change in changes(message) if changed(message, change) == message] == [], place
