"""Files go through archives as real tar's, and are bounded."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from virtual_time import run_virtually

from minikube_py.containers.files import CONTAINER_BYTES_MAX, FILES_MAX, FileError, Files, Held
from minikube_py.containers.process import Process, nothing
from minikube_py.containers.programs import PROGRAMS

NAMES = st.sampled_from(("a", "b", "c d", "ü", "-x"))
TREE = st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=3000), max_size=6)


class Clock:
    def wall_s(self) -> float:
        return 1_700_000_000.0

    async def sleep(self, seconds: float) -> None:
        pass


def tar(files: Files, *words: str, given: bytes = b"") -> tuple[int, bytes, bytes]:
    out, err, parts = list[bytes](), list[bytes](), [given] if given else []

    async def read() -> bytes:
        return parts.pop() if parts else await nothing()

    async def into(kept: list[bytes], data: bytes) -> None:
        kept.append(data)

    process = Process(["tar", *words], files, Clock(), {}, "h", read, lambda d: into(out, d), lambda d: into(err, d))
    async def run() -> int:
        return await PROGRAMS["tar"](process)

    return run_virtually(run), b"".join(out), b"".join(err)


@pytest.mark.skipif(shutil.which("tar") is None, reason="tar is not here to compare with")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TREE)
def test_archives_are_read_by_real_tar_and_read_its(tmp_path: Path, tree: dict[str, bytes]) -> None:
    tree = {path: data for path, data in tree.items() if not any(other.startswith(f"{path}/") for other in tree)}
    files = Files(Held(), 0.0, {}, ("/src", "/back"))
    for path, data in tree.items():
        files.make_directory(f"/src/{path}".rpartition("/")[0], 0.0, parents=True)
        files.write(f"/src/{path}", data, 0.0)
    code, archive, _ = tar(files, "cf", "-", "/src")
    assert code == 0
    shutil.rmtree(tmp_path / "x", ignore_errors=True)
    (tmp_path / "x").mkdir()
    subprocess.run(["tar", "xf", "-", "-C", str(tmp_path / "x")], input=archive, check=True)
    root = tmp_path / "x" / "src"
    assert {str(each.relative_to(root)): each.read_bytes() for each in root.rglob("*") if each.is_file()} == tree
    theirs = subprocess.run(["tar", "cf", "-", "-C", str(root), "."], capture_output=True, check=True).stdout
    assert tar(files, "-xmf", "-", "-C", "/back", given=theirs)[0] == 0
    back = [path for path in files.below("/back") if not files.is_directory(path)]
    assert {path.removeprefix("/back/"): files.read(path) for path in back} == tree


def _archive(name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.size, info.linkname = kind, 1 if kind == tarfile.REGTYPE else 0, "/etc/hostname"
        archive.addfile(info, io.BytesIO(b"x"))
    return buffer.getvalue()


BAD = (_archive("../etc/x"), _archive("a/../../x"), _archive("l", tarfile.SYMTYPE), b"no archive" * 99)


@pytest.mark.parametrize("given", BAD, ids=("above", "above, later", "link", "none"))
def test_archives_that_lead_out_or_are_none_are_refused(given: bytes) -> None:
    files = Files(Held(), 0.0, {}, ("/d",))
    before = files.below("/")
    code, _, err = tar(files, "xf", "-", "-C", "/d", given=given)
    assert (code, files.below("/")) == (1, before)
    assert err.startswith(b"tar: ")


def test_a_full_container_says_so_and_gives_back() -> None:
    held = Held()
    files = Files(held, 0.0, {})
    files.write("/tmp/a", bytes(CONTAINER_BYTES_MAX - 10), 0.0)
    assert held.bytes == CONTAINER_BYTES_MAX - 10
    with pytest.raises(FileError, match="No space left"):
        files.write("/tmp/b", bytes(11), 0.0)
    files.remove("/tmp/a")
    files.write("/tmp/b", bytes(11), 0.0)
    with pytest.raises(FileError, match="No space left"):
        for number in range(FILES_MAX):
            files.write(f"/tmp/{number}", b"", 0.0)
    files.drop()
    assert held.bytes == 0
