"""Apache ZooKeeper on loopback, from the libraries that Spark brings with it.

with running_zookeeper(folder) as server:
    server.put({"/managed-ledgers/…": b"…"})
    source = open_metadata_source(server.url)
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyspark
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.support.admin_server import Certificates

_JARS: Final = Path(pyspark.__file__).parent / "jars"
_SERVER: Final = "org.apache.zookeeper.server"
_MAX_CONNECTIONS: Final = 100
_TICK_MS: Final = 2_000
_JAAS: Final = """
Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_reader="sasl-password";
};
"""
SASL_USER: Final = {"username": "reader", "password": "sasl-password"}
"""The only user that can authenticate by SASL."""


@dataclass
class ZooKeeperServer:
    """A running server.

    Attributes:
        port: Its port on loopback.
        tls_port: Its port for TLS; 0 if it has none.
    """

    port: int
    tls_port: int
    _jvm: Any
    _factories: list[Any]

    @property
    def url(self) -> str:
        """The URL of its root."""
        return f"zk://127.0.0.1:{self.port}"

    @contextmanager
    def client(self) -> Iterator[KazooClient]:
        """Connect kazoo's client."""
        client = KazooClient(f"127.0.0.1:{self.port}")
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def put(self, nodes: Mapping[str, bytes], *, owner: tuple[str, str] | None = None) -> None:
        """Store nodes and the nodes above them; only an owner can read those of one."""
        acl: Sequence[Any] | None = owner and [make_digest_acl(*owner, all=True)]
        with self.client() as client:
            if owner:
                client.add_auth("digest", ":".join(owner))
            for path, value in nodes.items():
                if client.exists(path):
                    client.set(path, value)
                else:
                    client.create(path, value, makepath=True, acl=acl)

    def drop_connections(self) -> None:
        """Close the connections of all clients; their sessions live on."""
        for factory in self._factories:
            factory.closeAll(self._jvm.ServerCnxn.DisconnectReason.CONNECTION_CLOSE_FORCED)


@contextmanager
def running_zookeeper(
    folder: Path, certificates: Certificates | None = None
) -> Iterator[ZooKeeperServer]:
    """Start a server with an empty data folder, in a Java process of its own."""
    jaas = folder / "jaas.conf"
    jaas.write_text(_JAAS)
    port, token = launch_gateway(
        classpath=f"{_JARS}/*",
        java_path=None,  # that of JAVA_HOME, or else of the PATH
        javaopts=[
            "-Xmx512m",
            f"-Djava.security.auth.login.config={jaas}",
            f"-Dzookeeper.authProvider.sasl={_SERVER}.auth.SASLAuthenticationProvider",
            "-Dlog4j2.level=OFF",
            *(() if certificates is None else _tls_settings(folder, certificates)),
        ],
        die_on_exit=True,
        enable_auth=True,
        redirect_stdout=subprocess.DEVNULL,
        redirect_stderr=subprocess.DEVNULL,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        server = gateway.jvm.org.apache.zookeeper.server
        data = gateway.jvm.java.io.File(str(folder / "data"))
        address = gateway.jvm.java.net.InetSocketAddress("127.0.0.1", 0)
        store = server.ZooKeeperServer(data, data, _TICK_MS)
        factories = [server.ServerCnxnFactory.createFactory(address, _MAX_CONNECTIONS)]
        factories[0].startup(store)
        # Only this one can do TLS.
        gateway.jvm.System.setProperty(
            "zookeeper.serverCnxnFactory", f"{_SERVER}.NettyServerCnxnFactory"
        )
        tls_port = 0
        if certificates is not None:
            tls_factory = server.ServerCnxnFactory.createFactory()
            tls_factory.configure(address, _MAX_CONNECTIONS, -1, True)  # noqa: FBT003 - Java
            tls_factory.startup(store, False)  # noqa: FBT003
            tls_port = tls_factory.getLocalPort()
            factories.append(tls_factory)
        yield ZooKeeperServer(factories[0].getLocalPort(), tls_port, server, factories)
    finally:
        gateway.shutdown()


def _tls_settings(folder: Path, certificates: Certificates) -> list[str]:
    """Return the settings of a server that trusts the authority's clients."""
    store = folder / "server.pem"
    store.write_bytes(certificates.server_file.read_bytes())
    return [
        f"-Dzookeeper.ssl.keyStore.location={store}",
        "-Dzookeeper.ssl.keyStore.type=PEM",
        f"-Dzookeeper.ssl.trustStore.location={certificates.ca_file}",
        "-Dzookeeper.ssl.trustStore.type=PEM",
        f"-Dzookeeper.authProvider.x509={_SERVER}.auth.X509AuthenticationProvider",
    ]
