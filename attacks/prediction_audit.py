"""The part of an audit in which recipients of predictions attack the scores that they got."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attacks.audit_file import AuditFile
from attacks.predictions.evidence import ScoreEvidence, read_scores
from attacks.predictions.results import PredictionFigures
from attacks.predictions.settings import DecodingSettings
from attacks.registry import Attack, Needs, rows


def scored_predictions(file: AuditFile, say: Callable[[str], None]) -> dict[str, PredictionFigures]:
    """The attacks on each [[prediction]], by its name. Raises as `read_scores` does."""
    settings, attacks = DecodingSettings.read(file.decoding), rows(Needs.SCORES)
    results = {}
    for prediction in file.prediction:
        say(f"prediction {prediction.job}")
        results[prediction.job] = on_scores(read_scores(prediction, settings, file.ca, file.revoked), attacks)
    return results


def on_scores(evidence: ScoreEvidence, attacks: Mapping[str, Attack]) -> PredictionFigures:
    """The findings of attacks on one prediction; None, with a reason, of an attack that is on other protocols."""
    findings = {name.replace("-", "_"): row.run(evidence) for name, row in attacks.items()}
    return PredictionFigures(
        recipient=evidence.recipient,
        model=evidence.model,
        protocol=evidence.protocol,
        records=len(evidence.sums),
        **findings,
        reasons=evidence.reasons,
        faults=list(evidence.faults),
        signed=evidence.signed,
    )
