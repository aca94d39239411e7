# tables.py
import csv
import random

random.seed(1)
people = []
for i in range(400):
    income, calls, basket = random.gauss(30, 9), random.gauss(20, 6), random.gauss(50, 15)
    people.append((f"c{i:04}", income, calls, basket, int(income - calls + basket / 2 + random.gauss(0, 6) > 35)))
random.shuffle(people)
for name, header, pick in (
    ("bank", ["id", "income", "repaid"], lambda p: [p[0], p[1], p[4]]),
    ("telco", ["id", "calls"], lambda p: [p[0], p[2]]),
    ("shop", ["id", "basket"], lambda p: [p[0], p[3]]),
):
    for table, rows in (("train", people[:300]), ("new", people[300:])):
        with open(f"{name}-{table}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(pick(p) for p in rows)
