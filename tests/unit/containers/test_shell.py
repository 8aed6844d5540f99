"""The simulated shell says what a real one says: drawn lines go to both, in the same folder of files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from virtual_time import run_virtually

from minikube_py.containers.files import Files, Held
from minikube_py.containers.process import Process, nothing
from minikube_py.containers.programs import PROGRAMS
from minikube_py.containers.runtime import start
from minikube_py.containers.shell import BUILT_IN, Unsupported, parsing

REAL = shutil.which("dash") or shutil.which("busybox")
WORDS = (
    "a", "b c", "$X", "${X}", '"$X y"', "'$X'", "\\$X", '""', "'q\"q'", '"it\'s"', "x=y", "*no*", "-", "$?", "a\\ b",
    "$EMPTY",
)  # fmt: skip
DUPLICATED = (" 2>/dev/null", " >&2", " 1>&2", " >&1 2>&2", " >&2 2>/dev/null", " 2>/dev/null >&2")
FILES = ("f", "d/g", "new", "absent/h")


def word() -> st.SearchStrategy[str]:
    return st.sampled_from(WORDS)


@st.composite
def reader(draw: st.DrawFn) -> str:
    """A command that changes nothing: the parts of a real pipeline run at one time."""
    file, words = draw(st.sampled_from(FILES)), " ".join(draw(st.lists(word(), max_size=3)))
    texts = (f"echo {words}", f"echo -n {words}", f"cat {file}", "cat", "true", "false", f"test -f {file}", "pwd",
             f"[ {draw(word())} = a ]", f"[ -n {draw(word())} ]", f"head -n 1 {file}", f"tail -n 2 {file}",
             f"wc -l < {file}", f"grep wo {file}", "grep wo", "tail -n 1", f"exit {draw(st.integers(0, 260))}",
             f"X={draw(word())}", "cd d")  # fmt: skip
    return draw(st.sampled_from(texts))


@st.composite
def command(draw: st.DrawFn) -> str:
    file = draw(st.sampled_from(FILES))
    text = draw(st.one_of(reader(), st.sampled_from(("cd absent", f"mkdir {file}", f"rm -f {file}", f"rm -r {file}"))))
    # GNU's cat refuses to read what it writes.
    other = draw(st.sampled_from([each for each in FILES if each not in text]))
    into = (f" > {other}", f" >> {other}", f" 1>{other}", f" 1>>{other}")
    return text + draw(st.sampled_from(("", "", "", *into, *DUPLICATED)))


@st.composite
def line(draw: st.DrawFn) -> str:
    pipeline = st.lists(reader(), min_size=2, max_size=3).map(" | ".join)
    parts = [draw(st.one_of(command(), pipeline))]
    for _ in range(draw(st.integers(0, 4))):
        parts += [draw(st.sampled_from((" ; ", " && ", " || ", "\n"))), draw(st.one_of(command(), pipeline))]
    return "".join(parts) + draw(st.sampled_from(("", " # the end", ";")))


class Clock:
    def wall_s(self) -> float:
        return 1_700_000_000.0

    async def sleep(self, seconds: float) -> None:
        pass


def simulated(text: str) -> tuple[int, bytes, dict[str, bytes]]:
    files = Files(Held(), 0.0, {}, ("/w", "/w/d"))
    files.write("/w/f", b"one\ntwo o\nthree\n", 0.0)
    files.write("/w/d/g", b"deep\n", 0.0)
    out: list[bytes] = []

    async def write(data: bytes) -> None:
        out.append(data)

    async def drop(data: bytes) -> None:
        pass

    process = Process(["sh", "-c", text], files, Clock(), {"X": "v w", "EMPTY": ""}, "h", nothing, write, drop, "/w")
    code = run_virtually(lambda: start(process))
    kept = {path[3:]: files.read(path) for path in files.below("/w") if not files.is_directory(path)}
    return code, b"".join(out).replace(b"/w", b"<W>"), kept


def real(text: str, folder: Path) -> tuple[int, bytes, dict[str, bytes]]:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "d").mkdir(parents=True)
    (folder / "f").write_bytes(b"one\ntwo o\nthree\n")
    (folder / "d" / "g").write_bytes(b"deep\n")
    assert REAL is not None
    shell = [REAL] if REAL.endswith("dash") else [REAL, "sh"]
    environment = {"PATH": "/usr/bin:/bin", "X": "v w", "EMPTY": "", "PWD": str(folder)}
    done = subprocess.run(
        [*shell, "-c", text], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=30
    )
    here = str(folder).encode()
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    kept = {str(path.relative_to(folder)): path.read_bytes().replace(here, b"/w") for path in files}
    return done.returncode, done.stdout.replace(here, b"<W>"), kept


@pytest.mark.skipif(REAL is None, reason="neither dash nor busybox is here to compare with")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line())
def test_lines_do_what_a_real_shell_does(tmp_path: Path, text: str) -> None:
    assert simulated(text) == real(text, tmp_path / "w"), text


COPIED = (
    "echo a 2>f >&2", "echo a >&2 2>f", "echo a >f 2>&1 >&2; cat f", "echo a 1>>f 2>&1", "{0} >&2 | wc -c",
    "{0} 1>&2 2>&1",
)  # fmt: skip


@pytest.mark.skipif(REAL is None, reason="neither dash nor busybox is here to compare with")
@pytest.mark.parametrize("text", COPIED)
def test_an_output_may_go_where_another_goes(tmp_path: Path, text: str) -> None:
    text = text.format("echo err")
    assert simulated(text) == real(text, tmp_path / "w"), text


REFUSED = (
    "if true; then echo a; fi", "for x in a; do echo $x; done", "while true; do :; done", "echo $(date)", "echo `date`",
    "sleep 1 &", "f() { :; }", "echo 'open", "echo >", "| cat", "case a in a) ;; esac", "(echo a)", "echo a <<E",
    "echo a >&f", "echo a >&25",
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_simulated_is_refused_before_anything_runs(text: str) -> None:
    with pytest.raises(Unsupported):
        list(parsing(text))
    code, out, _ = simulated(f"echo before; {text}")
    assert (code, out) == (2, b"")


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab $\"'\\;|&<>{}()`#\n\t=*", max_size=40))
def test_no_text_ends_the_shell(text: str) -> None:
    code, _, _ = simulated(text)
    assert 0 <= code <= 255


def test_the_page_names_every_program() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "inside-a-pod.md").read_text(encoding="utf-8")
    assert [name for name in (*PROGRAMS, *BUILT_IN) if f"`{name}`" not in page] == []
