"""How a command finds the control plane that runs, and its store."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minikube_py.control_plane import running
from minikube_py.control_plane.certificates import ensure_certificates
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.running import Note, Running
from minikube_py.control_plane.store_access import (
    FILE_NAME,
    StoreAccess,
    access_by_files,
    find_access,
    parse_addresses,
    read_access,
    write_access,
)
from minikube_py.store.data_dir import DataDir


@pytest.fixture(autouse=True)
def own_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.delenv("MINIKUBE_PY_STORE", raising=False)
    return folder


def test_a_note_stands_while_its_process_holds_the_folder(tmp_path: Path) -> None:
    with DataDir(tmp_path / "data"):
        note = Note(tmp_path / "data")
        assert running.running() == [Running(os.getpid(), tmp_path / "data")]
        assert running.the_one() == tmp_path / "data"
        note.remove()
    assert running.running() == []
    with pytest.raises(SetupError, match="no control plane of yours is running"):
        running.the_one()


def test_notes_of_the_dead_are_swept(tmp_path: Path, own_runtime_folder: Path) -> None:
    script = "import sys; from pathlib import Path; from minikube_py.store.data_dir import DataDir\n"
    script += "from minikube_py.control_plane.running import Note\n"
    script += "held = DataDir(Path(sys.argv[1])); Note(Path(sys.argv[1])); import os; os._exit(0)"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "data")], check=True)
    assert len(list((own_runtime_folder / "minikube-py").iterdir())) == 1
    assert running.running() == []
    assert list((own_runtime_folder / "minikube-py").iterdir()) == []


def test_of_several_one_must_be_named(tmp_path: Path, own_runtime_folder: Path) -> None:
    with DataDir(tmp_path / "a"), DataDir(tmp_path / "b"):
        Note(tmp_path / "a")
        (tmp_path / "b" / "lock").write_text("1\n")
        (own_runtime_folder / "minikube-py" / "1.json").write_text(json.dumps({"dataDir": str(tmp_path / "b")}))
        with pytest.raises(SetupError, match=f"control planes are running: {tmp_path / 'b'}, {tmp_path / 'a'};"):
            running.the_one()


def test_a_folder_that_others_can_write_to_is_not_believed(tmp_path: Path, own_runtime_folder: Path) -> None:
    folder = own_runtime_folder / "minikube-py"
    folder.mkdir()
    folder.chmod(0o777)
    with DataDir(tmp_path / "data"):
        Note(tmp_path / "data")
        assert list(folder.iterdir()) == [] and running.running() == []


PEM = "-----BEGIN CERTIFICATE-----\n"
TOKEN = "a-token-of-enough-length"


def test_access_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_access(tmp_path / FILE_NAME, ["127.0.0.1:2390", "[::1]:2391"], TOKEN, PEM.encode())
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert find_access(tmp_path) == StoreAccess((("127.0.0.1", 2390), ("::1", 2391)), TOKEN, PEM.encode())


def test_where_access_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("named", "running"):
        (tmp_path / name).mkdir()
        write_access(tmp_path / name / FILE_NAME, [f"{name}:1"], TOKEN, PEM.encode())
    with DataDir(tmp_path / "running"):
        Note(tmp_path / "running")
        assert find_access().addresses == (("running", 1),)
        monkeypatch.setenv("MINIKUBE_PY_STORE", str(tmp_path / "named"))
        assert find_access().addresses == (("named", 1),)
        monkeypatch.setenv("MINIKUBE_PY_STORE", str(tmp_path / "named" / FILE_NAME))
        assert find_access().addresses == (("named", 1),)
        assert find_access(tmp_path / "running").addresses == (("running", 1),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{}", "not a store access file: KeyError", id="empty"),
        pytest.param("nonsense", "not a store access file: JSONDecodeError", id="no JSON"),
        pytest.param('{"endpoints": ["x"], "token": "t", "certificateAuthority": "c"}', "x: not an address", id="port"),
        pytest.param('{"endpoints": [], "token": "t", "certificateAuthority": "c"}', "no address", id="none"),
    ],
)
def test_bad_access_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(SetupError, match=message):
        read_access(tmp_path / FILE_NAME)


def test_access_by_files_checks_them_at_once(tmp_path: Path) -> None:
    certificates = ensure_certificates(tmp_path / "pki")
    (tmp_path / "token").write_text(TOKEN)
    access = access_by_files("a:1, b:2", tmp_path / "token", certificates.authority_file, "--endpoints")
    assert access.addresses == (("a", 1), ("b", 2)) and len(access.endpoints()) == 2
    (tmp_path / "ca").write_text("no certificate")
    with pytest.raises(SetupError, match="the store's authority is not a certificate"):
        access_by_files("a:1", tmp_path / "token", tmp_path / "ca", "--endpoints")
    with pytest.raises(SetupError, match="--endpoints ' , ': no address"):
        parse_addresses(" , ", "--endpoints")
