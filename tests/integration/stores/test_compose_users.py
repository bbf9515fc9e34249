"""The object store of docker-compose.yml as its command starts it: its users can do what their names say, without capabilities."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from pyarrow.fs import FileSelector, S3FileSystem

from frazil.devstack import object_store
from frazil.runtime.home import LOOPBACK, Home, answers
from frazil.runtime.process import Processes, Spec, until
from tests.conftest import FreePorts
from tests.s3_server import BUCKET, REGION, built_program

ROOT = Path(__file__).resolve().parents[3]
KEYS = {f"S3_{name}_{kind}_KEY": f"{name}-{kind}" for name in ("WRITER", "READER") for kind in ("ACCESS", "SECRET")}

SetUp = Callable[..., None]
Login = Callable[[str], S3FileSystem]


def set_up(*arguments: str) -> None:
    """As the one-shot services do."""
    subprocess.run(
        [sys.executable, str(ROOT / "docker" / "object_store.py"), *arguments], env=os.environ | KEYS, check=True
    )


@pytest.fixture
def login(tmp_path: Path, free_ports: FreePorts) -> Iterator[Login]:
    """Whoever logs in to the store, by the name of the user; the bucket is there."""
    program = built_program(Home.resolve())
    if program is None:
        pytest.skip("no S3 server, and no Go to build it")
    (number,) = free_ports(1)
    address = f"{LOOPBACK}:{number}"
    folders = {of: tmp_path / of.strip("/") for of in ("/users", "/data/attributes", "/data/objects")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    service = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["object-store"]
    arguments = [{":7070": address, **folders}.get(argument, argument) for argument in service["command"]]
    bare = ("setpriv", "--no-new-privs", "--bounding-set=-all") if os.geteuid() == 0 and shutil.which("setpriv") else ()
    set_up("users", str(folders["/users"]))
    home = Home.resolve({"FRAZIL_HOME": str(tmp_path / "home")})
    processes = Processes(home.run, home.logs, home.root)
    env = os.environ | {"ROOT_ACCESS_KEY": "root-access", "ROOT_SECRET_KEY": "root-secret"}
    processes.start(Spec("s3", (*bare, str(program), *map(str, arguments)), env, address, object_store.GRACE_SECONDS))
    try:
        assert until(lambda: answers(number), 30)
        set_up("bucket", address, BUCKET)
        set_up("bucket", address, BUCKET)  # the service runs at each `up`
        yield lambda name: S3FileSystem(
            access_key=f"{name}-ACCESS",
            secret_key=f"{name}-SECRET",
            endpoint_override=address,
            scheme="http",
            region=REGION,
        )
    finally:
        processes.stop(("s3", object_store.GRACE_SECONDS))


def test_reader_of_the_stack_writes_nothing_and_writer_has_its_bucket(login: Login) -> None:
    """The pages and the notebook can't change a table, whoever breaks into them; nor can anybody without a login."""
    writer, reader, stranger = map(login, ("WRITER", "READER", "NOBODY"))
    with writer.open_output_stream(f"{BUCKET}/warehouse/a") as file:
        file.write(b"rows")
    with writer.open_output_stream(f"{BUCKET}/warehouse/b") as file:
        file.write(b"rows")
    writer.delete_file(f"{BUCKET}/warehouse/b")

    assert reader.open_input_stream(f"{BUCKET}/warehouse/a").read() == b"rows"
    assert [file_info.base_name for file_info in reader.get_file_info(FileSelector(f"{BUCKET}/warehouse"))] == ["a"]
    with pytest.raises(OSError, match=r"ACCESS_DENIED|AccessDenied"), reader.open_output_stream(f"{BUCKET}/c") as file:
        file.write(b"forged")
    with pytest.raises(OSError, match=r"ACCESS_DENIED|AccessDenied"):
        reader.delete_file(f"{BUCKET}/warehouse/a")
    with pytest.raises(OSError, match=r"403|InvalidAccessKeyId|ACCESS_DENIED|INVALID_ACCESS_KEY_ID"):
        stranger.open_input_stream(f"{BUCKET}/warehouse/a").read()
    assert writer.open_input_stream(f"{BUCKET}/warehouse/a").read() == b"rows"
