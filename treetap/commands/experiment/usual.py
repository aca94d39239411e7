"""The comparison and the audit of an experiment whose file does not say if it wants them."""

from __future__ import annotations

from treetap.commands.experiment.experiment_file import AuditTable, ExperimentFile, lacking
from treetap.protocols.registry import training
from treetap.version import install

#: Most records of a table that is compared and audited unless its file says otherwise.
MOST_RECORDS = 100_000


def with_usual(experiment: ExperimentFile, records: int) -> tuple[ExperimentFile, list[str]]:
    """The experiment with `compare` and `[audit]` settled, and what is left out that its file did not turn off.

    Both are on for trees and tables of up to `MOST_RECORDS` records; `records`: of the joined table.
    """
    large, said = _too_much(experiment, records), []
    compare, audit = experiment.data.compare, experiment.audit
    if compare is None:
        compare = not large
        if large:
            said.append(
                f"Not compared with {_alone(experiment)}: {large}; compare = true in [data] does it all the same."
            )
    if audit is None and large:
        said.append(f"Not audited: {large}; a line [audit] does it all the same.")
    elif audit is None and (hindrance := _hindrance(experiment)):
        said.append(f"Not audited: {hindrance}.")
    elif audit is None:
        audit = AuditTable()
    data = experiment.data.model_copy(update={"compare": compare})
    return experiment.model_copy(update={"data": data, "audit": audit}), said


def _alone(experiment: ExperimentFile) -> str:
    return "each party alone" if experiment.spread else f"{experiment.in_order[0]} alone"


def _too_much(experiment: ExperimentFile, records: int) -> str:
    """The reason for which neither is on by itself; empty where both are."""
    if not training(experiment.job.protocol).grows_trees:
        return "it would train further networks"
    return f"the table has {records:,} records, more than {MOST_RECORDS:,}" if records > MOST_RECORDS else ""


def _hindrance(experiment: ExperimentFile) -> str:
    """The reason for which no audit is possible; empty where one is."""
    silent = [party.name for party in experiment.party if party.record == "off" and not party.labels]
    if silent:
        return f"{silent[0]} has record = 'off' and keeps no transcript"
    return f"it needs {missing}: {install('audit')}" if (missing := lacking()) else ""
