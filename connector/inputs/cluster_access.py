"""How to connect to a server: an admin API, brokers, a metadata store, a schema registry."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

from arrow_io.errors import OptionError
from arrow_io.storage.hidden import HiddenBytes, HiddenText

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ssl import SSLContext
    from typing import NoReturn

REGISTRY_PREFIX: Final = "confluent:"
"""Start of a value of the option `schema` that names a registry."""

_MAX_TOKEN_BYTES: Final = 1 << 16


class Authorization(NamedTuple):
    """Credentials of an HTTP request.

    Attributes:
        header: Value of the header `Authorization`.
        secrets: Secrets that no message may show, by the names that replace them.
    """

    header: str
    secrets: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """How to connect to a server, and how to verify it.

    Raises:
        OptionError: A value is not allowed, or two exclude each other.
    """

    ca_file: str | None = None
    """PEM file of the certificate authorities that are trusted; by default those of the system."""
    cert_file: str | None = None
    """PEM file of the client's certificate, for TLS authentication."""
    key_file: str | None = None
    """PEM file of the client's private key, not encrypted; the key may be in `cert_file` instead.
    """
    verify_hostname: bool = True
    """Whether the server's certificate must be for the requested host."""
    timeout_s: float = 30.0
    """Longest time without an answer from the server, in seconds."""

    def __post_init__(self) -> None:
        if self.key_file is not None and self.cert_file is None:
            message = "key_file needs cert_file, the certificate of the key"
            raise OptionError(message)
        if not 0 < self.timeout_s < math.inf:
            message = f"timeout_s must be a number of seconds above 0, not {self.timeout_s}"
            raise OptionError(message)

    @property
    def has_tls_options(self) -> bool:
        """Whether an option is set that only TLS uses."""
        return bool(self.ca_file or self.cert_file or not self.verify_hostname)

    def tls_context(self) -> SSLContext:
        """Return a TLS context for clients.

        Raises:
            OptionError: A certificate file cannot be used.
        """
        # Importing it takes longer than all else here, and most processes need no TLS.
        import ssl  # noqa: PLC0415

        def no_password() -> NoReturn:
            message = f"the private key in {self.key_file or self.cert_file} is encrypted"
            raise OptionError(message)

        what = f"the certificates of {self.ca_file}"
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                what = f"the certificate and key of {self.cert_file}"
                context.load_cert_chain(self.cert_file, self.key_file, no_password)
        except OSError as error:
            if isinstance(error, OptionError):
                raise
            message = f"{what} cannot be used: {error.strerror or type(error).__name__}"
            raise OptionError(message) from None
        context.check_hostname = self.verify_hostname
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess(ServerAccess):
    """Credentials for a cluster, and how to verify its server.

    Raises:
        OptionError: A value is not allowed, or two exclude each other.
    """

    token: str | None = field(default=None, repr=False)
    """Token of Pulsar's token authentication (a JSON Web Token)."""
    token_file: str | None = None
    """File that contains the token; read for each use, because tokens are renewed."""
    has_many_hosts: ClassVar[bool] = True
    """Whether the credentials are for all hosts that the server may redirect to over https."""

    def __post_init__(self) -> None:
        # Without arguments, `super` would refer to the class that `slots` replaces.
        super(ClusterAccess, self).__post_init__()
        if self.token is not None and self.token_file is not None:
            message = "both token and token_file are set: remove one of them"
            raise OptionError(message)
        if self.token is not None:
            object.__setattr__(self, "token", HiddenText(self.token))
            _check_token(self.token, "the token")

    def authorization(self) -> Authorization | None:
        """Return the credentials for an HTTP request now; None if none are configured.

        Raises:
            OptionError: See `current_token`.
        """
        token = self.current_token()
        if token is None:
            return None
        return Authorization(HiddenText(f"Bearer {token}"), {"token": HiddenText(token)})

    def current_token(self) -> str | None:
        """Return the token, read from its file if there is one; None if none is configured.

        Raises:
            OptionError: The token file cannot be read, or contains no token.
        """
        file = self.token_file
        if file is None:
            return self.token
        try:
            with Path(file).open("rb") as stream:
                data = HiddenBytes(stream.read(_MAX_TOKEN_BYTES + 1))
            token = HiddenText(data.decode("ascii", "replace")).strip()
        except OSError as error:
            message = f"cannot read the token file {file}: {error.strerror}"
            raise OptionError(message) from None
        _check_token(token, f"the content of the token file {file}")
        return token


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess(ClusterAccess):
    """Credentials for a schema registry, and how to verify its server.

    Raises:
        OptionError: A value is not allowed, or two exclude each other.
    """

    username: str | None = None
    """Name for basic authentication."""
    password: str | None = field(default=None, repr=False)
    """Password for basic authentication."""
    has_many_hosts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        # Without arguments, `super` would refer to the class that `slots` replaces.
        super(RegistryAccess, self).__post_init__()
        if (self.username is None) != (self.password is None):
            message = "username and password need each other"
            raise OptionError(message)
        if self.username is not None and (self.token or self.token_file) is not None:
            message = "both a password and a token are set: remove one of them"
            raise OptionError(message)
        if ":" in (self.username or ""):
            message = "the username has a colon, which basic authentication does not allow"
            raise OptionError(message)
        if self.password is not None:
            object.__setattr__(self, "password", HiddenText(self.password))

    def authorization(self) -> Authorization | None:
        """Return the credentials for an HTTP request; see `ClusterAccess.authorization`."""
        if self.username is None or self.password is None:
            return super(RegistryAccess, self).authorization()
        encoded = HiddenText(
            base64.b64encode(f"{self.username}:{self.password!s}".encode()).decode()
        )
        secrets = {"password": self.password, "authorization": encoded}
        return Authorization(HiddenText(f"Basic {encoded}"), secrets)


_AccessT = TypeVar("_AccessT", bound=ServerAccess)


def read_access(kind: type[_AccessT], option_kind: str, options: Mapping[str, object]) -> _AccessT:
    """Create an access of a class from its options; numbers and flags may be text.

    `option_kind` is the name of this kind of option, for errors.

    Raises:
        OptionError: An option is unknown, or its value is not allowed.
    """
    types = {each.name: each.type for each in fields(kind)}
    unknown = sorted(set(options) - set(types))
    if unknown:
        message = f"unknown {option_kind} {unknown[0]!r}; the options are {', '.join(types)}"
        raise OptionError(message)
    readers = {"bool": _read_flag, "float": _read_number, "tuple[str, ...]": _read_names}
    checked: dict[str, Any] = {
        name: readers.get(str(types[name]), _read_text)(f"the {option_kind} {name}", value)
        for name, value in options.items()
        if value is not None
    }
    return kind(**checked)


def _check_token(token: str, source: str) -> None:
    # Otherwise a library would quote the token in its error, or a line break in it would end a
    # request's header.
    if not token or not token.isascii() or not token.isprintable() or len(token) > _MAX_TOKEN_BYTES:
        message = (
            f"{source} is not a token: it is empty, longer than {_MAX_TOKEN_BYTES} bytes, or has"
            " characters other than printable ASCII"
        )
        raise OptionError(message)


def _read_text(option: str, value: object) -> str:
    if not isinstance(value, str):
        message = f"{option} must be text, not {type(value).__name__}"
        raise OptionError(message)
    return value


def _read_flag(option: str, value: object) -> bool:
    flags = {"true": True, "false": False}
    if isinstance(value, str) and value.lower() in flags:
        return flags[value.lower()]
    if not isinstance(value, bool):
        message = f"{option} must be true or false, not {value!r}"
        raise OptionError(message)
    return value


def _read_number(option: str, value: object) -> float:
    try:
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        pass
    message = f"{option} must be a number, not {value!r}"
    raise OptionError(message)


def _read_names(option: str, value: object) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        message = f"{option} must be a list of text, not {type(value).__name__}"
        raise OptionError(message)
    return tuple(_read_text(option, each).strip() for each in names)
