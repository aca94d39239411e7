"""Writes the tables of the tutorial: customers of a bank, some of whom are customers of a telephone company too.

    python3 loans.py [FOLDER]

`loans.csv` joins the columns of both for 5,000 customers, as somebody has them who tries a federation on one machine.
`bank.csv` and `telco.csv` are the halves, as two companies have them: in each some customers are missing that the other
has. No person is behind any row: all is drawn from a seed, and the same program writes the same bytes.
"""

from __future__ import annotations

import csv
import math
import random
import sys
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

CUSTOMERS = 5000
DEFAULTS = 0.21  # the share of customers who did not pay back
TODAY = date(2025, 6, 30)
JOBS = ("clerk", "craft", "driver", "health", "manager", "none", "sales", "teacher")
PURPOSES = ("car", "debts", "furniture", "house", "other", "travel")
TARIFFS = ("basic", "family", "flat", "prepaid")
BANK = ("opened", "job", "purpose", "amount", "months", "income", "used_percent", "late_payments", "owns_home")
TELCO = ("contract_start", "tariff", "monthly_bill", "late_bills", "roaming_days")
#: Column → the share of its cells that are missing.
MISSING = {"income": 0.08, "job": 0.03, "used_percent": 0.05, "monthly_bill": 0.02, "roaming_days": 0.15}


def customer(draw: random.Random) -> tuple[dict[str, str], float]:
    """One customer's cells, and how likely a default is, as a number of any size."""
    means, care, spends = draw.gauss(0, 1), draw.gauss(0, 1), draw.gauss(0, 1)
    age = draw.expovariate(1 / 7)
    opened = TODAY - timedelta(days=60 + int(365 * min(30, age * (1 + 0.3 * care if care > 0 else 1))))
    job = "none" if draw.random() < 0.05 - 0.02 * means else draw.choice(JOBS)
    purpose = draw.choices(PURPOSES, (5, 2 + max(0, -care), 3, 4, 2, 1 + max(0, spends)))[0]
    income = round(math.exp(7.7 + 0.4 * means + draw.gauss(0, 0.15)) / 10) * 10 * (0.4 if job == "none" else 1)
    amount = round(math.exp(8.6 + 0.3 * means + 0.35 * spends + draw.gauss(0, 0.3)) / 100) * 100
    months = draw.choice((12, 24, 36, 48, 60, 72))
    used = min(100.0, max(0.0, 45 + 16 * spends - 5 * care + draw.gauss(0, 14)))
    late = _count(draw, math.exp(-1.1 - 0.3 * care))
    home = draw.random() < 1 / (1 + math.exp(-means))
    start = TODAY - timedelta(days=20 + int(365 * draw.expovariate(1 / 3.5)))
    tariff = draw.choices(TARIFFS, (3, 3, 2 + max(0, means), 2 + 2 * max(0, -care)))[0]
    bill = max(5.0, 22 + 9 * spends + (14 if tariff == "family" else 0) + draw.gauss(0, 6))
    late_bills = _count(draw, math.exp(-0.2 - 0.8 * care))
    roaming = _count(draw, math.exp(1.2 + 0.5 * spends))
    risk = (
        *(-0.45 * means, -1.1 * care, 0.35 * spends, 0.9 if job == "none" else 0, 0.5 if purpose == "debts" else 0),
        *(0.45 * math.log(amount / max(income, 300) / 2), -0.03 * min(age, 15), 0.25 if tariff == "prepaid" else 0),
        *(0.35 if (TODAY - start).days < 180 else 0, 0.3 * (late > 1 and spends > 0), draw.gauss(0, 0.5)),
    )
    cells = (
        *(opened.isoformat(), job, purpose, f"{amount:.0f}", str(months), f"{income:.0f}", f"{used:.1f}", str(late)),
        *("yes" if home else "no", start.strftime("%d.%m.%Y"), tariff, f"{bill:.2f}", str(late_bills), str(roaming)),
    )
    names = BANK + TELCO
    row = {name: "" if draw.random() < MISSING.get(name, 0) else cell for name, cell in zip(names, cells, strict=True)}
    return row, sum(risk)


def _count(draw: random.Random, mean: float) -> int:
    """A number of events with this mean (Knuth's way to draw from Poisson's distribution)."""
    number, product, end = 0, draw.random(), math.exp(-min(mean, 20))
    while product > end:
        number, product = number + 1, product * draw.random()
    return number


def customers(seed: int = 1) -> list[dict[str, str]]:
    """The joined table."""
    draw = random.Random(seed)  # noqa: S311 - the same table every time is what is wanted
    drawn = [customer(draw) for _ in range(CUSTOMERS)]
    chances = [risk + math.log(u / (1 - u)) * 0.7 for (_, risk), u in zip(drawn, _uniform(draw), strict=True)]
    limit = sorted(chances, reverse=True)[round(CUSTOMERS * DEFAULTS)]
    numbers = draw.sample(range(10000, 100000), CUSTOMERS)
    return [
        {"customer": f"C{number}", **cells, "defaulted": "yes" if chance > limit else "no"}
        for number, (cells, _), chance in zip(numbers, drawn, chances, strict=True)
    ]


def _uniform(draw: random.Random) -> list[float]:
    return [min(max(draw.random(), 1e-9), 1 - 1e-9) for _ in range(CUSTOMERS)]


def write(path: Path, columns: Sequence[str], rows: Sequence[dict[str, str]]) -> None:
    """Write some columns of these rows."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([row[name] for name in columns] for row in rows)


def main(folder: Path) -> None:
    """Write the three tables into a folder."""
    rows = customers()
    draw = random.Random(2)  # noqa: S311
    write(folder / "loans.csv", ("customer", *BANK, *TELCO, "defaulted"), rows)
    write(folder / "bank.csv", ("customer", *BANK, "defaulted"), draw.sample(rows, round(0.97 * CUSTOMERS)))
    write(folder / "telco.csv", ("customer", *TELCO), draw.sample(rows, round(0.96 * CUSTOMERS)))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
