"""`treetap`, whose keys and exponents a test may know: `python -m tests.cluster.watched_party FOLDER ARGUMENTS…`."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

from treetap.additive.paillier.secret_key import SecretKey
from treetap.commands.cli import main
from treetap.psi.group import Exponent


def _watch(folder: Path) -> None:
    """Have every key and exponent that is drawn written to a file of its own."""
    generate, draw = SecretKey.generate, Exponent.draw

    def note(name: str, number: int) -> None:
        (folder / f"{name}-{uuid.uuid4().hex}").write_text(str(number))

    def generated(bits: int, allow_breakable: bool = False) -> SecretKey:
        key = generate(bits, allow_breakable)
        note("p", int(key._p))
        note("q", int(key._q))
        return key

    def drawn() -> Exponent:
        exponent = draw()
        note("exponent", exponent._number)
        note("scalar", int.from_bytes(exponent.for_kernel(), "little"))
        return exponent

    SecretKey.generate, Exponent.draw = staticmethod(generated), drawn  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _watch(Path(sys.argv.pop(1)))
    main()
