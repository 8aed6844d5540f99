"""Ask a role on this host whether it is ready: prints `ok` (exit code 0), or why it is not (exit code 1).

Ready means that a linearizable read passes within 2 seconds: by the store's majority, through the API server. With
--live, only whether the process responds, without its dependencies.

For healthchecks of containers: it takes hundredths of a second. Each role answers on a port of its own host:
{ports}; see its flag --healthz."""

from __future__ import annotations

import argparse
import socket

from minikube_py.cli import flags
from minikube_py.errors import MinikubeError

ANSWER_BYTES_MAX = 64 << 10


class NotWell(MinikubeError):
    """The role is unhealthy or does not respond."""


def configure(parser: argparse.ArgumentParser) -> None:
    ports = ", ".join(f"{role} {port}" for role, port in flags.HEALTH_PORTS.items())
    parser.description = (parser.description or "").format(ports=ports)
    parser.add_argument("role", choices=sorted(flags.HEALTH_PORTS), metavar="ROLE", help=", ".join(flags.HEALTH_PORTS))
    address_help = "address of the role's health endpoint (default: 127.0.0.1 and its port)"
    parser.add_argument("--address", type=flags.HOST_PORT, metavar="HOST:PORT", help=address_help)
    secrets_help = "accepted for every role so that all health checks look alike; not used"
    parser.add_argument("--secrets-dir", metavar="D", help=secrets_help)
    parser.add_argument("--live", action="store_true", help="check only whether the process is alive (livez)")
    parser.add_argument("--timeout", type=flags.duration_s, default=5.0, metavar="T", help="timeout (default: 5s)")


def run(arguments: argparse.Namespace) -> int:
    address = arguments.address or f"127.0.0.1:{flags.HEALTH_PORTS[arguments.role]}"
    print(ask(address, arguments.timeout, "livez" if arguments.live else "readyz"))
    return 0


def ask(address: str, timeout_s: float, kind: str = "readyz") -> str:
    """The role's response. Raises: NotWell."""
    host, _, port = address.rpartition(":")
    request = f"GET /{kind} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    answer = b""
    try:
        # By hand: importing an HTTP client takes longer than this run.
        with socket.create_connection((host.strip("[]"), int(port)), timeout_s) as connection:
            connection.sendall(request.encode())
            while len(answer) < ANSWER_BYTES_MAX and (part := connection.recv(4096)):
                answer += part
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        what = "no answer in time" if isinstance(error, TimeoutError) else reason.lower()
        raise NotWell(f"{address}: {what}; is it running, with --healthz at this address?") from error
    head, _, body = answer.partition(b"\r\n\r\n")
    text = body.decode(errors="replace").strip()
    words = head.split(b" ", 2)
    if len(words) < 2 or words[1] != b"200":
        raise NotWell(text or f"{address} closed the connection without an answer")
    return text
