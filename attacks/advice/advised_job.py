"""The audited job as advice sees it, and which settings are stricter than those that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attacks.advice.defence_lines import APART, JOB, STRICTNESS, WRITTEN
from attacks.advice.results import Defence


@dataclass(frozen=True)
class AdvisedJob:
    """A job whose attacks were measured.

    `classes`, `v_measure`, `own`: see `Advice`; None without scores. `params`: the parameters of the model, all of
    them. `defences`: the label holder's table [defences], None where it is not known. `data_digest`: of the table.
    """

    protocol: str
    label_holder: str
    feature_parties: Sequence[str]
    classes: int | None
    v_measure: float | None
    own: float | None
    params: Mapping[str, Any] = field(default_factory=dict)
    defences: Mapping[str, Any] | None = None
    data_digest: str | None = None

    def stricter(self, defence: Defence, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings as they would be written, if one of them is stricter than what the job has; empty otherwise.

        A table by feature party has a value for each party, and never a looser one than the job's.
        """
        if defence == JOB:
            return {
                key: stricter
                for key, value in settings.items()
                if (stricter := self._parameter(key, value)) is not None
            }
        has, (name, switches) = self.defences or {}, WRITTEN[defence]
        asked = {name, *switches}
        if any(one in asked and has.get(other) for one, other in (APART, APART[::-1])):
            return {}
        key, smaller = STRICTNESS[name]
        now = (has.get(name) or {}).get(key)
        if now is not None and not (settings[key] < now if smaller else settings[key] > now):
            return {}
        return dict(settings)

    def _parameter(self, key: str, value: Any) -> Any:
        """The value of a parameter to write, None if the job's is as strict. Of numbers the smaller is the stricter."""
        now = self.params.get(key)
        if not isinstance(value, Mapping):
            return value if now is None or value < now else None
        least, have = max(value.values()), now or {}
        if all(have.get(name, 0.0) >= least for name in self.feature_parties):
            return None
        return {name: max(least, have.get(name, 0.0)) for name in self.feature_parties}
