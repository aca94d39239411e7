"""Tables of defences of split networks, which the audit of a network advises by.

    python benchmarks/measured_networks.py

Writes `attacks/advice/networks/SET.json` by the results in `benchmarks/reproductions/splitnn/results.jsonl`, which
`networks.py figure-6 both weights advised floors` there measures: a party with half of the columns or of the images, and
the label holder with the other half. Nothing is trained here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attacks.advice.networks import PARTY, NetworkPoint, NetworkTable

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "reproductions" / "splitnn" / "results.jsonl"
OUT = HERE.parent / "attacks" / "advice" / "networks"
#: Set of the reproduction → classes, records of the training, share of the largest class among them; a scale beside it.
SETS: Mapping[str, tuple[int, int, float, dict[str, Any]]] = {}
#: Of PPDL: the share of a gradient's numbers that returns, and the threshold.
KNOWN = 40
