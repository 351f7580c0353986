"""`assay serve`: what it answers, to whom, and that nothing in a store can harm it or its page."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from typer.testing import CliRunner

from assay.cli import app
from assay.live import server as live_server
from assay.live.overview import Observer
from assay.live.server import Server
from assay.store import Store

from .stores import IMAGE, SCRIPT, hostile, record, specs, under_way


@contextmanager
def served(store: Store) -> Iterator[Server]:
    with Server(Observer(Store.open(store.path))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def state(server: Server, path: str = "/state.json") -> dict[str, Any]:
    status, _, body = ask(server, path)
    assert status == 200
    answer: dict[str, Any] = json.loads(body, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    return answer


def snapshot(store: Store) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in store.path.rglob("*") if path.is_file()}


def test_the_state_of_a_store_under_way(tmp_path: Path):
    with under_way(tmp_path / "s") as (store, _), served(store) as server:
        assert server.server_address[0] == "127.0.0.1"
        told = state(server)
        assert (told["total"], told["ended"], told["under_way"], told["left"]) == (4, 2, 1, 1)
        assert (told["complete"], told["seconds_left"]) == (False, pytest.approx(10))
        (group,) = told["groups"]
        assert group == {
            "task": "parity",
            "model": "lstm",
            "runs": [[0, "solved"], [1, "failed"]],
            "counts": {"solved": 1, "failed": 1},
            "under_way": 1,
            "waiting": 1,
        }
        assert [(one["seed"], one["verdict"], one["detail"]) for one in told["newest"]] == [
            (1, "failed", "out of luck"),
            (0, "solved", "at step 40"),
        ]
        (process,) = told["processes"]
        assert process["says"] == ["lstm parity: step 300 of 2,000, loss 0.250, 50.0 %, 10/s, 2:50 left"]
        runs = state(server, "/curves.json?task=parity&model=lstm")["runs"]
        assert [(run["seed"], run["points"][0]) for run in runs] == [(1, [10, 0.1, 0.25]), (0, [10, 0.1, 0.25])]
        assert state(server, "/curves.json?task=x")["runs"] == []


def test_only_browsers_of_this_machine_are_answered(tmp_path: Path):
    store = Store.create(tmp_path / "s")
    with served(store) as server:
        before = snapshot(store)
        port = server.server_port
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
            for path in ("/", "/state.json"):
                status, _, body = ask(server, path, Host=host)
                assert (status, b"{" in body) == (403, False), host
        assert ask(server, "/", Host=f"localhost:{port}")[0] == 200
        segments = "/assay-store.json", "/segments/", "/../", "/%2e%2e/", "/state.json/", "/page.js", "/favicon.ico"
        assert {ask(server, path)[0] for path in segments} == {404}
        assert {ask(server, "/", method)[0] for method in ("POST", "PUT", "DELETE", "OPTIONS")} == {501}
        status, headers, body = ask(server, "/", "HEAD")
        assert (status, body) == (200, b"")
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert not any(name.startswith("Access-Control") for name in headers)
        assert snapshot(store) == before, "it only reads"


def test_a_hostile_store_is_told_as_text_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = hostile(tmp_path / "s")
    monkeypatch.setattr(live_server, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(live_server, "REST", 0)
    with served(store) as server:
        told = state(server)
        groups = {(group["task"], group["model"]): group for group in told["groups"]}
        assert groups[IMAGE, SCRIPT]["counts"] == {"failed": 1}
        assert groups[IMAGE, SCRIPT]["waiting"] == 1
        assert ("parity", "�[2J�model") in groups
        assert max(len(one["detail"]) for one in told["newest"]) == 200
        answer = state(server, f"/curves.json?task={IMAGE.replace(' ', '%20')}&model={SCRIPT}")
        assert answer["runs"][0]["rate"] is None
        answer = state(server, f"/curves.json?{urlencode({'task': 'parity', 'model': '�[2J�model'})}")
        assert answer["runs"][0]["rate"] is None, "a rate of 400 digits"
        (segment,) = (store.path / "segments").glob("*.jsonl")
        (run,) = specs(count=1).values()
        for line in (b"{}", b"[" * 100_000, record(run, spec={"task": 5}).model_dump_json().encode()):
            whole = segment.read_bytes()
            segment.write_bytes(whole + line + b"\n")
            assert "line 3 is not a record" in state(server)["error"]
            segment.write_bytes(whole)
        _, _, page = ask(server, "/")
        assert IMAGE.encode() not in page


def test_a_request_of_nonsense_is_answered_and_none_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    store = Store.create(tmp_path / "s")
    with served(store) as server:
        for line, status in {
            "GET http://[ HTTP/1.1": b"404",
            "GET /state.json?%00=%ff&x HTTP/1.1": b"200",
            "GET //evil.example/ HTTP/1.1": b"404",
            "GET /state.json": b"400",
            "BREW / HTTP/1.1": b"501",
            f"GET /{'x' * 70_000} HTTP/1.1": b"414",
        }.items():
            with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
                host = f"Host: 127.0.0.1:{server.server_port}"
                connection.sendall(f"{line}\r\n{host}\r\nConnection: close\r\n\r\n".encode())
                assert status in connection.recv(1000).splitlines()[0] or line == "GET /state.json", line
        for _ in range(3):  # readers that do not wait for their answer
            connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=10)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(f"GET / HTTP/1.1\r\n{host}\r\n\r\n".encode())
            connection.close()
        assert state(server)["total"] == 0
    assert capfd.readouterr() == ("", "")


def test_a_store_whose_name_is_markup(tmp_path: Path):
    store = Store.create(tmp_path / "<b>name")
    with served(store) as server:
        _, headers, page = ask(server, "/")
        assert b"<b>" not in page
        assert b"&lt;b&gt;name</h1>" in page
        assert b"connect-src 'self'" in page
        assert headers["Content-Type"] == "text/html; charset=utf-8"


def test_a_port_that_is_taken(tmp_path: Path):
    store = Store.create(tmp_path / "s")
    with served(store) as server:
        result = CliRunner().invoke(app, ["serve", str(store.path), "--port", str(server.server_port)])
        assert f"cannot listen on port {server.server_port}: Address already in use; name another" in str(
            result.exception
        )
