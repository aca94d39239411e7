"""The compose file's audit: from the volumes that a job left to a report, by a container that reaches nobody."""

from __future__ import annotations

import json

import pytest

from tests.containers.composed import AUDIT_IMAGE, JOB, ROOT, Answer, Composed

# An image is built before the first test.
pytestmark = [
    pytest.mark.second_tier,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("containers"),
]


@pytest.fixture(scope="module")
def audited(composed: Composed, finished: Answer) -> Answer:
    """`docker compose run audit` after the job."""
    assert finished.status == 0, finished.text
    composed.client.images.build(
        path=str(ROOT),
        tag=AUDIT_IMAGE,
        target="audit",
        buildargs={"EXTRAS": "audit"},
        network_mode="host",
        rm=True,
        forcerm=True,
    )
    return composed.compose("run", "--rm", "-T", "audit", JOB=JOB)


def test_it_attacks_both_feature_parties_and_leaves_a_report(composed: Composed, audited: Answer) -> None:
    """Status 0, figures on the screen, and the same figures in the volume beside the page."""
    assert audited.status == 0, audited.text
    assert "What each side learned" in audited.text
    read = composed.compose("run", "--rm", "-T", "--entrypoint", "cat", "audit", "/var/lib/treetap/audit.json")
    document = json.loads(read.text[read.text.index("{") :])
    assert set(document["parties"]) == {"feature-b", "feature-c"}
    for party in document["parties"].values():
        assert not party["faults"]
        assert party["signed"].startswith("signed to the end by ")
        assert "of the given authority); job digest " in party["signed"]
        assert 0 < party["attacks"]["id2graph-quotient"]["v_measure"] <= 1
    page = composed.compose("run", "--rm", "-T", "--entrypoint", "cat", "audit", "/var/lib/treetap/audit.html")
    assert "<svg" in page.text


def test_its_exit_status_serves_a_pipeline(composed: Composed, audited: Answer) -> None:
    """Further words go to the command: a limit that is passed ends with 1."""
    assert audited.status == 0, audited.text
    words = ("--attacks", "id2graph-quotient", "--last-tree-only", "--fail-above", "id2graph=0")
    above = composed.compose("run", "--rm", "-T", "audit", *words, JOB=JOB)
    assert above.status == 1, above.text
    assert "above 0" in above.text
