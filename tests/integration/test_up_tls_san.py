"""`up --tls-san`: a client that verifies names reaches the server by each of them, and by no other."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from up_process import up

from minikube_py.cli import main


async def reached_as(name: str, address: tuple[str, int], tls: ssl.SSLContext) -> None:
    """Raises: ssl.SSLCertVerificationError where the certificate does not name it."""
    _, writer = await asyncio.open_connection(*address, ssl=tls, server_hostname=name)
    writer.close()


@pytest.mark.parametrize("more", [pytest.param([], id="one process"), pytest.param(["--split"], id="split")])
async def test_the_certificate_names_what_was_given(tmp_path: Path, more: list[str]) -> None:
    names = ["--tls-san", "Lab.example.org,192.0.2.7", "--tls-san", "*.labs.example.org", "--tls-san", "2001:db8::7"]
    with up("--nodes", "0", *names, *more) as running:
        assert running.ready()
        tls = running.tls()
        for name in ("localhost", "lab.example.org", "a.labs.example.org", "192.0.2.7", "2001:db8::7"):
            await reached_as(name, running.address, tls)
        for name in ("other.example.org", "a.b.labs.example.org", "192.0.2.8"):
            with pytest.raises(ssl.SSLCertVerificationError):
                await reached_as(name, running.address, tls)


async def test_a_name_added_later_is_in_the_certificate_of_the_same_folder(tmp_path: Path) -> None:
    data = ("--nodes", "0", "--data-dir", str(tmp_path / "data"))
    authorities = []
    for names in ((), ("--tls-san", "lab.example.org"), ()):
        with up(*data, *names) as running:
            assert running.ready()
            authorities.append(running.access.ca_pem)
            if names:
                await reached_as("lab.example.org", running.address, running.tls())
    assert len(set(authorities)) == 1, "kubeconfigs handed out before go on working"


@pytest.mark.parametrize("wrong", ["-a.example", "a..b", "a b", "https://a", "a:6443", "x" * 64, "*", "[::1]"])
def test_what_no_certificate_can_name_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["up", f"--tls-san={wrong}"]) == 2
    assert "is neither a host name nor an address" in capsys.readouterr().err
