"""`assay serve`: a page about a store for browsers on this machine, which reads and never writes.

It listens on 127.0.0.1 alone, and answers only requests that name it as their host: a foreign page whose name was made
to lead here (DNS rebinding) is refused. The texts of records are sent as JSON, and the page shows them as text.
"""

from __future__ import annotations

import html
import json
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from assay.errors import BadInput
from assay.live.overview import Members, Observer, Overview, shown
from assay.report.document import STYLE, WEB, document
from assay.terminal import status_name, status_text

HOST = "127.0.0.1"
LOOK_SECONDS = 1.0  # between two looks at the store, however many pages ask
REST = 3  # times as long as a look, at least, is the pause after it
MOST_GROUPS, MOST_DOTS, MOST_PROCESSES = 300, 400, 50
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
BODY = """<h1>{name}</h1><p id=summary role=status>Reading the store ...</p><div id=live></div>
<noscript><p>This page needs scripts; <code>assay watch</code> shows the same in a terminal.</p></noscript>"""


class Server(ThreadingHTTPServer):
    """Serves one store; BadInput if the port is taken."""

    daemon_threads = True

    def __init__(self, observer: Observer, port: int = 0) -> None:
        self.observer, self.lock = observer, threading.Lock()
        self.state, self.next_look = b"", 0.0
        name = shown(str(observer.store.path))
        style = STYLE + (WEB / "live.css").read_text()
        body = [BODY.format(name=html.escape(name))]
        self.page = document(f"{name} - assay", body, style, ("page.js", "live.js"), connects="'self'").encode()
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            reason = error.strerror or str(error)
            raise BadInput(f"cannot listen on port {port}: {reason}; name another with --port, or 0 for any") from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away in the middle of an answer is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """What a request may name as its host."""
        return {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    def current_state(self) -> bytes:
        """The store as JSON, as it was a moment ago: at most a second, or a few looks of a large store."""
        with self.lock:
            start = time.monotonic()
            if start >= self.next_look:
                self.state = _json(self._look())
                end = time.monotonic()
                self.next_look = end + max(LOOK_SECONDS, REST * (end - start))
            return self.state

    def _look(self) -> dict[str, Any]:
        try:
            return plain(self.observer.look())
        except BadInput as error:
            return {"error": shown(" ".join(str(error).split()), 400)}

    def curves(self, task: str, model: str) -> bytes:
        with self.lock:
            return _json({"task": task, "model": model, "runs": self.observer.curves(task, model)})


class Handler(BaseHTTPRequestHandler):
    """Answers three addresses, and nothing else."""

    server: Server
    server_version, sys_version = "assay", ""
    timeout = 30

    def do_GET(self) -> None:
        if self.headers.get("Host", "").lower() not in self.server.hosts:
            self._send(HTTPStatus.FORBIDDEN, b"this page is for browsers on this machine", "text/plain")
            return
        path, _, query = self.path.partition("?")
        try:
            if path == "/":
                self._send(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8")
            elif path == "/state.json":
                self._send(HTTPStatus.OK, self.server.current_state(), "application/json")
            elif path == "/curves.json":
                names = parse_qs(query)
                task, model = (names.get(name, [""])[0] for name in ("task", "model"))
                self._send(HTTPStatus.OK, self.server.curves(task, model), "application/json")
            else:
                self._send(HTTPStatus.NOT_FOUND, b"there is nothing here", "text/plain")
        except BadInput as error:
            self._send(HTTPStatus.OK, _json({"error": shown(str(error), 400)}), "application/json")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not told: a page asks every two seconds."""


def plain(overview: Overview) -> dict[str, Any]:
    """An overview as JSON data of limited size."""
    progress = overview.progress
    alive = [process for process in progress.processes if process.is_alive]
    return {
        "total": overview.total,
        "ended": overview.total - len(progress.pending),
        "under_way": progress.under_way,
        "left": progress.left,
        "seconds_left": progress.seconds_left,
        "complete": overview.is_complete,
        "verdicts": {shown(name): count for name, count in progress.verdicts.most_common(20)},
        "groups": [_group(group) for group in overview.members[:MOST_GROUPS]],
        "more_groups": max(0, len(overview.members) - MOST_GROUPS),
        "newest": [news._asdict() for news in overview.newest],
        "processes": [
            {
                "name": shown(f"{process.host} {process.pid}"),
                "device": shown(process.device),
                "seconds": process.seconds,
                "says": [f"{shown(status_name(s))}: {shown(status_text(s), 160)}" for s in process.statuses[:16]],
            }
            for process in alive[:MOST_PROCESSES]
        ],
    }


def _group(group: Members) -> dict[str, Any]:
    """The members of a group: the numbers of all, and the seeds and verdicts of as many as can be drawn."""
    counts = dict[str, int]()
    for _, verdict in group.ended:
        counts[verdict] = counts.get(verdict, 0) + 1
    numbers = {"counts": counts, "under_way": group.under_way, "waiting": group.waiting}
    return {"task": group.task, "model": group.model, "runs": group.ended[:MOST_DOTS], **numbers}


def _json(data: dict[str, Any]) -> bytes:
    return json.dumps(data, allow_nan=False).encode()
