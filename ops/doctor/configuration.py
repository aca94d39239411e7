"""`treetap doctor`: checks of a process's configuration before a job runs; without one, of the compiled kernels.

Changes nothing, except for a file in the state folder that is removed at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from treetap.commands.approvals.client import ApproverConfig
from treetap.commands.jobs.client import OperatorConfig
from treetap.coordinator.config import CoordinatorConfig
from treetap.errors import BadInput, ConfigError, DataError, did_you_mean
from treetap.names import NAME_RULE, matched, on_loopback
from treetap.native import arithmetic, library
from treetap.native import lattice as native
from treetap.ops.doctor.bundle import write_bundle
from treetap.ops.doctor.connections import (
    Checks,
    Finding,
    check_certificate,
    check_http,
    check_listen,
    check_metrics,
    check_proxy,
    check_relay,
    check_relays_port,
    check_server,
    check_state,
    check_telemetry,
    end,
    run_all,
)
from treetap.ops.gateway.config import GatewayConfig
from treetap.ops.relay.command import RelayConfig
from treetap.party import config as party_config
from treetap.process.config import Relayed
from treetap.protocols.key_options import LATTICE
from treetap.protocols.libraries import kernels_protocols
from treetap.strict import read_toml
from treetap.tables import config
from treetap.tables.binned import CURE, refuse_cuts
from treetap.tables.cells import shape_text
from treetap.tables.features import in_words
from treetap.tables.opening import columns_of, source_of
from treetap.tables.reading import read_table
from treetap.tables.source import Source
from treetap.wire.ports import Address, Identity, Role
from treetap.workers.cluster.engine import survey

#: Subject of the check of a cluster.
CLUSTER = "cluster"
#: Seconds that all checks together may take; the command itself starts in one or two.
LIMIT_S = 6.0
#: Seconds that they may take where a cluster is asked, of which every node starts a process.
CLUSTER_S = 36.0
#: Key that tells the kind of a file → the kind; the first one that a file has counts.
KINDS = {
    "organisation": "dealer",
    **dict.fromkeys(("parties", "operators"), "coordinator"),
    "coordinator": "operator",
    "party_name": "approver",
    **dict.fromkeys(("state", "tables"), "party"),
    "party": "gateway",
    "listen": "relay",
}


def run(path: Path | None, bundle: Path | None = None, logs: Sequence[Path] = (), *, as_json: bool) -> None:
    """Print the findings about the process of a configuration file, a line each; exit status 2 if one is a fault.

    `path`: None for this machine's arithmetic and kernels alone. `bundle`, `logs`: the archive to write, and the logs
    of the process for it.

    Raises:
        ConfigError: the file itself is wrong, and no bundle is asked for; or it belongs to no kind of process.
    """
    about, schema = {"kind": "machine"}, BaseModel
    findings = [] if path else [*arithmetic_of("auto"), kernels(())]
    if path is not None:
        kind = kind_of(path)
        about, schema = {"file": str(path), "kind": kind}, CHECKS[kind][1]
        try:
            checks = CHECKS[kind][0](path)
            findings = run_all(checks, CLUSTER_S + 1.0 if CLUSTER in checks else LIMIT_S)
        except ConfigError as fault:
            if bundle is None:
                raise
            findings = [Finding("fault", "configuration", str(fault))]
    if bundle is not None:
        try:
            findings.append(write_bundle(bundle, path, schema, findings, logs))
        except BadInput as fault:  # such as a full disk, of which the findings may say more
            findings.append(Finding("fault", "bundle", str(fault)))
    end(findings, about, as_json=as_json)


def kind_of(path: Path) -> str:
    """ "party", "dealer", "coordinator", "operator", "approver", "gateway" or "relay", by the file's keys."""
    keys = read_toml(path)
    for key, kind in KINDS.items():
        if key in keys:
            return kind
    raise BadInput(
        f"{path}: is no file of a party (state, tables), a dealer (organisation), a coordinator (parties), an operator "
        "(coordinator), an approver (party_name), a gateway (party) or a relay (listen)"
    )


def _dealer(path: Path) -> Checks:
    """Those of a party that are not about tables, and that it is a third one's."""
    config = party_config.read(path, party_config.DealerConfig)
    assert isinstance(config, party_config.DealerConfig)
    shared = {
        subject: check for subject, check in _party_of(config).items() if subject not in ("folders", "arithmetic")
    }
    return {**shared, "organisation": partial(_apart, config)}


def _apart(config: party_config.DealerConfig) -> list[Finding]:
    """A fault for another organisation than the certificate's, or the authority's key beside its certificate."""
    try:
        config.check_alone()
    except ConfigError as fault:
        return [Finding("fault", "organisation", str(fault))]
    if on_loopback(config.listen):
        said = f"{config.listen}: only this host calls it, so that it is a stand-in for a dealer"
        return [Finding("warning", "organisation", said)]
    said = f"{config.organisation}; parties compare it with their own, and refuse a dealer at a peer's address"
    return [Finding("ok", "organisation", said)]


def _party(path: Path) -> Checks:
    return _party_of(party_config.read(path))


def _party_of(config: party_config.PartyConfig) -> Checks:
    tls, process = config.transport(), Identity(config.name, Role.PARTY)
    return {
        "certificate": partial(check_certificate, tls, process),
        f"listen = {config.listen}": partial(check_listen, process, config.listen, tls),
        **({"metrics": partial(check_metrics, config.name, config.metrics)} if config.metrics else {}),
        **_spans(config),
        "proxy": partial(check_proxy, tls),
        **_relayed(config, process),
        "policy": partial(_policy, config),
        **_serve(config),
        **({"attacks": partial(_attacks, config)} if config.optimizer else {}),
        f"state = {config.state}": partial(check_state, config.state),
        "folders": partial(_folders, config),
        "native kernels": lambda: [kernels(config.policy.keys.schemes)],
        "arithmetic": partial(arithmetic_of, config.arithmetic),
        **({CLUSTER: partial(_cluster, config)} if config.engine == "ray" else {}),
        **{f"table {name}": partial(_table, name, table, **_asked(config)) for name, table in config.tables.items()},
        **{f"table {name}": partial(_added_table, config, name) for name in config.table_names()[len(config.tables) :]},
    }


def _cluster(config: party_config.PartyConfig) -> list[Finding]:
    """Ask the cluster of `engine = "ray"` what its nodes run, and whether the workers fit."""
    assert config.cluster is not None
    cluster = config.cluster.model_copy(update={"start_s": min(config.cluster.start_s, CLUSTER_S / 4)})
    try:
        backend = arithmetic.choose(config.arithmetic).name
    except BadInput as fault:
        return [Finding("fault", CLUSTER, f"not asked, for arithmetic has a fault: {fault}")]
    faults, facts = asyncio.run(survey(cluster, config.silence_s, backend, CLUSTER_S))
    if faults:
        return [Finding("fault", CLUSTER, fault) for fault in faults]
    return [Finding("ok", CLUSTER, f"{'; '.join(facts)}; keys stay here")]


def _policy(config: party_config.PartyConfig) -> list[Finding]:
    """A warning if the policy names no other party, so that this one can be in no job."""
    people, waits = config.policy.people, ""
    label_holders, peers = (
        [name for name in names if name != config.name] for names in (people.label_holders, people.peers)
    )
    if not label_holders and not peers:
        message = (
            f"names no label_holders and no peers, so that {config.name} refuses every job; the refusal has the lines "
            "to add (docs/configuration.md)"
        )
        return [Finding("warning", "policy", message)]
    if people.approval == "manual":
        waits = f"; every job waits for approval by {' or '.join(people.approvers)}"
    if people.dealers and not config.transport().organisation:
        said = (
            f"names dealers, and the certificate of {config.name} no organisation (field O): {config.name} would refuse"
        )
        return [Finding("fault", "policy", f"{said} what they deal; have one issued by --organisation NAME")]
    opening = f"may open sums over its columns: {', '.join(label_holders) or 'no other party'}"
    return [Finding("ok", "policy", f"{opening}; peers: {', '.join(peers) or 'none'}{waits}")]


def _serve(config: party_config.PartyConfig) -> Checks:
    """Checks of the address for clients of served models."""
    served, tls, process = config.serve, config.transport(), Identity(config.name, Role.PARTY)
    checks: dict[str, Callable[[], list[Finding]]] = {}
    if served:
        checks[f"serve.listen = {served.listen}"] = partial(check_listen, process, served.listen, tls, "serve.listen")
        checks["serve.clients"] = partial(_clients, config)
    return checks


def _clients(config: party_config.PartyConfig) -> list[Finding]:
    try:
        config.check_clients()
    except ConfigError as fault:
        return [Finding("fault", "serve.clients", str(fault))]
    if silent := config.unanswered():
        message = f"{config.name}'s policy sends PREDICTION to all but {', '.join(silent)}: name them under emits"
        return [Finding("warning", "serve.clients", message)]
    return [Finding("ok", "serve.clients", "the policy lets each of them have predictions")]


def _attacks(config: party_config.PartyConfig) -> list[Finding]:
    """Name the setting by which this party departs from the protocol in every job, for audits."""
    message = (
        f'optimizer = "{config.optimizer}": this party attacks the others of its jobs, for audits; leave it out of the '
        "file otherwise"
    )
    return [Finding("warning", "attacks", message)]


def _folders(config: party_config.PartyConfig) -> list[Finding]:
    try:
        party_config.check_folders(config)
    except ConfigError as fault:
        return [Finding("fault", "folders", str(fault))]
    if not config.table_names() and config.tables_folder is None:
        return [Finding("warning", "folders", "no table is configured, so that no job can run; add [tables.NAME]")]
    if misnamed := config.misnamed():
        said = f"{', '.join(misnamed)} in tables_folder: no name of a table, so that no job can name it: {NAME_RULE}"
        return [Finding("warning", "folders", said)]
    return [Finding("ok", "folders", "those of tables and data are there")]


def _asked(config: party_config.PartyConfig) -> dict[str, bool]:
    return {
        "categorical": config.policy.columns.splits_categories,
        "private": config.defences.column_privacy is not None,
    }


def _table(name: str, table: config.TableConfig, *, categorical: bool = False, private: bool = False) -> list[Finding]:
    """Check that a training or a prediction can read the table: columns present, ids distinct, cells numbers.

    `categorical`: the policy's. `private`: the party has `column_privacy`.
    """
    try:
        labelled = table.label is not None
        read = read_table(table, with_label=labelled, missing=None, categorical=labelled or categorical)
        refuse_cuts(read)
    except DataError as fault:
        return [Finding("fault", f"table {name}", f"{fault}{_absent(table)}")]
    constant = read.constant()
    if constant:  # a network may have them
        message = f"{in_words(constant)}: jobs that grow trees refuse the table; leave them out, or set {CURE}"
        return [Finding("warning", f"table {name}", message)]
    dropped = f", without the constant {', '.join(map(repr, read.dropped))}" if read.dropped else ""
    label = f", label {table.label!r}" if table.label else ""
    label += f", upper bounds {table.label_upper!r}" if table.label_upper else ""
    label += f", weight {table.weight!r}" if table.weight else ""
    images = "".join(f", tensors {column!r} of {shape_text(shape)}" for column, shape in read.shapes.items())
    counts = f"{len(read.ids)} records, {len(read.columns)} feature columns"
    says = "".join(f"; {part}" for part in read.path.says) if isinstance(read.path, Source) else ""
    says += "".join(f"; {part}" for part in read.says)
    if private and (by_cells := [column for column in read.sources if column not in table.cuts]):
        names = ", ".join(map(repr, by_cells))
        says += f"; column_privacy takes bins as known, and those of {names} follow from cells: list their cuts"
    if not table.columns:
        others = [part for part in columns_of(source_of(table)) if part not in table.spared]
        has = f": it has {', '.join(map(repr, others))}" if others else ""
        says += f"; columns names none, so that the table contributes no feature{has}"
    summary = f"{counts}{images}{dropped}{label}{says}"
    return [Finding("ok" if table.columns or table.label else "warning", f"table {name}", summary)]


def _absent(table: config.TableConfig) -> str:
    """The columns of a table that lacks some which its configuration names, for their owner; else nothing."""
    try:
        have = columns_of(source_of(table))
    except DataError:
        return ""
    wanted = [*table.keys, *matched(table.columns, have, table.spared), *([table.label] if table.label else [])]
    absent = [name for name in wanted if name not in have]
    return f": {', '.join(map(repr, have))}{did_you_mean(absent[0], have)}" if absent else ""


def _added_table(config: party_config.PartyConfig, name: str) -> list[Finding]:
    """Check a table of the folder of tables as `_table` does one of the configuration."""
    try:
        table = config.table(name)
    except ConfigError as fault:
        return [Finding("fault", f"table {name}", str(fault))]
    if table is None:
        return [Finding("fault", f"table {name}", f"{name}.toml has gone meanwhile")]
    return _table(name, table, **_asked(config))


def _coordinator(path: Path) -> Checks:
    config = CoordinatorConfig.from_file(path)
    tls, process = config.transport(), Identity(config.name, Role.COORDINATOR)
    parties: dict[str, Callable[[], list[Finding]]] = {
        name: partial(check_server, Address(name, location), tls) for name, location in config.parties.items()
    }
    return {
        "certificate": partial(check_certificate, tls, process),
        f"listen = {config.listen}": partial(check_listen, process, config.listen, tls),
        **({"metrics": partial(check_metrics, config.name, config.metrics)} if config.metrics else {}),
        **_spans(config),
        "proxy": partial(check_proxy, tls),
        **_relayed(config, process),
        f"state = {config.state}": partial(check_state, config.state),
        "addresses": partial(_addresses, config),
        **parties,
    }


def _spans(config: party_config.PartyConfig | CoordinatorConfig) -> Checks:
    """The check of the collector that a file names."""
    if (telemetry := config.telemetry) is None:
        return {}
    return {f"telemetry = {telemetry.endpoint}": partial(check_telemetry, config.name, telemetry)}


def _relayed(config: Relayed, process: Identity) -> Checks:
    """The check of the relay that a file names."""
    if (relay := config.relay_address) is None:
        return {}
    return {f"relay = {relay.location}": partial(check_relay, relay, process, config.transport())}


def _addresses(config: CoordinatorConfig) -> list[Finding]:
    """One process has one certificate, hence one name: two parties at one address are a mistake, or a relay's."""
    times = Counter(config.parties.values())
    return [
        Finding(
            "warning",
            "addresses",
            f"{', '.join(name for name, at in config.parties.items() if at == address)} have one address, {address}; "
            "correct it, unless a relay is there",
        )
        for address, number in times.items()
        if number > 1 and address != config.relay
    ]


def _operator(path: Path) -> Checks:
    config = OperatorConfig.from_file(path)
    tls = config.transport()
    to = Address(config.coordinator_name, config.coordinator, Role.COORDINATOR)
    return {
        "certificate": partial(check_certificate, tls, Identity(config.name, Role.OPERATOR)),
        "proxy": partial(check_proxy, tls),
        to.name: partial(check_server, to, tls),
    }


def _approver(path: Path) -> Checks:
    config = ApproverConfig.from_file(path)
    tls, to = config.transport(), Address(config.party_name, config.party)
    return {
        "certificate": partial(check_certificate, tls, Identity(config.name, Role.APPROVER)),
        "proxy": partial(check_proxy, tls),
        to.name: partial(check_server, to, tls),
    }


def _relay(path: Path) -> Checks:
    config = RelayConfig.from_file(path)
    tls, process = config.tls.files(), Identity(config.name, Role.RELAY)
    return {
        "certificate": partial(check_certificate, tls, process),
        f"listen = {config.listen}": partial(check_relays_port, process, config.listen, tls),
        **({"metrics": partial(check_metrics, config.name, config.metrics)} if config.metrics else {}),
    }


def _gateway(path: Path) -> Checks:
    config = GatewayConfig.from_file(path)
    tls, process = config.transport(), Identity(config.name, Role.GATEWAY)
    return {
        "certificate": partial(check_certificate, tls, process),
        f"listen = {config.listen}": partial(check_http, process, config.listen, config.secured),
        **({"metrics": partial(check_metrics, config.name, config.metrics)} if config.metrics else {}),
        "proxy": partial(check_proxy, tls),
        config.party.name: partial(check_server, config.asked, tls),
    }


def kernels(schemes: Collection[str]) -> Finding:
    """The compiled kernels: without them a party refuses the jobs that need them, and those alone.

    A fault if the scheme is among `schemes`, which a policy names.
    """
    from treetap.lattice.histogram_scheme import kernels

    needed = f"protocol {' and '.join(kernels_protocols())} or scheme {LATTICE}"
    try:
        said = f"{native.instructions()} instructions for polynomials, for jobs of {needed}"
        kernels()
    except library.Unavailable as why:
        if LATTICE in schemes:
            said = f"the policy names {LATTICE!r} among its schemes, but {why}"
            return Finding("fault", "native kernels", f"{said}: {library.REMEDY}, or take it out of schemes")
        said = f"jobs of {needed} are refused, as {why}; {library.REMEDY} if there will be any"
    except BadInput as why:
        return Finding("fault", "native kernels", str(why))
    return Finding("ok", "native kernels", said)


def arithmetic_of(choice: str) -> list[Finding]:
    """The backend that a choice means on this machine and why, and the forms that `auto` takes one of."""
    try:
        backend = arithmetic.choose(choice)
    except BadInput as fault:
        return [Finding("fault", "arithmetic", str(fault))]
    said = [f"{choice}: {backend.name}, as {backend.reason}"]
    if choice != "auto":
        said.append("auto would be {0.name}, as {0.reason}".format(arithmetic.choose("auto")))
    with suppress(library.Unavailable):  # `auto` has said it
        said += [f"{library.processor()} has the forms {', '.join(library.forms())}", library.built()]
    return [Finding("ok", "arithmetic", "; ".join(said))]


#: The checks of a kind of process, and the schema of its file.
CHECKS: dict[str, tuple[Callable[[Path], Checks], type[BaseModel]]] = {
    "party": (_party, party_config.PartyConfig),
    "dealer": (_dealer, party_config.DealerConfig),
    "coordinator": (_coordinator, CoordinatorConfig),
    "operator": (_operator, OperatorConfig),
    "approver": (_approver, ApproverConfig),
    "gateway": (_gateway, GatewayConfig),
    "relay": (_relay, RelayConfig),
}
