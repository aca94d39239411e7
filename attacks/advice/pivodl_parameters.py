"""PIVODL has none of the defences: the parameters of its own that lower what leaf weights and gains tell.

Figures are those of benchmarks/reproductions/pivodl and docs/protocol-pivodl.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attacks.advice.defence_lines import job_lines
from attacks.advice.results import Parameter

#: The noise that was measured, and the fewest records of a sum that is opened.
_NOISE, _THRESHOLD = {"epsilon": 8.0, "delta": 1e-5, "clip": 2.0}, 20


def parameters(has: Mapping[str, Any]) -> list[Parameter]:
    """The parameters that are stricter than those of a job; `has`: all of the job's."""
    announced = has.get("gain_comparison", "announce") == "announce"
    advised = []
    epsilon = has.get("epsilon")
    if epsilon is None or epsilon > _NOISE["epsilon"]:
        advised.append(_noise(has, announced))
    if announced:
        tells = (
            'With "secure" no gain is announced, so that gain inversion has no equation. Same model, hence no price in '
            "AUC; it costs time and traffic."
        )
        advised.append(Parameter(name="gain_comparison", tells=tells, lines=[job_lines({"gain_comparison": "secure"})]))
    if (least := has.get("instance_threshold", 0)) < _THRESHOLD:
        tells = (
            "No sum over fewer labelled records of a party is opened on either side of a candidate, so that sums stand "
            f"for more records than the {least} of this job. Not measured: neither the effect on the attacks here nor "
            "the price."
        )
        line = job_lines({"instance_threshold": _THRESHOLD})
        advised.append(Parameter(name="instance_threshold", tells=tells, lines=[line]))
    return advised


def _noise(has: Mapping[str, Any], announced: bool) -> Parameter:
    """The noise that was measured; of its parameters those alone that are stricter than the job's."""
    written = {key: value for key, value in _NOISE.items() if (now := has.get(key)) is None or value < now}
    tells = (
        "Noise on the leaf weights that a party receives for its own splits. On credit_default (4 parties, 5 trees, "
        "400 draws of the noise at ε 8, δ 1e-5, clip 2) the AUC of the label guess went from 0.70 to 0.505–0.512 on "
        "average; a single job lies about 0.06 around that. Price: the model's AUC on held-out records fell from 0.768 "
        "to 0.730."
    )
    if announced:
        tells += " Announced gains undo the noise: write the next line too."
    return Parameter(name=", ".join(written), tells=tells, lines=[job_lines(written)])
