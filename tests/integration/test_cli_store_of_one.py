"""The `store` commands on a plain `up`, whose only member has no address of its own to report."""

import json
import subprocess
import sys
from pathlib import Path

from up_process import up


def store(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "minikube_py", "store", *words, "--data-dir", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done


def test_a_store_of_one_member_is_changed_and_queried(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up("--nodes", "1", "--data-dir", str(data)):
        assert store(data, "alarm", "disarm").stdout == "cleared: 0\n"
        assert "x is expected" in store(data, "member", "add", "x").stdout
        assert "no longer expected" in store(data, "member", "remove", "x").stdout
        found = json.loads(store(data, "query", "nodes", "free.cpu>=1", "--index", "fits", "--json").stdout)
        assert found["names"] == ["node-0"]
        assert store(data, "query", "nodes", "free.cpu>=100000").stdout == ""
        assert "the store holds no pods" in store(data, "query", "pods", "requests.cpu>=1").stderr
