"""The data folder of a control plane: certificates, tokens and kubeconfigs, the same for both layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minikube_py.api.service_tokens import SigningKey
from minikube_py.control_plane import tokens
from minikube_py.control_plane.certificates import Certificates, ensure_certificates
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.kubeconfig import Access, check_writable, write_kubeconfig
from minikube_py.control_plane.private_files import make_private_folder
from minikube_py.control_plane.store_access import FILE_NAME, write_access


@dataclass(frozen=True, slots=True)
class Credentials:
    """`by_role`: a token for each role of `tokens.ROLES`."""

    certificates: Certificates
    by_role: dict[str, str]
    signing_key: SigningKey

    def access(self, server: str, role: str = tokens.ADMIN) -> Access:
        return Access(server, self.certificates.authority_pem, self.by_role[role])


def ensure_credentials(config: ControlPlaneConfig) -> Credentials:
    """Created if missing. Raises: SetupError, also if the kubeconfig to write belongs to another program."""
    check_writable(config.kubeconfig_file)
    make_private_folder(config.data_dir)
    certificates = ensure_certificates(config.pki_folder, [config.host, *config.names])
    key = tokens.ensure_signing_key(config.accounts_key_file)
    return Credentials(certificates, tokens.ensure_tokens(config.tokens_folder), key)


def write_admin_kubeconfig(config: ControlPlaneConfig, credentials: Credentials, server: str) -> None:
    """In the data folder too, where `minikube-py kubeconfig`, `index`, `explain` and `what-if` look for it."""
    for path in dict.fromkeys((config.kubeconfig_file, config.data_dir / "kubeconfig")):
        write_kubeconfig(path, credentials.access(server))


def write_store_access(config: ControlPlaneConfig, credentials: Credentials, addresses: Sequence[str]) -> None:
    """For `minikube-py store status` and similar commands."""
    token = credentials.by_role[tokens.STORE]
    write_access(config.data_dir / FILE_NAME, addresses, token, credentials.certificates.authority_pem)
