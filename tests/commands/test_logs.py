"""JSON logs beyond what a healthy run says: libraries that write to standard error themselves, and defects."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

HEAD = "import logging, os, warnings\nfrom treetap import logs\nlogs.configure('info', 'json')\n"


def _lines(program: str) -> list[dict[str, Any]]:
    """The lines of standard error, each parsed."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program], capture_output=True, text=True, timeout=30, check=False
    )
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_whatever_reaches_standard_error_is_json() -> None:
    """Bare writes of a library, a warning of Python and gRPC's own lines each become an object."""
    found = _lines(
        "os.write(2, b'from C\\n')\n"
        "os.write(2, b'E1121 11:00:54.233696    9330 file.cc:25] it broke\\n')\n"
        "os.write(2, b'I1121 11:00:54.233696    9330 file.cc:25] a detail\\n')\n"
        "warnings.warn('old')\n"
    )
    said = {line["logger"]: (line["level"], line["message"]) for line in found}
    assert said["stderr"] == ("warning", "from C")
    assert said["grpc"] == ("error", "it broke")
    assert "UserWarning: old" in said["py.warnings"][1]
    assert len(found) == 3


def test_a_defect_keeps_its_traceback() -> None:
    """An exception is one line, its traceback a field; one that nobody caught is JSON line by line."""
    found = _lines(
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.exception('job j')\n"
        "raise SystemError('last\\nwords')\n"
    )
    assert found[0]["message"] == "job j"
    assert "ZeroDivisionError" in found[0]["traceback"]
    assert [line["message"] for line in found[-2:]] == ["SystemError: last", "words"]


def test_what_a_line_is_about() -> None:
    """A note counts until a task begins something else; a block's subject ends with it."""
    found = _lines(
        "log = logging.getLogger('x')\n"
        "logs.note(job='a', peer='p')\n"
        "with logs.within(step='s'):\n    log.info('1')\n"
        "log.info('2')\n"
        "logs.begin(job='b')\n"
        "log.info('3', extra={'seconds': 0.5})\n"
    )
    own = [{key: line.get(key) for key in ("job", "step", "peer", "seconds")} for line in found]
    assert own == [
        {"job": "a", "step": "s", "peer": "p", "seconds": None},
        {"job": "a", "step": None, "peer": "p", "seconds": None},
        {"job": "b", "step": None, "peer": None, "seconds": 0.5},
    ]
