"""What the PIVODL paper reports as numbers in its text and tables; of the other points it has pictures only."""

from __future__ import annotations

#: Test accuracy "about" (Figures 6 to 9).
ACCURACY = {"credit": 0.82, "bank": 0.90}
#: Table III: guess accuracy without noise and by ε.
GUESS = {
    "credit": {None: 0.6875, 2.0: 0.3002, 4.0: 0.2302, 6.0: 0.3415, 8.0: 0.2778, 10.0: 0.4093},
    "bank": {None: 0.6157, 2.0: 0.3957, 4.0: 0.3885, 6.0: 0.2585, 8.0: 0.3973, 10.0: 0.1445},
}
#: Table IV on the credit set: accuracy and AUC; None where the paper has no figure.
SYSTEMS = {
    "PIVODL": (0.8223, 0.7724),
    "SecureBoost": (0.8180, 0.7701),
    "FederBoost": (None, 0.7779),
    "Pivot": (0.8251, None),
}
#: Figure 16 (b): seconds of the modified PIVODL, about the same for 2 to 10 parties.
MODIFIED_S = 9.6
