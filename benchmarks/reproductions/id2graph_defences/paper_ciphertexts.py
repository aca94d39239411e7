"""The paper's printed figures of its defences: Table 3; its Figures 8 to 10 have no numbers."""

from __future__ import annotations

#: Model → defence, value → ciphertexts with the defence ÷ without. It does not say the model of Reduced-Leakage.
TABLE_3 = {
    "forest": {
        ("id_lmid", 0.5): 0.364,
        ("id_lmid", 2.0): 0.820,
        ("label_dp", 0.5): 1.16,
        ("label_dp", 2.0): 1.14,
    },
    "boosting": {
        ("id_lmid", 0.5): 0.682,
        ("id_lmid", 2.0): 1.17,
        ("label_dp", 0.5): 1.18,
        ("label_dp", 2.0): 1.17,
        ("reduced_leakage", 1.0): 0.798,
    },
}
#: The values of ε and ξ in the figures.
VALUES = (0.1, 0.5, 1.0, 2.0)
