"""Checks that the design about to run and its code are the registered ones: committed, and unchanged since.

The design of an installed package is a copy without a commit; a run from there requires `--unregistered`, and its
report says so.
"""

from __future__ import annotations

import hashlib
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from minikube_py import own_code
from minikube_py.lab.study.design import Design, Mode, StudyError, parse
from minikube_py.lab.study.experiment import SUFFIXES, Study
from minikube_py.lab.study.journal import NAME

PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Registration:
    """`commit`: the last one that touched either file, "" if there is none; then `reason` says why. `first`: the one
    that added the text; later changes are listed in it under Deviations. `ran`: the commit of the code that ran;
    `code`, `code_ran`: digests of the experiment's own code and data at both, "" in journals that do not have them.
    `later`: how many commits changed `later_files` between them."""

    commit: str
    committed_at: str
    reason: str = ""
    first: str = ""
    first_at: str = ""
    ran: str = ""
    code: str = ""
    code_ran: str = ""
    later: int = 0
    later_files: Sequence[str] = ()

    def line(self, text: str) -> str:
        if self.commit:
            now = f"registered in {text}, commit {self.commit[:12]} of {self.committed_at}"
            now += f" (first in {self.first[:12]} of {self.first_at})"
            return f"{now}; {self.changed or self._same}" if self.code_ran else now
        return f"UNREGISTERED: {self.reason}. These figures are no evidence in the sense of the registration."

    @property
    def _same(self) -> str:
        return f"the code of the experiment ran as it was then (digest {self.code_ran}, commit {self.ran[:12]})"

    @property
    def changed(self) -> str:
        """How the code of the experiment that ran differs from that at the registration; "" if it does not."""
        if self.code == self.code_ran:
            return ""
        commits = f"{self.later} commit{'s' if self.later != 1 else ''}"
        what = f"the code of the experiment changed since, in {commits} of {', '.join(self.later_files)}"
        return f"{what}: digest {self.code} then, {self.code_ran} in commit {self.ran[:12]}, which ran"

    def as_dict(self) -> dict[str, Any]:
        """Without what older journals do not have."""
        new = ("ran", "code", "code_ran", "later", "later_files")
        return {name: value for name, value in asdict(self).items() if self.code_ran or name not in new}


def load(study: Study, mode: Mode, unregistered: bool = False) -> tuple[Design, Registration]:
    """Raises: StudyError, if something in the design means nothing, or it is not committed and unchanged, and
    `unregistered` does not allow that."""
    design = study.load(mode)
    try:
        registration = _registered(study, code_of(study))
    except StudyError as error:
        if not unregistered:
            raise StudyError(f"{error}; or run it with --unregistered, which the report will say") from error
        registration = Registration("", "", str(error).split(";")[0])
    return design, registration


def told(path: Path) -> str:
    """A path relative to its checkout."""
    top = checkout_of(path)
    return str(path.relative_to(top)) if top else path.name


def checkout_of(path: Path) -> Path | None:
    return next((each for each in path.parents if (each / ".git").exists()), None)


def code_of(study: Study) -> list[Path]:
    """The study's package without other studies in it, or its module and what that imported from its folder and the
    packages in it."""
    module = (study.code or Path(inspect.getfile(type(study)))).resolve()
    if (module.parent / "__init__.py").exists():
        others = {path.parent for path in module.parent.glob("*/study.py")}
        return sorted(path for path in module.parent.rglob("*.py") if not others.intersection(path.parents))
    modules = [*sys.modules.values(), *own_code.imported_from(module.parent)]
    loaded = (getattr(each, "__file__", None) for each in modules)
    beneath = [path for file in loaded if file and (path := Path(file).resolve()).is_relative_to(module.parent)]
    return sorted({module, *(path for path in beneath if path.suffix == ".py" and "site-packages" not in path.parts)})


def _data(checkout: Path, study: str, code: Sequence[Path]) -> list[str]:
    """What git tracks beside and below the code and is neither prose, a picture nor what a run writes. Of a built-in
    study all of this package: it judges the answers, and holds the lists of pods."""
    if any(path.is_relative_to(PACKAGE) for path in code):
        return [str(PACKAGE.relative_to(checkout))]
    tracked = _git(checkout, "ls-files", "-z", "--", *_beneath(checkout, code)).split("\0")
    names = [name for name in tracked if _is_data(name, study)]
    return [name for name in names if not _other(checkout / name, study)]


def _beneath(checkout: Path, code: Sequence[Path]) -> list[str]:
    return sorted({f":(glob){each.parent.relative_to(checkout)}/**".replace("(glob)./", "(glob)") for each in code})


def _is_data(name: str, study: str) -> bool:
    written = (NAME, f"{study}-report.")
    return bool(name) and not name.endswith((".md", ".png")) and not Path(name).name.startswith(written)


def _gone(checkout: Path, study: str, code: Sequence[Path], since: str) -> list[str]:
    """Data and code of a commit that are there no more."""
    if any(path.is_relative_to(PACKAGE) for path in code):
        return []
    listed = _git(
        checkout, "diff", "--name-only", "-z", "--no-renames", "--diff-filter=D", since, "HEAD", "--",
        *_beneath(checkout, code),
    )  # fmt: skip
    names = [name for name in listed.split("\0") if _is_data(name, study)]

    def then(path: Path) -> str:
        return _git(checkout, "show", f"{since}:{path}")

    return [name for name in names if not _other(Path(name), study, then)]


def _other(path: Path, study: str, read: Callable[[Path], str] = Path.read_text) -> bool:
    """Whether it is the design of another study."""
    try:
        return path.suffix in SUFFIXES and bool(parse(read(path).encode(), "", str(path)).raw["study"] != study)
    except (StudyError, OSError, UnicodeError):
        return False


def code_digest(study: Study) -> str:
    """Of what makes the answers and judges them: this package, the study's code, and what git tracks beside that."""
    code = code_of(study)
    found = package_files()
    checkout = checkout_of(study.design.resolve())
    if checkout is not None and all(path.is_relative_to(checkout) for path in code):
        found |= {checkout / name for name in _data(checkout, study.name, code)}
    return digest_of(path for path in sorted(found.union(code)) if path.is_file())


def package_files() -> set[Path]:
    return {path for path in PACKAGE.rglob("*") if "__pycache__" not in path.parts and path.is_file()}


def digest_of(paths: Iterable[Path]) -> str:
    """Of the names and contents of files, in any order."""
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def _registered(study: Study, code: Sequence[Path]) -> Registration:
    text, design = study.text, study.design
    checkout = checkout_of(design)
    if checkout is None:
        where = "this is not a git checkout, so no commit shows what was registered"
        raise StudyError(f"{where}; run the study from a clone of the repository")
    if foreign := [path for path in code if not path.is_relative_to(checkout)]:
        raise StudyError(f"{foreign[0]} is outside {checkout}; commit the study's code together with its design")
    names: Sequence[str] = list(dict.fromkeys(str(path.relative_to(checkout)) for path in (text, design)))
    all_names = list(dict.fromkeys([*names, *(str(path.relative_to(checkout)) for path in code)]))
    committed = set(_git(checkout, "ls-files", "-z", "--", *all_names).split("\0"))
    if missing := [name for name in all_names if name not in committed]:
        raise StudyError(f"{', '.join(missing)} is not committed; commit it before the study runs")
    data = _data(checkout, study.name, code)
    watched = [*all_names, *data]
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", *watched)
    if changed:
        told = ", ".join(line[3:] for line in changed.splitlines())
        raise StudyError(f"{told}: changed since the commit; commit or restore it before the study runs")
    commit, _, at = _git(checkout, "log", "-1", "--format=%H %cI", "--", *names).partition(" ")
    if not commit:
        raise StudyError(f"no commit holds {' and '.join(names)}; commit them before the study runs")
    first, _, first_at = _git(checkout, "log", "--diff-filter=A", "-1", "--format=%H %cI", "--", names[0]).partition(
        " "
    )
    # Of a built-in study the package's other files are named by its commit, above every report.
    there = {name for name in watched if (checkout / name).is_file()}
    own = sorted(there.union(_gone(checkout, study.name, code, commit)))
    ran = _git(checkout, "rev-parse", "HEAD")
    then, now = (_blobs(checkout, at, own) for at in (commit, ran))
    files = tuple(name for name in own if then.get(name) != now.get(name) and name not in names)
    later = len(_git(checkout, "log", "--format=%H", f"{commit}..{ran}", "--", *files).split()) if files else 0
    registered, run = (_digest_of_blobs(blobs, [name for name in own if name not in names]) for blobs in (then, now))
    return Registration(commit, at, "", first, first_at, ran, registered, run, later, files)


def _blobs(checkout: Path, commit: str, names: Sequence[str]) -> dict[str, str]:
    """By file, git's hash of its content in a commit."""
    lines = _git(checkout, "ls-tree", "-z", "--full-tree", commit, "--", *names).split("\0")
    return {name: about.split()[2] for about, _, name in (line.partition("\t") for line in lines if line)}


def _digest_of_blobs(blobs: Mapping[str, str], names: Sequence[str]) -> str:
    text = "".join(f"{name}\0{blobs.get(name, '')}\n" for name in names)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.rstrip("\n")
    except FileNotFoundError as error:
        raise StudyError("git is not installed, so nothing shows what was registered; install git") from error
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise StudyError(
            f"git cannot tell whether the design is committed: {said.strip()}; look at git status"
        ) from error
