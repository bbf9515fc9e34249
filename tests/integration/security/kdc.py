"""A Kerberos realm on the loopback interface: MIT's key distribution center, and keys of a broker and of a client."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REALM = "FRAZIL.TEST"
PROGRAMS = {
    name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    for name in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
}

_KRB5 = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""
_KDC = """\
[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/kadm5.acl
}}
"""


@dataclass(frozen=True)
class Realm:
    """A realm that is up.

    Attributes:
        folder: Its configuration `krb5.conf`, and the keys.
    """

    folder: Path

    @property
    def configuration(self) -> Path:
        """What clients of the realm read."""
        return self.folder / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a process that lives in this realm, with tickets of its own."""
        return {
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder}/tickets",
        }

    def keytab(self, principal: str) -> Path:
        """A file with the key of a principal, which is made."""
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        for query in (f"addprinc -randkey {principal}", f"ktadd -k {path} {principal}"):
            self.call("kadmin.local", "-q", query)
        return path

    def call(self, name: str, *arguments: str) -> None:
        """Run one of the programs."""
        command = [str(PROGRAMS[name]), *arguments]
        subprocess.run(command, env=os.environ | self.environment, check=True, capture_output=True)


@contextmanager
def realm(folder: Path, port: int, wait: Callable[[], None] = lambda: None) -> Iterator[Realm]:
    """Serve a new realm."""
    own = Realm(folder)
    own.configuration.write_text(_KRB5.format(realm=REALM, port=port))
    (folder / "kdc.conf").write_text(_KDC.format(realm=REALM, port=port, folder=folder))
    own.call("kdb5_util", "create", "-s", "-r", REALM, "-P", "of-the-test")
    server = subprocess.Popen([str(PROGRAMS["krb5kdc"]), "-n"], env=os.environ | own.environment)
    try:
        wait()
        yield own
    finally:
        server.terminate()
        server.wait()
