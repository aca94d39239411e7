"""The commands of operation, as a list shows them; entry points of the group `treetap.ops` name these rows."""

from __future__ import annotations

from treetap.commands.lazy import OPERATE, PARTY, PRIVACY, Row

CERTS = Row("treetap.ops.certs.cli", "A private certificate authority for a federation.", PARTY)
DECISIONS = Row(
    "treetap.ops.decisions",
    "What a label holder that serves has answered to whom, and what it refused: its decision log.",
    PRIVACY,
)
NEW = Row("treetap.ops.new.cli", "Folders of a federation, or of one of its processes, to start from.", PARTY)
DOCTOR = Row(
    "treetap.ops.commands",
    "Check a process: certificates, addresses, clocks, versions, tables, folders; without --config the kernels.",
    PARTY,
)
CONSOLE = Row(
    "treetap.ops.commands",
    "Serve pages for one of a party's people: what goes on there, and the jobs to decide about.",
    PARTY,
)
FORGET = Row(
    "treetap.ops.commands",
    "Forget persons: take their records out of this party's state folder, and name what that does not reach.",
    PRIVACY,
)
EVIDENCE = Row(
    "treetap.ops.commands",
    "Write a folder of evidence about a model, for data protection, model risk and auditors: facts with their sources.",
    PRIVACY,
)
GATEWAY = Row(
    "treetap.ops.commands",
    "Serve a gateway until SIGTERM: clients ask it over HTTP, and it asks the party. It has no table, label or key.",
    OPERATE,
)
RELAY = Row(
    "treetap.ops.commands",
    "Serve a relay until SIGTERM: one public port for processes that can only dial out. It opens no TLS but its own.",
    OPERATE,
)
