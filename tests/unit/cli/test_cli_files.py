"""A file that is named and cannot be read, or says what it must not, is wrong usage (2), said before anything
starts, with the flag and the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cli_exit_codes import of_all_commands

from minikube_py.cli.input_files import file, file_or_folder, folder
from minikube_py.cli.main import main

READ = (file, folder, file_or_folder)
OTHERS = {
    "folders and files that are made": """
        --data-dir --results --out --write --png --journal --to --output --write-config-to --dir file
        """,
    "what another process may yet write: a role waits for it, or is started again": """
        --kubeconfig --secrets-dir --token-file --ca-file --etcd-cafile --etcd-certfile --etcd-keyfile
        --tls-cert-file --tls-private-key-file --client-ca-file --token-auth-file
        --service-account-signing-key-file --service-account-private-key-file --cluster-signing-cert-file
        --cluster-signing-key-file --store-token-file --store-ca-file --trusted-ca-file
        --peer-token-file --peer-ca-file --peer-cert-file --peer-key-file
        """,
    "a damaged folder, which the command judges": "folder",
    "a program, which the command looks for": "--beside-upstream",
}
"""The flags of paths that are not read at once, by why."""

SCHEDULER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
FILES = {
    "stages/readme.txt": "no YAML here\n",
    "bad.yaml": "kind: [\n",
    "other.yaml": f"{SCHEDULER}profiles: [{{schedulerName: mine}}]\n",
    "unknown.yaml": f"{SCHEDULER}profiles: [{{plugins: {{score: {{enabled: [{{name: Nope}}]}}}}}}]\n",
    "empty.json": "",
    "mine.py": "class Mine:\n    def score(self, pod, node):\n        return 1\n",
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_path_is_read_at_once_or_says_why_not() -> None:
    paths = {(each.option_strings or [each.dest])[0] for each in of_all_commands() if each.type is Path}
    read = {(each.option_strings or [each.dest])[0] for each in of_all_commands() if each.type in READ}
    assert paths == {flag for flags in OTHERS.values() for flag in flags.split()}
    assert {"--stages", "--scheduler-config", "--shapes", "--from", "--audit-policy-file", "file"} <= read


@pytest.mark.parametrize(
    ("words", "flag", "name"),
    [
        ("up --stages stages", "--stages", "stages"),
        ("up --stages nosuch", "--stages", "nosuch"),
        ("up --stages bad.yaml", "--stages", "bad.yaml"),
        ("up --scheduler-config nosuch.yaml", "--scheduler-config", "nosuch.yaml"),
        ("up --scheduler-config bad.yaml", "--scheduler-config", "bad.yaml"),
        ("up --scheduler-config stages", "--scheduler-config", "stages"),
        ("up --scheduler mine=nosuch.yaml", "--scheduler", "nosuch.yaml"),
        ("up --scheduler mine=unknown.yaml", "--scheduler", "unknown.yaml"),
        ("up --plugin nosuch.py:Mine", "--plugin", "nosuch.py"),
        ("up --plugin mine.py:Nope", "--plugin", "mine.py"),
        ("up --audit-log-path - --audit-policy-file bad.yaml", "--audit-policy-file", "bad.yaml"),
        ("up --restore nosuch", "--restore", "nosuch"),
        ("compare default nosuch.yaml", "B", "nosuch.yaml"),
        ("compare nosuch.yaml default", "A", "nosuch.yaml"),
        ("compare unknown.yaml default", "A", "unknown.yaml"),
        ("compare default other.yaml", "B", "other.yaml"),
        ("compare default default --plugin mine.py:Nope", "--plugin", "mine.py"),
        ("bench scheduler-perf nosuch.yaml", "FILE", "nosuch.yaml"),
        ("bench scheduler-perf bad.yaml --list", "FILE", "bad.yaml"),
        ("bench density --virtual --scheduler-config unknown.yaml", "--scheduler-config", "unknown.yaml"),
        ("bench schedule --scheduler-config other.yaml", "--scheduler-config", "other.yaml"),
        ("demo --scheduler-config bad.yaml", "--scheduler-config", "bad.yaml"),
        ("replay openb --scheduler-config unknown.yaml", "--scheduler-config", "unknown.yaml"),
        ("replay openb --tables nosuch", "--tables", "nosuch"),
        ("replay --from nosuch --until 3", "--from", "nosuch"),
        ("replay --from empty.json --until 3", "--from", "empty.json"),
        ("kubelet --kubeconfig x --shapes empty.json", "--shapes", "empty.json"),
        ("kubelet --kubeconfig x --stages stages", "--stages", "stages"),
        ("scheduler --kubeconfig x --config unknown.yaml", "--scheduler-config", "unknown.yaml"),
        ("what-if nosuch.yaml", "POD.yaml", "nosuch.yaml"),
        ("what-if other.yaml", "POD.yaml", "other.yaml"),
        ("store snapshot verify nosuch", "FILE", "nosuch"),
        ("lab study bloom --bench nosuch", "--bench", "nosuch"),
    ],
)
def test_a_file_that_is_wrong(words: str, flag: str, name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    printed = capsys.readouterr()
    assert f": argument {flag}" in printed.err and name in printed.err
    assert printed.err.endswith(" --help\n")
    assert printed.err.count("\n") == 1
    assert printed.out == ""
