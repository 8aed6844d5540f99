"""Keeps the protobuf bodies that kubectl sends, beside what it prints as JSON for the same command.

    python tests/conformance/record_kubectl_bodies.py KUBECTL URL TOKEN    (kubectl 1.32 or later; URL of upstream)

A server that keeps every POST hands reads on to upstream; `--dry-run=client -o json` prints the same object.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

DATA = Path(__file__).parent / "data" / "kubectl_bodies.json"

COMMANDS = [
    "create namespace n",
    "create configmap c --from-literal=a=b --from-literal=empty=",
    "create secret generic s --from-literal=password=p --type=kubernetes.io/basic-auth --from-literal=username=u",
    "create secret tls t --cert=CERT --key=KEY",
    "create serviceaccount sa",
    "create service clusterip web --tcp=80:8080 --tcp=443:https",
    "create service nodeport np --tcp=80:8080 --node-port=30080",
    "create service externalname en --external-name=example.org",
    "create quota q --hard=cpu=1500m,memory=1Gi,pods=10 --scopes=BestEffort",
    "create deployment web --image=nginx:1 --image=busybox --replicas=3 --port=80",
    "create job j --image=busybox -- sh -c true",
    "create cronjob cj --image=busybox --schedule=*/5**** -- date",
    "create role r --verb=get --verb=list --resource=pods --resource=deployments.apps --resource-name=x",
    "create rolebinding rb --role=r --user=u --group=g --serviceaccount=default:sa",
    "create clusterrolebinding crb --clusterrole=admin --user=u",
    "create poddisruptionbudget pdb --selector=a=b --min-available=50%",
    "create priorityclass pc --value=1000 --global-default=false --preemption-policy=Never --description=d",
    "create ingress i --rule=example.org/path*=svc:8080,tls=my-cert --annotation=a=b",
]


class Capture(BaseHTTPRequestHandler):
    bodies: list[dict[str, Any]] = []
    url = token = ""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append({"path": self.path, "content_type": self.headers["Content-Type"], "hex": body.hex()})
        answer = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"kept","code":403}'
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self) -> None:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": self.headers.get("Accept", "*/*")}
        request = urllib.request.Request(self.url + self.path, headers=headers)
        with urllib.request.urlopen(request, context=ssl._create_unverified_context()) as response:
            body = response.read()
            self.send_response(response.status)
            self.send_header("Content-Type", response.headers["Content-Type"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def self_signed(folder: str) -> tuple[str, str]:
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    begin = datetime.datetime(2024, 1, 1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, datetime.datetime(2044, 1, 1))
    certificate = builder.sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    paths = Path(folder, "cert.pem"), Path(folder, "key.pem")
    for path, content in zip(paths, (certificate.public_bytes(pem), private), strict=True):
        path.write_bytes(content)
    return str(paths[0]), str(paths[1])


def main() -> None:
    kubectl, Capture.url, Capture.token = sys.argv[1:]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Capture)
    Thread(target=server.serve_forever, daemon=True).start()
    recorded = []
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = self_signed(folder)
        for command in COMMANDS:
            words = command.replace("CERT", certificate).replace("KEY", key).split()
            words = [word.replace("*/5****", "*/5 * * * *") for word in words]
            split = words.index("--") if "--" in words else len(words)
            base = [kubectl, "--server", f"http://127.0.0.1:{server.server_port}", *words[:split]]
            printed = subprocess.run(
                [*base, "--dry-run=client", "-o", "json", *words[split:]], capture_output=True, text=True
            )
            Capture.bodies.clear()
            subprocess.run([*base, *words[split:]], capture_output=True, text=True)
            if not printed.stdout or not Capture.bodies:
                sys.exit(f"{command}: {printed.stderr} {len(Capture.bodies)} bodies")
            recorded.append({"command": command, **Capture.bodies[-1], "object": json.loads(printed.stdout)})
    server.shutdown()
    DATA.write_text("[\n" + ",\n".join(json.dumps(case, sort_keys=True) for case in recorded) + "\n]\n")
    print(f"{DATA}: {len(recorded)} bodies")


if __name__ == "__main__":
    main()
