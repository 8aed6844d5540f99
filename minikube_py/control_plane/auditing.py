"""The audit log of an API server, by upstream's flags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from minikube_py.apiserver.audit_log import STANDARD_OUTPUT, AuditLog, LogOptions, out_of
from minikube_py.control_plane.errors import SetupError
from minikube_py.env import Clock, Rng

if TYPE_CHECKING:
    from minikube_py.apiserver.audit import Auditor


@dataclass(frozen=True, slots=True)
class Auditing:
    """Nothing is logged unless both `policy_file` and `log` are set. As upstream, both are checked alone, too."""

    policy_file: Path | None = None
    log: LogOptions | None = None

    def auditor(self, clock: Clock, make_rng: Callable[[], Rng], patience_s: float) -> Auditor | None:
        """`patience_s`: how long a request waits for its event at most. Raises: SetupError."""
        if self.policy_file is None and self.log is None:
            return None
        from minikube_py.apiserver.audit import Auditor
        from minikube_py.apiserver.audit_policy import PolicyError, read_policy

        try:
            policy = read_policy(self.policy_file) if self.policy_file is not None else None
            out = out_of(self.log, clock) if self.log is not None else None
        except PolicyError as error:
            raise SetupError(f"--audit-policy-file: {error}") from None
        except OSError as error:
            raise SetupError(f"--audit-log-path: {error}") from None
        if policy is None or out is None or self.log is None:
            if out is not None:
                out.close()
            return None
        return Auditor(policy, AuditLog(out, self.log.mode, patience_s), clock, make_rng())

    def of_process(self, position: int) -> Auditing:
        """Of one of several API servers, counted from 0: each has a file of its own."""
        if self.log is None or not position:
            return self
        path = Path(self.log.path)
        own = path.with_name(f"{path.stem}-{position + 1}{path.suffix}")
        return replace(self, log=replace(self.log, path=str(own)))

    def flags(self) -> list[str]:
        """Of a process `minikube-py apiserver`."""
        found = ["--audit-policy-file", str(self.policy_file)] if self.policy_file is not None else []
        if self.log is not None:
            found += [
                *("--audit-log-path", self.log.path),
                *("--audit-log-maxsize", str(self.log.max_size_mb)),
                *("--audit-log-maxbackup", str(self.log.max_backups)),
                *("--audit-log-maxage", str(self.log.max_age_days)),
                *("--audit-log-mode", self.log.mode),
            ]
        return found

    @property
    def to_standard_output(self) -> bool:
        return self.log is not None and self.log.path == STANDARD_OUTPUT


NO_AUDIT = Auditing()
