"""The table `[telemetry]`: its faults by name, and what the environment may say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from treetap.coordinator.config import CoordinatorConfig
from treetap.errors import ConfigError
from treetap.metrics import ProcessMetrics
from treetap.party.config import read as read_party
from treetap.process.config import Secret, TelemetryConfig

NEAR, FAR = "http://127.0.0.1:4318/v1/traces", "https://collector.example:4318/v1/traces"
PARTY = 'name = "bank"\nstate = "state"\ninsecure = true\n[telemetry]\n'
COORDINATOR = 'state = "state"\ninsecure = true\nparties = {}\n[telemetry]\n'


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"endpoint": FAR}, "ca goes with https://"),
        ({"endpoint": NEAR, "ca": "ca.crt"}, "ca goes with https://"),
        ({"endpoint": "http://collector.example:4318/v1/traces"}, "use https:// and ca"),
        ({"endpoint": "collector:4318"}, "is an address such as"),
        ({"endpoint": "http://127.0.0.1:many/"}, "Port could not be cast"),
        ({"endpoint": "http://127.0.0.1/?token=t"}, "is an address such as"),
        ({"endpoint": NEAR, "headers": {"file": "h", "command": ["cat"]}}, "name one of"),
        ({"endpoint": NEAR, "headers": {"authorization": "t"}}, "Extra inputs"),
    ],
    ids=["no-ca", "ca-in-vain", "plain-and-far", "no-scheme", "port", "query", "two-sources", "inline"],
)
def test_faults_of_the_table(keys: dict[str, object], fault: str) -> None:
    """Each is refused by what is wrong; secrets have no key."""
    with pytest.raises(ValidationError, match=fault):
        TelemetryConfig.model_validate(keys)


def test_a_password_in_the_address_is_not_shown(tmp_path: Path) -> None:
    """Both kinds of files read the table, take paths from their folder, and name the key of a fault."""
    file = tmp_path / "party.toml"
    file.write_text(f'{PARTY}endpoint = "https://us:geheim@collector/"\n')
    with pytest.raises(ConfigError, match=r"telemetry\.endpoint: is an address without a user") as fault:
        read_party(file)
    assert "geheim" not in str(fault.value)
    for head, read in ((PARTY, read_party), (COORDINATOR, CoordinatorConfig.from_file)):
        file.write_text(f'{head}endpoint = "{FAR}"\nca = "ca.crt"\nheaders = {{ file = "/run/secrets/headers" }}\n')
        read_now = read(file).telemetry
        assert read_now is not None
        assert (read_now.ca, read_now.headers) == (tmp_path / "ca.crt", Secret(file=Path("/run/secrets/headers")))


def test_without_the_extra_a_process_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal names the party, the table and the command that installs it; without the table none is needed."""
    for name in ("spans",):
        monkeypatch.delitem(sys.modules, f"treetap.process.{name}", raising=False)
    for name in ["opentelemetry", *(name for name in sys.modules if name.startswith("opentelemetry."))]:
        monkeypatch.setitem(sys.modules, name, None)
    metrics = ProcessMetrics("party", "bank")
    metrics.export_spans(None)
    assert metrics.spans is None
    said = r"\[telemetry\] needs (opentelemetry\S*|requests): .*\[telemetry\]'"
    with pytest.raises(ConfigError, match=said) as fault:
        metrics.export_spans(TelemetryConfig(endpoint=NEAR))
    assert fault.value.party == "bank"
