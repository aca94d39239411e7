"""PIVODL has none of the defences: the parameters of its own that lower what leaf weights and gains tell.

Figures are those of benchmarks/reproductions/pivodl and docs/protocol-pivodl.md.
"""

from __future__ import annotations

from attacks.advice.results import Lines, Parameter

_FILE = "job file"
PARAMETERS = [
    Parameter(
        name="epsilon, delta, clip",
        tells=(
            "Noise on the leaf weights that a party receives for its own splits. On credit_default (4 parties, 5 "
            "trees, 400 draws of the noise at ε 8) the AUC of the label guess went from 0.70 to 0.505–0.512 on "
            "average; a single job lies about 0.06 around that. Price: the model's AUC on held-out records fell from "
            "0.768 to 0.730. Announced gains undo the noise: write the next line too."
        ),
        lines=[Lines(file=_FILE, lines=["[job]", "epsilon = 8.0", "delta = 1e-5", "clip = 2.0"])],
    ),
    Parameter(
        name="gain_comparison",
        tells=(
            'With "secure" no gain is announced, so that gain inversion has no equation. Same model, hence no price in '
            "AUC; it costs time and traffic."
        ),
        lines=[Lines(file=_FILE, lines=["[job]", 'gain_comparison = "secure"'])],
    ),
    Parameter(
        name="instance_threshold",
        tells=(
            "No sum over fewer labelled records of a party is opened on either side of a candidate, so that sums stand "
            "for more records than the 10 of the default. Not measured: neither the effect on the attacks here nor the "
            "price."
        ),
        lines=[Lines(file=_FILE, lines=["[job]", "instance_threshold = 20"])],
    ),
]
