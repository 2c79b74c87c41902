"""`rankbudget inspect --serve`: the real command, asked over HTTP."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from functools import partial
from http.client import HTTPConnection

import pytest

from tests.core.cli.conftest import failed


@pytest.fixture
def served(chat):
    """The command and its port; stopped as a person stops it."""
    command = [sys.executable, "-m", "rankbudget", "inspect", "--serve", str(chat), "--window", "1k"]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a run in the background ignores it
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=heard) as process:  # noqa: PLW1509 - no threads here
        address = process.stdout.readline()
        assert address.startswith("http://127.0.0.1:")
        try:
            yield int(address.split("/ ")[0].rpartition(":")[2])
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=10) == 130
        finally:
            process.kill()


def get(port, path, host=None):
    """Status and text of an answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


@pytest.mark.slow
def test_each_window_is_fitted_when_it_is_asked_for(served):
    """More messages stay in a larger window; one in which nothing fits says what is needed."""
    status, slider = get(served, "/")
    assert status == 200
    assert "start = 1000" in slider

    def kept(window):
        status, text = get(served, f"/page?window={window}")
        assert status == 200
        data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
        return data["turns"][0]["total"]

    most = int(slider.partition("most = ")[2].partition(",")[0])
    assert 0 < kept(500) <= 500 < kept(2000) <= 2000
    assert kept(most) == kept(10 * most) > kept(most * 9 // 10)
    status, text = get(served, "/page?window=5")
    assert (status, "No prompt fits" in text) == (200, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/", "evil.example:80", 403),
        ("/", "localhost:1", 200),
        ("/other", None, 404),
        ("/page?window=0", None, 404),
        ("/page?window=1e9", None, 404),
        ("/page", None, 404),
    ],
)
def test_it_answers_this_machine_alone(served, path, host, status):
    """A name that another site lets lead here is refused; so is what is no window."""
    assert get(served, path, host)[0] == status


def test_a_port_that_is_taken_is_an_error_with_its_remedy(chat, capsys):
    """The error names the port and says how to do without one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = failed(capsys, "inspect", "--serve", chat, "--port", port)
    assert f"got {port}" in error
    assert "Without --port" in error
    assert "99999" in failed(capsys, "inspect", "--serve", chat, "--port", 99999)
