"""A client of a served model: `treetap.Client` asks a label holder about records by their ids, over HTTPS."""

from __future__ import annotations

import json
import ssl
import warnings
from collections.abc import Iterable, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import pyarrow as pa

from treetap.errors import NotServed, Overloaded, Refused, Silent, TreetapError, UnknownJob, Unreachable, visible
from treetap.lab.api.frames import InvalidInput, checked, column_of, data_frame
from treetap.wire.certificates import NoIdentity, identity, read_certificates
from treetap.wire.ports import Identity, Role
from treetap.wire.tls import NAME_KEY, TlsFiles

#: Status of an answer → the error; of others without one `TreetapError`.
_ERRORS: Mapping[int, type[TreetapError]] = {
    400: InvalidInput,
    403: Refused,
    404: UnknownJob,
    413: InvalidInput,
    422: InvalidInput,
    429: Overloaded,
    503: NotServed,
    504: Silent,
}
#: Most bytes of an answer: of a request's ids, each with figures of a thousand classes.
_LONGEST = 64 * 1024 * 1024
_STRANGE = "the answer is not that of a treetap party"


class Client:
    """A client of the model that a label holder serves (docs/serving.md). One client may serve several threads.

    Args:
        address: the gateway's, as `https://bank.example.org:8443`; `http://` where it has `plain_http`.
        certs: the folder of `ca.crt` and of the client's certificate and key, `NAME.crt` and `NAME.key`; with
            `crl.pem` there, a gateway whose certificate is revoked is refused.
        client: NAME, where the folder has certificates of several clients; over plain HTTP it is all that names it.
        gateway: the gateway's name, where its certificate does not have the host of the address
            (`treetap certs issue gateway --host …`): the name is compared instead.
        timeout: seconds for a connection, and for an answer.

    Raises:
        ValueError: the address is none, or the folder does not have the files.

    Examples:
        >>> client = treetap.Client("https://bank.example.org:8443", "certs")  # doctest: +SKIP
        >>> client.predict(["c0301", "c0302"])  # doctest: +SKIP
              id     status  prediction  probability_1   score
        0  c0301  predicted           1         0.7735  1.2282
        1  c0302  predicted           0         0.1904 -1.4474
    """

    def __init__(
        self,
        address: str,
        certs: str | Path | None = None,
        *,
        client: str | None = None,
        gateway: str | None = None,
        timeout: float = 20.0,
    ) -> None:
        parts = urlsplit(address if "://" in address else f"https://{address}")
        try:
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port and "@" not in parts.netloc
        except ValueError:  # of a port that is none
            usable = False
        if not usable or parts.path.strip("/") or parts.query:
            raise InvalidInput("address: must be https://HOST:PORT, where the label holder's gateway listens")
        self._host, self._port, self._timeout = str(parts.hostname), int(parts.port or 0), timeout
        self._headers = {"Accept": "application/json"}
        self._context: ssl.SSLContext | None = None
        self._expected = self._host if gateway is None else Identity(gateway, Role.GATEWAY).dns
        self._idle: list[HTTPConnection] = []
        self._most_ids: dict[tuple[str | None, str], int] = {}
        if parts.scheme == "https":
            with checked():
                self._context = _context(Path("certs" if certs is None else certs), client)
        elif client is None:
            raise InvalidInput("client: over plain HTTP the name is all that the party knows of a client: give it")
        else:
            self._headers[NAME_KEY] = client
        if gateway is not None:
            self._headers["Host"] = f"{self._expected}:{self._port}"

    def predict(
        self,
        ids: Iterable[str | int] | None = None,
        *,
        records: Iterable[Mapping[str, Any]] = (),
        model: str | None = None,
        deadline_s: float | None = None,
        reasons: int = 0,
    ) -> Any:
        """Predictions of records, in the order of their ids, as a data frame (Arrow's where pandas is missing).

        Columns: `id`, `status` ("predicted"; "unknown_id", which the label holder lacks; "not_common", which another
        party lacks; "queries_spent", of which `party` answers no more queries; "invalid", of which `fault` says what is
        wrong), `prediction`, `probability_CLASS`,
        `score`. More ids than the party takes at once go in several requests. A `UserWarning` names parties that were
        away when an answer was computed.

        Args:
            ids: texts or whole numbers, as the prediction table has them.
            records: those that it lacks, of a model with look-ups: `{"id": …, "fields": {column: value}}` each, with
                the label holder's columns of the model; None is a missing value. They come after the ids.
            model: its name, where several are served.
            deadline_s: seconds to wait for each answer, if fewer than the party allows.
            reasons: most reasons of each record, 16 at most; a column `reasons` then has a list of `party`, `column`,
                `number` and `nameable` each, and `unreasoned` the parties whose columns are left out.

        Raises:
            ValueError: the ids are none, or the party cannot read the request.
            Refused: the party does not know the client.
            UnknownJob: no such model is served.
            NotServed, Overloaded, Silent: no answer now; it may be asked again.
            Unreachable: no gateway answers at the address, or the certificates do not fit.
        """
        named, new = ([] if ids is None else _plain_ids(ids)), list(records)
        if (not named and not new) or not all(isinstance(one, Mapping) and {*one} == {"id", "fields"} for one in new):
            raise InvalidInput('give ids, or records such as {"id": "c9", "fields": {"age": 41}}')
        asked = [*named, *(one["id"] for one in new)]
        most = self._most(model, "most_reasoned" if reasons else "most_ids")
        rows: list[Mapping[str, Any]] = []
        away: dict[str, None] = {}
        for first in range(0, len(asked), most):
            last, begin = first + most, max(first - len(named), 0)
            body: dict[str, Any] = {"ids": named[first:last], "records": new[begin : max(last - len(named), 0)]}
            body |= {"model": model, "deadline_s": deadline_s, "reasons": reasons or None}
            status, answer = self._ask("POST", "/v1/predict", {k: v for k, v in body.items() if v not in (None, [])})
            if status != 200 and "record" in answer and len(asked[first:last]) == 1:
                said = {name: answer[name] for name in ("party",) if name in answer}
                said |= {"fault": answer["detail"]} if answer["record"] == "invalid" else {}
                rows.append({"id": asked[first], "status": answer["record"], **said})
                continue
            _raise_unless_ok(status, answer)
            rows += self._rows(answer, asked[first:last])
            away |= dict.fromkeys(map(visible, map(str, answer["away"])))
        if away:
            warnings.warn(f"{', '.join(away)} did not take part in this answer: away", stacklevel=2)
        names = sorted(dict.fromkeys(name for row in rows for name in row), key=lambda name: name.startswith("score"))
        try:
            return data_frame(pa.table({name: pa.array([row.get(name) for row in rows]) for name in names}))
        except (pa.ArrowException, ValueError, OverflowError):  # cells of several types, or of none
            raise self._strange() from None

    def model(self, name: str | None = None) -> dict[str, Any]:
        """The description of a served model: `model`, `job`, `protocol`, `objective`, `classes`, `records`, `most_ids`.

        Raises as `predict`.
        """
        status, answer = self._ask("GET", "/v1/model" + (f"?model={quote(name)}" if name else ""))
        _raise_unless_ok(status, answer)
        return answer

    def close(self) -> None:
        """Close the connections; a further question opens one again."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({'http' if self._context is None else 'https'}://{self._host}:{self._port})"

    def _most(self, model: str | None, key: str) -> int:
        """The most ids of a request by the model's description; of one that gives no reasons 1, to hear its refusal."""
        if (model, key) not in self._most_ids:
            most = self.model(model).get(key)
            least = 1 if key == "most_ids" else 0
            if not isinstance(most, int) or most < least:
                raise self._strange()
            self._most_ids[model, key] = max(1, most)
        return self._most_ids[model, key]

    def _rows(self, answer: Mapping[str, Any], asked: Sequence[str | int]) -> list[Mapping[str, Any]]:
        """The predictions in an answer. `Unreachable` if they are not those of the ids that were asked for."""
        rows, away = answer.get("predictions"), answer.get("away")
        if not isinstance(rows, list) or not isinstance(away, list) or not all(isinstance(row, dict) for row in rows):
            raise self._strange()
        if [str(row.get("id")).strip() for row in rows] != [str(one).strip() for one in asked]:
            raise self._strange()
        return rows

    def _strange(self) -> Unreachable:
        return Unreachable(f"{self}: {_STRANGE}")

    def _ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Status and JSON of an answer. A connection that the party closed meanwhile is replaced once."""
        while True:
            kept = self._idle.pop() if self._idle else None
            connection = kept or HTTPConnection(self._host, self._port, timeout=self._timeout)
            connection.auto_open = 0  # never without TLS, should the party have closed it
            try:
                if kept is None:
                    connection.connect()
                    if self._context is not None:  # the party is compared with a name that need not be the host's
                        connection.sock = self._context.wrap_socket(connection.sock, server_hostname=self._expected)
                headers = dict(self._headers)
                if body is not None:
                    headers["Content-Type"] = "application/json"
                connection.request(method, path, None if body is None else json.dumps(body), headers)
                response = connection.getresponse()
                status, answer = response.status, _read(response)
            except TimeoutError:
                connection.close()
                raise Silent(f"{self} sent no answer within {self._timeout:g} s") from None
            except ssl.SSLCertVerificationError as failure:
                connection.close()
                raise Unreachable(self._untrusted(failure)) from None
            except (OSError, HTTPException) as failure:
                connection.close()
                if kept is not None:  # it was idle for too long
                    continue
                raise Unreachable(self._broken(failure)) from None
            self._idle.append(connection)
            return status, answer

    def _untrusted(self, failure: ssl.SSLCertVerificationError) -> str:
        reason = failure.verify_message
        if "mismatch" in reason or "not valid for" in reason:
            return (
                f"{self}: the gateway's certificate does not have the name {self._expected!r}: it is issued with "
                "`treetap certs issue GATEWAY --host NAME`; or give its name, as gateway='gateway', to compare that"
            )
        return f"{self}: the gateway's certificate is refused: {reason}"

    def _broken(self, failure: Exception) -> str:
        said = f"{self}: {getattr(failure, 'strerror', None) or failure or type(failure).__name__}"
        closed = isinstance(failure, ConnectionResetError | HTTPException | ssl.SSLError)
        if self._context is not None and closed:
            said += "; a gateway closes the connection of a certificate that is revoked or of another authority"
        return said


def _read(response: HTTPResponse) -> dict[str, Any]:
    content = response.read(_LONGEST + 1)
    try:
        answer = json.loads(content) if len(content) <= _LONGEST else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise HTTPException(_STRANGE)
    return answer


def _raise_unless_ok(status: int, answer: Mapping[str, Any]) -> None:
    if status != 200:
        said = visible(str(answer.get("detail", answer.get("title", status))))
        raise _ERRORS.get(status, TreetapError)(f"{said} (status {status})")


def _plain_ids(ids: Iterable[str | int]) -> list[str | int]:
    if isinstance(ids, str | bytes | int):
        raise InvalidInput(f"ids: must be a list of ids, as [{ids!r}]")
    given = column_of(ids)
    plain = given.tolist() if hasattr(given, "tolist") else list(given)
    if not plain:
        raise InvalidInput("ids: has no id")
    kinds = {type(value) for value in plain}
    if kinds not in ({str}, {int}):
        named = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidInput(f"ids: must be texts, or whole numbers, all of one kind; here {named}")
    return plain


def _context(folder: Path, client: str | None) -> ssl.SSLContext:
    """A client's side of TLS. Raises ConfigError, and InvalidInput: the folder has no certificate of a client."""
    if not folder.is_dir():
        raise InvalidInput(f"certs: {folder} is no folder; it has ca.crt and the client's certificate and key")
    name = client or _only_client(folder)
    revoked = folder / "crl.pem"
    files = TlsFiles(
        folder / "ca.crt",
        folder / f"{name}.crt",
        folder / f"{name}.key",
        revoked=revoked if revoked.is_file() else None,
    )
    files.check(name, Role.CLIENT)
    context = ssl.create_default_context(cafile=str(files.ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    files.load_into(context)
    if files.revoked is not None:
        context.load_verify_locations(str(files.revoked))
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    return context


def _only_client(folder: Path) -> str:
    """The one client whose certificate a folder has."""
    names = []
    for path in sorted(folder.glob("*.crt")):
        try:
            own = identity(read_certificates(path)[0])
        except NoIdentity:  # of the authority
            continue
        if own.role is Role.CLIENT:
            names.append(own.name)
    if len(names) == 1:
        return names[0]
    if names:
        raise InvalidInput(f"client: {folder} has certificates of {', '.join(names)}: name one, as client={names[0]!r}")
    raise InvalidInput(
        f"certs: {folder} has no certificate of a client: `treetap certs issue app --role client` makes one"
    )
