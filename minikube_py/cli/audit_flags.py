"""Flags of the audit log, as upstream's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from minikube_py.cli import flags, forms
from minikube_py.cli.input_files import file, wrong_value

if TYPE_CHECKING:
    from minikube_py.control_plane.auditing import Auditing


def add_audit(parser: flags.Flags) -> None:
    from minikube_py.apiserver.audit_log import MODES, LogOptions

    usual, many, json = LogOptions(""), flags.whole_number(0, 1_000_000), flags.one_of("json")
    policy_help = "the audit.k8s.io/v1 Policy that says which requests are logged (default: none)"
    parser.add_argument("--audit-policy-file", type=file, metavar="F", help=policy_help)
    path_help = "write audit events to this file, - for standard output (default: nowhere)"
    parser.add_argument("--audit-log-path", metavar="F", help=path_help)
    format_help = "the form of audit events: one line of JSON each (default: json)"
    parser.add_argument("--audit-log-format", type=json, default="json", metavar="json", help=format_help)
    size_help = f"begin a new audit log at this size in MB, 0 for never (default: {usual.max_size_mb})"
    parser.add_argument("--audit-log-maxsize", type=many, default=usual.max_size_mb, metavar="N", help=size_help)
    backup_help = f"how many old audit logs are kept, 0 for all (default: {usual.max_backups})"
    parser.add_argument("--audit-log-maxbackup", type=many, default=usual.max_backups, metavar="N", help=backup_help)
    age_help = f"days for which old audit logs are kept, 0 without end (default: {usual.max_age_days})"
    parser.add_argument("--audit-log-maxage", type=many, default=usual.max_age_days, metavar="N", help=age_help)
    mode_help = "batch: requests do not wait for their events; blocking-strict: they fail without (default: blocking)"
    parser.add_argument(
        "--audit-log-mode", type=flags.one_of(*MODES), default=usual.mode, metavar="|".join(MODES), help=mode_help
    )


def refuse_half(arguments: argparse.Namespace) -> None:
    """Flags of `add_audit` without effect. Raises: WrongUsage."""
    sizes = ("format", "maxsize", "maxbackup", "maxage", "mode")
    of_log = dict.fromkeys(("audit_policy_file", *(f"audit_log_{each}" for each in sizes)), ("--audit-log-path",))
    if not getattr(arguments, "audit_log_path", ""):
        forms.refuse(arguments, "a server without an audit log", of_log)
    elif not hasattr(arguments, "audit_policy_file"):
        forms.refuse(arguments, "a server that logs nothing", {"audit_log_path": ("--audit-policy-file",)})


def audit(arguments: argparse.Namespace) -> Auditing:
    """Of `add_audit`; paths are absolute, as other processes may use them."""
    from minikube_py.apiserver.audit_log import STANDARD_OUTPUT, LogOptions
    from minikube_py.control_plane.auditing import Auditing

    policy, path = arguments.audit_policy_file, arguments.audit_log_path
    log = None
    if policy is not None:
        from minikube_py.apiserver.audit_policy import read_policy

        with wrong_value("--audit-policy-file"):
            read_policy(policy)
    if path:
        path = path if path == STANDARD_OUTPUT else str(Path(path).absolute())
        sizes = arguments.audit_log_maxsize, arguments.audit_log_maxbackup, arguments.audit_log_maxage
        log = LogOptions(path, *sizes, arguments.audit_log_mode)
    return Auditing(policy.absolute() if policy is not None else None, log)
