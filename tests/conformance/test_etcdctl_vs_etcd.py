"""etcdctl, command by command, at our store and at a real etcd: the same output, errors and exit codes.

It is etcd's own of 3.7, and Debian's 3.4 where there is one: MINIKUBE_PY_ETCDCTL_3_4 names it, or it is `etcdctl`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from etcd_api import ours, real_etcd
from needs import original_program
from patience import PATIENCE_S

pytestmark = pytest.mark.original
OLD = "MINIKUBE_PY_ETCDCTL_3_4"
COMMANDS = r"""
put a 1
put a 1 -w json
put a 1 -w fields
put a 2 --prev-kv
put b --ignore-value
put b <<< from stdin\n
put '' x
put -n
put c v --lease abc
put c v --lease zz
put c 3
put -- -d dash
put é ü
get a
get a -w json
get a -w fields
get a --hex
get --prefix ''
get --prefix '' -w json
get a c
get c a
get ''
get --from-key b
get --from-key --prefix b
get --prefix '' --limit 1 -w json
get --prefix '' --keys-only
get --prefix '' --count-only -w fields
get a --print-value-only
get --prefix '' --order DESCEND --sort-by MODIFY
get --prefix '' --order X
get a --rev 2
get a --rev 999
get a --consistency s
get a --consistency x
txn <<< mod("a") > "0"\nvalue("a") = "2"\n\nput a 9\nget a\ndel c\n\nget b\n\n
txn -w json <<< ver("zz") = "0"\ncreate("zz") = "0"\n\nput zz 1\nget --prefix ""\n\n\n
txn <<< bad\n\n\n\n
txn <<< \nput a 1\nput a 2\n\n\n
txn -w fields <<< value("a") = "no"\n\nget a\n\nget zz\ndel zz --prev-kv\n\n
del nope
del b --prev-kv -w json
del c a
del --range a b
del
compaction 3
compaction 3
compaction 999
compaction -1
compaction x
compaction 4 --physical
get a --rev 1
lease grant 60
lease grant 60 -w fields
lease grant 0
lease grant -- -1
lease grant 9000000001
lease grant x
lease revoke 123
lease revoke 0
lease timetolive 123
lease timetolive 123 -w json
lease keep-alive --once 123
lease list -w json
member add
member add x --peer-urls=foo
member add x
member remove 1
member remove zz
member update 1 --peer-urls=http://127.0.0.1:9
endpoint health
endpoint hashkv --rev 9999
endpoint hashkv --rev 1
alarm list
alarm disarm
defrag
move-leader 1
move-leader zz
snapshot save FOLDER/s.db
lock l echo hi
lock l false
user add u:pw
user add u:pw
user add n --no-password
user add :pw
user get u
user get u --detail
user get nope
user delete nope
user list
user list -w json
user grant-role u r
user revoke-role u r
user passwd u --interactive=false <<< pw\n
role add r
role add r
role add ''
role get r
role get nope
role get root
role grant-permission r read a b
role grant-permission r write --prefix p/
role grant-permission r readwrite --from-key x
role grant-permission r rw x
role grant-permission nope read a
role get r
role get r -w json
role list
role revoke-permission r a
role revoke-permission r a b
user grant-role u r
auth status
auth enable
user add root:rp
user grant-role root root
auth enable
get a
--user u:pw get a
--user u:bad get a
--user nope:x get a
--user n:x get a
--user u:pw put p/1 v
--user u:pw put p/1 v --prev-kv
--user u:pw get --prefix ''
--user u:pw lease list
--user u:pw alarm list
--user u:pw defrag
--user u:pw compaction 5
--user u:pw user get u
--user u:pw user get root
--user u:pw role list
--user u:pw auth disable
--user root:rp user delete root
--user root:rp role delete r
--user root:rp lock l echo hi
--user root:rp auth disable
get a
"""
OF_THE_MEMBER = ("member list", "endpoint status", "endpoint hashkv", "version")
"""Their answers differ by the member: only the exit code is compared."""


def etcdctl(version: str) -> Path:
    if version == "3.7":
        return original_program("etcdctl")
    named = os.environ.get(OLD) or shutil.which("etcdctl")
    told = (
        "" if named is None else subprocess.run([named, "version"], env=OLD_API, capture_output=True, text=True).stdout
    )
    if named is None or "etcdctl version: 3.4" not in told:
        pytest.skip(f"no etcdctl 3.4: install Debian's etcd-client, or set {OLD} to the program")
    return Path(named)


OLD_API = {**os.environ, "ETCDCTL_API": "3"}


class Typist:
    def __init__(self, program: Path, place: str, folder: Path) -> None:
        self._command = [str(program), f"--endpoints={place}", f"--command-timeout={PATIENCE_S:g}s"]
        self._folder, self._known = folder, ((place, "PLACE"), (str(folder), "FOLDER"))
        folder.mkdir()

    def type(self, line: str) -> tuple[int, str, str]:
        words, _, given = line.partition(" <<< ")
        command = [*self._command, *shlex.split(words.replace("FOLDER", str(self._folder)))]
        given = given.replace(r"\n", "\n")
        done = subprocess.run(
            command, input=given, env=OLD_API, capture_output=True, text=True, errors="replace", timeout=2 * PATIENCE_S
        )
        if words.startswith(OF_THE_MEMBER):
            return done.returncode, "", ""
        return done.returncode, self._told(done.stdout), self._told(done.stderr)

    def _told(self, text: str) -> str:
        """Without what each server chooses: ids, terms, times."""
        for place, name in self._known:
            text = text.replace(place, name)
        for pattern, name in (
            (r'\{"level.*\n?', ""),
            (r'((?:raft_term"|RaftTerm" ) ?: ?)\d+', r"\1TERM"),
            (r"\b[0-9a-f]{14,16}\b", "ID"),
            (r"\b\d{15,20}\b", "ID"),
            (r"\b\d+(\.\d+)?(ms|µs|s)\b", "TIME"),
        ):
            text = re.sub(pattern, name, text)
        return text


@pytest.mark.parametrize("version", ["3.7", "3.4"])
def test_what_is_typed_is_answered_alike(tmp_path: Path, version: str) -> None:
    program = etcdctl(version)
    with real_etcd(tmp_path / "theirs") as place, ours(tmp_path / "ours") as server:
        both = Typist(program, place, tmp_path / "a"), Typist(program, f"127.0.0.1:{server.port}", tmp_path / "b")
        different = []
        for line in COMMANDS.strip().splitlines():
            there, here = (side.type(line) for side in both)
            if there != here:
                different.append(f"{line}\n  etcd {there}\n  ours {here}")
    assert not different, "\n".join(different)
