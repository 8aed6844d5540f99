"""`minikube-py`: finds the command and imports only what that one needs, so that `up` is ready within a second.

Exit codes: 0 done, 1 failed (one line on stderr: what, where, what to do), 2 wrong usage, 130 interrupted; of a store
member, 3: it was removed from its cluster; of a store member, `store salvage` and `store snapshot`, 4: data is damaged.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from minikube_py import __version__
from minikube_py.control_plane.exit_codes import DAMAGED, DISMISSED, FAILED, INTERRUPTED, USAGE
from minikube_py.errors import Corruption, MinikubeError, WrongUsage

PROGRAM = "minikube-py"

COMMANDS = {
    "up": "start a control plane in one process (or, with --split or --members 3, in several) until Ctrl-C",
    "demo": "replay a production trace on 1,213 fake nodes with range queries during the run",
    "bench": "measure a control plane: {}",
    "lab": "the laboratory: {}",
    "replay": "replay a trace and record how long each pod took",
    "compare": "two scheduler configurations on the same pods, in virtual time: table, JSON, picture",
    "explain": "why a pod is on its node, or on none: verdicts and scores of every node",
    "explore": "run a test of a Python operator under many interleavings and faults, in virtual time",
    "what-if": "where a pod would be placed and which pods it would evict, without creating it",
    "trace": "convert the published trace to the compact table used here",
    "index": "indexes for inequalities: {}",
    "front": "fronts of shards: check one of your own",
    "model": "cost models of flow scheduling: check one of your own",
    "predictor": "predictors of what pods will use: check one of your own",
    "plugin": "scheduler plugins: check one of your own",
    "store": "run one store member, or inspect and change a running store: {}",
    "apiserver": "run an API server on a store",
    "scheduler": "run a scheduler",
    "controllers": "run the controllers",
    "kubelet": "run a fake kubelet that plays many nodes",
    "kubeconfig": "print the kubeconfig of a running control plane",
    "init-secrets": "make the certificates, tokens and kubeconfigs that roles in several containers need",
    "health": "ask a role on this host whether it is healthy; for health checks",
    "version": "print the version",
}
"""`{}` stands for the names of its subcommands: `SUBCOMMANDS` or, where its parser has them, `PARTS` of its module."""


class Parser(argparse.ArgumentParser):
    """Reports wrong usage in one line that names the flag and the command that prints help."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Flags that are unknown are reported by the subcommand that was given, whose help lists those known."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.part(getattr(found, "command", "")).error(f"unrecognized arguments: {' '.join(unknown)}")
        return found

    def part(self, name: str) -> argparse.ArgumentParser:
        """The parser of a subcommand; this one if there is none of that name."""
        parts = [each.choices for each in self._actions if isinstance(each, argparse._SubParsersAction)]
        found: argparse.ArgumentParser = parts[0].get(name, self) if parts else self
        return found

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        atexit.register(gc.freeze)  # or all that was loaded is searched for garbage at the end: 0.2 s
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else FAILED
    except BrokenPipeError:
        # The reader of our output is gone; avoid a second error when Python closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (MinikubeError, OSError) as error:
        print(f"{PROGRAM} {arguments[0]}: {one_line(error)}", file=sys.stderr)
        return _code_of(error)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] not in COMMANDS:
        return _without_command(arguments)
    found = _parser(arguments)
    if found is None:
        return USAGE
    module, parser, rest = found
    given = parser.parse_args(rest)
    own = parser.part(getattr(given, "command", ""))
    # A command with subcommands may be one of its own as well: `store` runs a member, `index` alone asks which.
    if not hasattr(module, "run"):
        parser.error(f"name one of: {', '.join(_subcommands(module))}")
    try:
        result: int = module.run(given)
        return result
    except BrokenPipeError:
        raise
    except (MinikubeError, OSError) as error:
        # Of OSErrors, a full disk or removed folder: lower layers cannot handle it, and no data is lost.
        if (code := _code_of(error)) == USAGE:
            own.error(one_line(error))
        print(f"{own.prog}: {one_line(error)}", file=sys.stderr)
        return code


def _parser(words: Sequence[str]) -> tuple[ModuleType, Parser, Sequence[str]] | None:
    """Of the command that the first words name, and the words behind them; None for a subcommand that does not exist,
    which it reports."""
    name = words[0]
    module = import_module(f"minikube_py.cli.{name.replace('-', '_')}")
    rest = words[1:]
    if rest and not rest[0].startswith("-") and (known := _subcommands(module)):
        if rest[0] not in known:
            print(f"{PROGRAM} {name}: no command {rest[0]!r}; the commands are: {', '.join(known)}", file=sys.stderr)
            return None
        module = import_module(f"minikube_py.cli.{name}_{rest[0].replace('-', '_')}")
        name, rest = f"{name} {rest[0]}", rest[1:]
    parser = Parser(
        prog=f"{PROGRAM} {name}",
        usage=None if hasattr(module, "run") else "%(prog)s [-h] COMMAND",
        description=module.__doc__,
        epilog=_subcommand_help(name, _subcommands(module)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if hasattr(module, "run"):
        module.configure(parser)
    return module, parser, rest


def _help(words: Sequence[str]) -> int:
    """Of the command that all the words name."""
    found = _parser(words)
    if found is None:
        return USAGE
    _, parser, rest = found
    own = parser.part(rest[0] if rest else "")
    if rest[own is not parser :]:
        own.error(f"no command {rest[-1]!r}")
    own.print_help()
    return 0


def _subcommands(module: ModuleType) -> dict[str, str]:
    """What each does, by name; each is a module of its own."""
    found: dict[str, str] = getattr(module, "SUBCOMMANDS", {})
    return found


def _subcommand_help(name: str, subcommands: dict[str, str]) -> str | None:
    """The text below the flags in the help of `name`."""
    if not subcommands:
        return None
    lines = [f"  {each:<16} {text}" for each, text in subcommands.items()]
    return "\n".join(["commands:", *lines, "", f"{PROGRAM} {name} COMMAND --help shows more."])


def _code_of(error: BaseException) -> int:
    """Codes for a supervisor: a plain restart would fail again."""
    from minikube_py.control_plane.errors import Dismissed
    from minikube_py.own_code import BadCode

    if any(isinstance(each, WrongUsage | BadCode) for each in (error, error.__cause__)):
        return USAGE
    if isinstance(error, Dismissed):
        return DISMISSED
    return DAMAGED if isinstance(error, Corruption) else FAILED


def one_line(error: BaseException) -> str:
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    return " ".join(text.split()) or type(error).__name__


def _without_command(arguments: Sequence[str]) -> int:
    if len(arguments) > 1 and arguments[0] == "help" and arguments[1] in COMMANDS:
        return _help(arguments[1:])
    if arguments and (arguments[0] in ("-h", "--help") or arguments == ["help"]):
        print(_overview())
        return 0
    if arguments and arguments[0] in ("-V", "--version"):
        print(f"{PROGRAM} {__version__}")
        return 0
    if not arguments:
        print(_overview(), file=sys.stderr)
        return USAGE
    import difflib

    unknown = arguments[1] if arguments[0] == "help" else arguments[0]
    meant = "".join(f"; did you mean {each}?" for each in difflib.get_close_matches(unknown, COMMANDS, n=1))
    print(f"{PROGRAM}: unknown command {unknown!r}{meant}; see {PROGRAM} --help", file=sys.stderr)
    return USAGE


def _summary(name: str) -> str:
    text = COMMANDS[name]
    if "{}" not in text:
        return text
    module = import_module(f"minikube_py.cli.{name}")
    return text.format(", ".join(_subcommands(module) or module.PARTS))


def _overview() -> str:
    lines = [f"usage: {PROGRAM} COMMAND [flags]", "", "A whole Kubernetes control plane in pure Python.", ""]
    lines += ["commands:", *(f"  {name:<13} {_summary(name)}" for name in COMMANDS)]
    return "\n".join([*lines, "", f"{PROGRAM} COMMAND --help lists its flags."])


if __name__ == "__main__":
    sys.exit(main())
