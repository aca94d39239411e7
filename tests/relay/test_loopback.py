"""Relayed callers come from loopback: what treetap decides by a place, it decides for addresses in its own files."""

from __future__ import annotations

import re

from tests.weight import PRODUCTION, ROOT, generated

#: What tells where a caller is, or that an address is on this host.
PLACE = re.compile(
    r"on_loopback\(|is_loopback|check_near\(|\.peer\(\)|getpeername|peername|sock_accept|127\.0\.0\.1|::1"
)
#: Module → why a relayed caller gains nothing by what it looks at.
LOOKS = {
    "party/config.py": "defaults of own addresses",
    "ops/gateway/config.py": "plain HTTP, to which no relay leads",
    "ops/gateway/http.py": "names of an endpoint to which no relay leads",
    "ops/gateway/http_connections.py": "a share of handshakes there, whoever calls",
    "coordinator/config.py": "defaults of own addresses",
    "lab/api/loopback.py": "own processes of a trial",
    "treetap/commands/approvals/client.py": "the default of a console's address",
    "ops/console/listening.py": "a console's address, to which no relay leads",
    "lab/experiment/all_runs.py": "a server that is called",
    "treetap/commands/health.py": "an own server that is called, under mutual TLS",
    "ops/doctor/configuration.py": "a dealer's own address",
    "party/approvals/job_checks.py": "a dealer's address, none of a peer's, this host's or a peer's relay's",
    "lab/local_federation.py": "own processes of a trial, under mutual TLS",
    "ops/new/cli.py": "addresses that are proposed",
    "ops/new/folders.py": "addresses that are proposed",
    "treetap/metrics.py": "names of metrics over plain HTTP, to which no relay leads",
    "treetap/names.py": "defines it",
    "treetap/process/config.py": "insecure = true, which excludes a relay",
    "treetap/tables/sql.py": "a database that is called",
    "treetap/wire/probe.py": "a process that is called without certificates",
    "treetap/wire/listening.py": "own addresses",
    "treetap/wire/proxies.py": "a host that is called",
    "ops/relay/meeting.py": "shares of the relay's callers by address",
    "treetap/wire/rpc.py": "binding, and a process that is called, without certificates",
    "treetap/wire/tls.py": "defines it, for no certificates",
    "treetap/workers/cluster/nodes.py": "nodes of an own cluster",
}


def test_no_service_goes_by_where_a_caller_comes_from() -> None:
    """A module that begins to look at places belongs into the table, with the reason why a relay does not matter."""
    looking = {
        str(path.relative_to(ROOT))
        for folder in PRODUCTION
        for path in (ROOT / folder).rglob("*.py")
        if not generated(path) and PLACE.search(path.read_text(encoding="utf-8"))
    }
    assert looking == set(LOOKS)
