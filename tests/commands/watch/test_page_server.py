"""The page of a run in progress: who gets it, and what it shows."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from synthetic_run import document, write_run

from fedbo.analysis.manifest import read_manifest, write_manifest
from fedbo.analysis.result import Result
from fedbo.cli import WRONG_INPUT, main
from fedbo.commands.watch.command import PageServer
from fedbo.commands.watch.run_watch import ResultSoFar, result_so_far, state_of_files
from fedbo.execution.runner import resume_study, run_study
from fedbo.figures.page.page import render_page
from fedbo.privacy.public_export import is_private
from fedbo.settings.errors import FedboError
from fedbo.study.study import load_study

STUDY = {
    "study": {"name": "watched", "seed": 2},
    "objective": {
        "name": "python_function",
        "function": "test_page_server:interrupted",
        "low": [0.0],
        "high": [1.0],
        "agents": 2,
    },
    "agents": {"initial": 3},
    "budget": {"iterations": 6},
    "recovery": {"events": 4},
    "algorithm": [{"name": "random"}],
}
CALLS = [0]


def interrupted(x: np.ndarray) -> float:
    """Press Ctrl-C twice in the twelfth call: the second one is not waited for."""
    CALLS[0] += 1
    if CALLS[0] == 12:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    return float(x[0])


class Broken(FedboError):
    """A page that cannot be made."""


@pytest.fixture
def server() -> Iterator[PageServer]:
    pages = iter(["<p>first</p>", "<p>second</p>"])

    def page() -> str:
        try:
            return next(pages)
        except StopIteration:
            raise Broken("there is no third page") from None

    with PageServer(page) as served:
        thread = Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def ask(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.putrequest(method, path, skip_host="host" in headers)
    for name, value in headers.items():
        for each in value.split(" and "):
            connection.putheader(name, each)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), answer.headers
    connection.close()
    return found


def test_the_address_gets_the_page_and_nothing_that_keeps_or_passes_it_on(server: PageServer) -> None:
    assert server.address.startswith("http://127.0.0.1:") and len(server.token) >= 40
    path = server.address.removeprefix(f"http://{server.host}")
    status, body, headers = ask(server, path)
    assert (status, body, headers["Content-Type"]) == (200, "<p>first</p>", "text/html; charset=utf-8")
    assert headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Frame-Options"] == "DENY" and headers["Server"] == "fedbo"
    assert ask(server, path)[1] == "<p>second</p>"
    assert ask(server, path)[:2] == (503, "there is no third page")


def test_two_servers_have_unlike_tokens(server: PageServer) -> None:
    with PageServer(lambda: "") as other:
        assert other.token != server.token and other.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("query", ["", "?token=", "?token=x", "?Token={}", "?token={}x", "?token={}&token={}", "?token=%C3%A9"])
def test_without_the_token_there_is_nothing(server: PageServer, query: str) -> None:
    status, body, _ = ask(server, f"/{query.format(server.token, server.token)}")
    assert status == 403 and "token is missing or wrong" in body and server.token not in body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "localhost:{port}", "127.0.0.1", "", "{host} and {host}", "none"]
)
def test_a_request_that_names_another_host_gets_nothing(server: PageServer, host: str) -> None:
    headers = {"host": host.format(host=server.host, port=server.server_address[1])}
    status, body, _ = ask(server, f"/?token={server.token}", **headers)
    assert status in (400, 421) and "<p>" not in body


@pytest.mark.parametrize(
    "path", ["/x?token={}", "//evil.example/?token={}", "/../etc/passwd?token={}", "/report.html?token={}"]
)
def test_there_is_only_one_page(server: PageServer, path: str) -> None:
    assert ask(server, path.format(server.token))[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"])
def test_nothing_but_get_is_supported(server: PageServer, method: str) -> None:
    assert ask(server, f"/?token={server.token}", method)[0] == 501


def test_the_page_of_a_run_that_goes_on_is_that_of_its_last_snapshots(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_study(load_study(STUDY, trust=True), folder)
    write_manifest(folder, {**read_manifest(folder), "status": "running"})
    before, result = state_of_files(folder), result_so_far(folder)
    assert isinstance(result, ResultSoFar)
    assert 0 < len(result.observations) < 2 * 9 and len(result.events) > 0
    page = render_page([result], refresh=5.0)
    assert "not complete (running)" in page and "refreshes every 5 seconds" in page
    assert '"refresh":5.0' in page and '"running":true' in page
    resume_study(folder)
    assert state_of_files(folder) != before
    whole = result_so_far(folder)
    assert not isinstance(whole, ResultSoFar) and len(whole.observations) == 2 * 9
    assert '"refresh":null' in render_page([whole]) and "refreshes every" not in render_page([whole])


def test_a_run_without_a_snapshot_has_a_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", document(2, 2, 1), status="running")
    for name in ("observations", "events"):
        (folder / f"{name}.parquet").unlink()
    page = render_page([result_so_far(folder)], refresh=2.0)
    assert "No evaluation has finished." in page and "refreshes every 2 seconds" in page


def test_a_private_run_that_goes_on_has_no_values_of_single_agents(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", {**document(6, 2, 1), "algorithm": [{"name": "dp_fts_de"}]})
    for status, private in (("complete", False), ("running", True)):  # what a complete one has spent is in its ledger
        write_manifest(folder, {**read_manifest(folder), "status": status})
        assert is_private(Result.open(folder)) is private


@pytest.mark.long
def test_the_command_prints_the_address_and_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", document(2, 2, 1))
    # A process that was started in the background of a shell may ignore Ctrl-C, and so would its children.
    code = "import signal, sys; signal.signal(2, signal.default_int_handler); from fedbo.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "watch", str(folder), "--browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert b"Move through time" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


def test_wrong_options_are_refused_before_anything_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_run(tmp_path / "run", document(2, 2, 1)))
    with PageServer(lambda: "") as other:
        taken = str(other.server_address[1])
        for words, arguments in {
            "cannot be combined with --once": [folder, "--browser", "--once"],
            "has no effect without --browser": [folder, "--port", "8000"],
            "cannot be used": [folder, "--browser", "--port", taken],
            "is not a run directory": [str(tmp_path), "--browser"],
        }.items():
            assert main(["watch", *arguments]) == WRONG_INPUT
            assert words in capsys.readouterr().err
