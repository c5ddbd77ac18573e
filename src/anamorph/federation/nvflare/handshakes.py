"""TLS at the doors of a party: who may enter is checked by key, and who may not is told.

NVFLARE's listeners let in every certificate of the authority, drop others without a word, and wait
for ever for a party that connects and says nothing, during which nobody else gets in. Here each
handshake has a thread and a time limit of its own, is followed by a check of the key, and its
failure is reported. The same goes for handshakes that this party begins.

NVFLARE also drops the connection of a party when a second one connects with its name. Here, at the
coordinator, the first one stays as long as it is alive.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from cryptography import x509
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver, TcpStreamServer
from nvflare.fuel.f3.sfm.sfm_endpoint import SfmEndpoint

#: Returns why a certificate is not let in, or None if it is.
Admit = Callable[[x509.Certificate], str | None]
#: Called with a line about who was refused, and the name of the site that should know of it.
Report = Callable[[str, str | None], object]

_HANDSHAKE = 15.0  # seconds
_AT_ONCE = 3.0  # seconds
_MOST_CLOSINGS = 4  # in a row; a server that restarts closes fewer
_ALIVE = 8.0  # seconds in which a site that is alive is heard
_MOST_KINDS = 1000
_PAUSE = 60.0  # seconds between two reports of the same kind: nobody can fill a disk with them


def guard_handshakes(admit: Admit, report: Report) -> None:
    """Check and report all TLS handshakes that others begin with this process.

    Parameters
    ----------
    admit : callable
        Decides about the certificate of a party that connects here, which the authority signed.
    report : callable
        Called for every handshake that fails, and every party that is not let in.
    """
    tell = _Seldom(report)
    take_request, finish_request = TcpStreamServer.get_request, TcpStreamServer.finish_request

    def take_without_handshake(server: Any) -> Any:
        if server.ssl_context is not None:
            server.socket.do_handshake_on_connect = False
        return take_request(server)

    def finish_with_handshake(server: Any, request: Any, address: Any) -> None:
        if server.ssl_context is not None:
            refusal = _refusal(request, admit)
            if refusal is not None:
                if refusal:
                    tell(f"A connection from {address[0]} was refused: {refusal}")
                return
        finish_request(server, request, address)

    TcpStreamServer.get_request = take_without_handshake
    TcpStreamServer.finish_request = finish_with_handshake


def watch_connections(report: Report, give_up: Callable[[], object]) -> None:
    """Report handshakes that this process begins, and that fail.

    Parameters
    ----------
    report : callable
    give_up : callable
        Called when the other end has closed several connections in a row at once.
    """
    tell, connect = _Seldom(report), TcpDriver.connect
    closings = {"n": 0}

    def connect_and_tell(driver: Any, connector: Any) -> None:
        place = f"{connector.params.get('host')}:{connector.params.get('port')}"
        started, n_before = time.monotonic(), closings["n"]
        closings["n"] = 0
        try:
            connect(driver, connector)  # returns when the connection ends
        except ssl.SSLError as error:
            tell(f"No secure connection with {place}: {_explained(error)}")
            raise
        if time.monotonic() - started < _AT_ONCE:
            tell(f"{place} closed the connection at once: it does not accept this certificate")
            closings["n"] = n_before + 1
        if closings["n"] >= _MOST_CLOSINGS:
            give_up()

    TcpDriver.connect = connect_and_tell


def keep_first_connections(report: Report) -> None:
    """Refuse a second connection of a name while the first one is alive.

    Parameters
    ----------
    report : callable
        Called for every connection that is refused.
    """
    tell, add = _Seldom(report), SfmEndpoint.add_connection

    def add_unless_alive(endpoint: Any, connection: Any) -> None:
        name = endpoint.endpoint.name
        for first in endpoint.connections:
            if time.time() - first.last_activity < _ALIVE:
                text = f"{name} is running already: a second site of that name was refused"
                tell(text, name.split(".")[0])
                _end_connection(connection.conn)
                raise CommError(CommError.BAD_DATA, text)
        add(endpoint, connection)

    SfmEndpoint.add_connection = add_unless_alive


def _end_connection(connection: Any) -> None:
    """Let a connection end; the thread that reads from it closes it.

    Closed here, its number could at once be that of another file, into which a thread that is still
    sending would write.
    """
    connection.closing = True
    with contextlib.suppress(OSError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _refusal(request: Any, admit: Admit) -> str | None:
    """Finish the handshake with a party; return why it is not let in, or None.

    The reason is empty for whoever goes away without a word: all it did was to look at the port.
    """
    try:
        request.settimeout(_HANDSHAKE)
        request.do_handshake()
        request.settimeout(None)
        return admit(x509.load_der_x509_certificate(request.getpeercert(binary_form=True)))
    except TimeoutError:
        return f"it began no TLS handshake within {_HANDSHAKE:g} s"
    except (ssl.SSLEOFError, ConnectionError):
        return ""
    except ssl.SSLError as error:
        return _explained(error)
    except OSError as error:
        return f"the handshake failed ({error.strerror})"


def _explained(error: ssl.SSLError) -> str:
    """Return what the error of a handshake means for the operator of a party."""
    text = getattr(error, "verify_message", "") or error.reason or str(error)
    meanings = {
        "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate",
        "HTTP_REQUEST": "it did not speak TLS",
        "WRONG_VERSION_NUMBER": "it did not speak TLS",
        "TLSV1_ALERT_UNKNOWN_CA": "it does not know this party's authority",
    }
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not one of this consortium's authority, or not valid ({text})"
    return meanings.get(text, text.replace("_", " ").lower())


class _Seldom:
    """Reports a line at most once in a while, with how many were left out."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._last: dict[str, float] = {}
        self._n_omitted: dict[str, int] = {}

    def __call__(self, line: str, about: str | None = None) -> None:
        now = time.monotonic()
        if now - self._last.get(line, -_PAUSE) < _PAUSE:
            self._n_omitted[line] = self._n_omitted.get(line, 0) + 1
            return
        if len(self._last) > _MOST_KINDS:  # as many addresses as somebody likes to use
            self._last.clear()
        self._last[line] = now
        omitted = self._n_omitted.pop(line, 0)
        more = f" (and {omitted} times more before)" if omitted else ""
        self._report(line + more, about)
