"""The tokens of service accounts: JWTs by RFC 7519, signed with ES256 as RFC 6979 has it, so that the same claims give
the same token. The caller checks the objects in a token's claims to find its user.

Source: kubernetes `pkg/serviceaccount/jwt.go`, `claims.go`, `legacy.go`, `openidmetadata.go`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any, Final

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from minikube_py.api.errors import Json

ISSUER: Final = "https://kubernetes.default.svc"
"""The issuer, also the default audience: the API server itself."""
LEGACY_ISSUER: Final = "kubernetes/serviceaccount"
LEGACY_TYPE: Final = "kubernetes.io/service-account-token"
LEGACY_CLAIMS: Final = "kubernetes.io/serviceaccount/"
ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"
_ALGORITHM: Final = "ES256"
_NUMBER_BYTES: Final = 32
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_PART: Final = re.compile(r"[A-Za-z0-9_-]*")
_WRONG: Final = "go-jose/go-jose: error in cryptographic primitive"


class InvalidToken(Exception):
    """An invalid token of our issuer, in upstream's words."""


def account_user(namespace: str, name: str) -> str:
    """The user that a service account is."""
    return f"system:serviceaccount:{namespace}:{name}"


class SigningKey:
    """Signs tokens, and tells its own from others."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        der = self._public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.key_id = _encoded(hashlib.sha256(der).digest())

    @classmethod
    def new(cls) -> SigningKey:
        """A random key."""
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def drawn(cls, bits: int) -> SigningKey:
        """A key derived from `bits`, for deterministic clusters."""
        return cls(ec.derive_private_key(bits % (_ORDER - 1) + 1, ec.SECP256R1()))

    @classmethod
    def from_pem(cls, pem: bytes) -> SigningKey:
        """Raises: ValueError if it is not a P-256 key."""
        key = serialization.load_pem_private_key(pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError("not a key on the curve P-256")
        return cls(key)

    @property
    def pem(self) -> bytes:
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def sign(self, claims: Json) -> str:
        head = _encoded(orjson.dumps({"alg": _ALGORITHM, "kid": self.key_id}))
        signed = f"{head}.{_encoded(orjson.dumps(claims, option=orjson.OPT_SORT_KEYS))}"
        how = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
        r, s = decode_dss_signature(self._key.sign(signed.encode(), how))
        return f"{signed}.{_encoded(r.to_bytes(_NUMBER_BYTES) + s.to_bytes(_NUMBER_BYTES))}"

    def claims(self, token: str) -> Json | None:
        """The claims of a token signed with this key; None if it is not from our issuer.

        Raises: InvalidToken."""
        parts = token.split(".")
        if len(parts) != 3:
            return None
        head, claims, signature = (_json(parts[0]), _json(parts[1]), _decoded(parts[2]))
        if claims is None or claims.get("iss") not in (ISSUER, LEGACY_ISSUER) or head is None or signature is None:
            return None
        if head.get("kid") and head["kid"] != self.key_id:
            raise InvalidToken("invalid signature, no keys found")
        if head.get("alg") != _ALGORITHM or len(signature) != 2 * _NUMBER_BYTES:
            raise InvalidToken(_WRONG)
        numbers = (int.from_bytes(half) for half in (signature[:_NUMBER_BYTES], signature[_NUMBER_BYTES:]))
        try:
            signed = f"{parts[0]}.{parts[1]}".encode()
            self._public.verify(encode_dss_signature(*numbers), signed, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise InvalidToken(_WRONG) from None
        return claims

    # --- OpenID Connect discovery -------------------------------------------------------------------------------------

    def configuration(self, address: str) -> bytes:
        """`/.well-known/openid-configuration` of a server at `address`."""
        return orjson.dumps({
            "issuer": ISSUER,
            "jwks_uri": f"https://{address}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [_ALGORITHM],
        })  # fmt: skip

    def keys(self) -> bytes:
        """`/openid/v1/jwks`."""
        numbers = self._public.public_numbers()
        x, y = (_encoded(number.to_bytes(_NUMBER_BYTES)) for number in (numbers.x, numbers.y))
        key = {"use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": _ALGORITHM, "x": x, "y": y}
        return orjson.dumps({"keys": [key]})


def legacy_claims(account: Json, secret_name: str) -> Json:
    """For a token in a Secret, valid as long as the Secret exists."""
    namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
    return {
        "iss": LEGACY_ISSUER,
        "sub": account_user(namespace, name),
        f"{LEGACY_CLAIMS}namespace": namespace,
        f"{LEGACY_CLAIMS}secret.name": secret_name,
        f"{LEGACY_CLAIMS}service-account.name": name,
        f"{LEGACY_CLAIMS}service-account.uid": account["metadata"]["uid"],
    }


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(part: str) -> bytes | None:
    if not _PART.fullmatch(part) or len(part) % 4 == 1:
        return None
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _json(part: str) -> dict[str, Any] | None:
    try:
        found = orjson.loads(_decoded(part) or b"")
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
