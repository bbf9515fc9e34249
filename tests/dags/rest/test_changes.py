"""Changes over HTTP: what lands in the file, what is refused, and who is on record."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import yaml

from tests.connector_configs import OWN, PIZZAS
from tests.dags.rest.conftest import SECRET, Login, Rewrite

JSON = {"Content-Type": "application/json"}
OFFSET = {"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": 1}}


def test_sink_becomes_a_pipeline_and_its_configuration_comes_back(login: Login, pipelines: Path):
    """A client that compares what it sent with what is there (Terraform) finds no difference."""
    client = login("admin")

    created = client.put("/connectors/pizzas/config", json=PIZZAS)

    assert created.status_code == 201, created.text
    document = yaml.safe_load((pipelines / "pizzas.yaml").read_text())
    assert document["destinations"][0]["table"] == "rpc.pizzas"
    assert (document["interval"], document["catalog"], document["source"]["cluster"]) == ("3m", "lake", "local")
    assert client.get("/connectors/pizzas/config").json() == {**PIZZAS, "name": "pizzas"}
    before = (pipelines / "pizzas.yaml").stat().st_mtime_ns
    assert client.put("/connectors/pizzas/config", json=PIZZAS).status_code == 200
    assert (pipelines / "pizzas.yaml").stat().st_mtime_ns == before


def test_edited_file_answers_with_its_own_keys(login: Login, pipelines: Path):
    """The file is the truth: what was sent once no longer counts, the connector keeps its name, and the keys can be sent back."""
    client = login("admin")
    client.put("/connectors/pizzas-on-ice/config", json=PIZZAS)
    file = pipelines / "pizzas_on_ice.yaml"
    file.write_text(file.read_text().replace("interval: 3m", "interval: 7m"))

    config = client.get("/connectors/pizzas-on-ice/config").json()

    assert (config["connector.class"], config["interval"]) == ("frazil.Pipeline", "7m")
    assert set(map(type, config.values())) == {str}
    assert client.put("/connectors/pizzas-on-ice/config", json=config).status_code == 200
    assert yaml.safe_load(file.read_text())["interval"] == "7m"
    assert client.get("/connectors").json() == ["pizzas-on-ice"]


def test_own_keys_are_taken_as_objects_or_as_texts(login: Login, pipelines: Path):
    """Terraform knows texts only. Remarks of a person stay while the values do."""
    client = login("admin")
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in OWN.items()}

    assert client.put("/connectors/orders/config", json=OWN).status_code == 201
    file = pipelines / "orders.yaml"
    file.write_text("# why\n" + file.read_text())
    assert client.put("/connectors/orders/config", json=texts).status_code == 200
    assert file.read_text().startswith("# why\n")
    assert client.patch("/connectors/orders/config", json={"interval": "9m", "engine": None}).status_code == 200
    assert yaml.safe_load(file.read_text())["interval"] == "9m"
    assert "engine" not in yaml.safe_load(file.read_text())


def test_errors_are_those_of_validate_and_nothing_is_written(login: Login, pipelines: Path):
    """By key, in Kafka Connect's words; the validation of a plugin has them per key."""
    client = login("admin")
    wrong = {**OWN, "intervall": "5m", "catalog": "nowhere"}

    answer = client.post("/connectors", json={"name": "orders", "config": wrong})

    assert answer.status_code == 400
    assert answer.json()["message"].startswith(
        "Connector configuration is invalid and contains the following 1 error(s):"
    )
    assert "intervall: unknown key, did you mean 'interval'?" in answer.json()["message"]
    assert list(pipelines.iterdir()) == []
    told = client.put("/connector-plugins/frazil.Pipeline/config/validate", json={**wrong, "name": "orders"}).json()
    assert told["error_count"] == 1
    errors = {each["value"]["name"]: each["value"]["errors"] for each in told["configs"]}
    assert "unknown key" in errors["intervall"][0]
    sink = client.put("/connectors/pizzas/config", json={key: PIZZAS[key] for key in PIZZAS if key != "frazil.catalog"})
    assert "frazil.catalog" in sink.json()["message"]
    assert "is no Iceberg sink" in client.put("/connectors/x/config", json={"connector.class": "some.Other"}).text


def test_secret_is_moved_to_an_allowed_reference_or_refused(
    login: Login, pipelines: Path, rewrite_settings: Rewrite, monkeypatch: pytest.MonkeyPatch
):
    """No answer, no file, no log quotes it."""
    monkeypatch.setenv("CATALOG_LOGIN", f"user:{SECRET}")
    client = login("admin")
    config = {**PIZZAS, "iceberg.catalog.credential": f"user:{SECRET}"}
    own = {**OWN, "destinations": [{**OWN["destinations"][0], "properties": {"s3.secret-access-key": SECRET}}]}

    for path, body in (
        ("/connectors/pizzas/config", config),
        ("/connectors/orders/config", own),
        ("/connectors/orders/config", {**OWN, "destinations": json.dumps(own["destinations"])}),
        ("/connector-plugins/frazil.Pipeline/config/validate", {**own, "name": "orders"}),
        (
            "/connector-plugins/io.tabular.iceberg.connect.IcebergSinkConnector/config/validate",
            {**config, "name": "pizzas"},
        ),
    ):
        answer = client.put(path, json=body)
        assert "references.allow" in answer.text
        assert SECRET not in answer.text
    assert list(pipelines.iterdir()) == []

    rewrite_settings(allow=("env:CATALOG_LOGIN",))
    client = login("admin")
    created = client.put("/connectors/pizzas/config", json=config)
    assert created.status_code == 201, created.text
    assert created.json()["config"]["iceberg.catalog.credential"] == "${env:CATALOG_LOGIN}"
    assert SECRET not in created.text + (pipelines / "pizzas.yaml").read_text()


def test_secret_in_a_file_is_not_shown(login: Login, pipelines: Path):
    """Somebody wrote it there by hand. What is shown in its place can't be sent back."""
    client = login("admin")
    client.put("/connectors/orders/config", json=OWN)
    file = pipelines / "orders.yaml"
    file.write_text(file.read_text() + f"description: 'from https://ana:{SECRET}@example.org'\n")

    config = client.get("/connectors/orders/config")

    assert SECRET not in config.text + client.get("/connectors?expand=info").text
    assert json.loads(config.json()["destinations"])[0]["columns"]["token"] == "string"
    assert client.put("/connectors/orders/config", json=config.json()).status_code == 400


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..", ".", "a/b", "/etc/passwd", "", " ", "x" * 91, "näme", "a\x00b", "-a", "a%2Fb"]
)
def test_no_name_becomes_a_path(login: Login, pipelines: Path, tmp_path: Path, name: str):
    """Dots are a part of a connector's name, and an underscore of its pipeline's; a slash is a part of neither."""
    client = login("admin")
    before = sorted(tmp_path.rglob("*.yaml"))

    assert client.post("/connectors", json={"name": name, "config": OWN}).status_code == 400
    assert client.put("/connectors/orders/config", json={**OWN, "name": name}).status_code == 400
    if name.strip(" ./") and "\x00" not in name:
        from urllib.parse import quote

        for method in ("GET", "DELETE"):
            assert client.request(method, f"/connectors/{quote(name, safe='')}").status_code == 404
    assert sorted(tmp_path.rglob("*.yaml")) == before


def test_dots_and_dashes_name_one_pipeline_once(login: Login, pipelines: Path):
    """Another connector that would be the same pipeline is refused, and does not answer for it."""
    client = login("admin")

    assert client.put("/connectors/shop.orders/config", json=OWN).status_code == 201
    assert [file.name for file in pipelines.iterdir()] == ["shop_orders.yaml"]
    assert client.get("/connectors").json() == ["shop.orders"]
    assert client.put("/connectors/shop-orders/config", json=OWN).status_code == 409
    assert client.get("/connectors/shop-orders").status_code == 404
    assert client.get("/connectors/shop_orders").json()["name"] == "shop.orders"
    assert client.post("/connectors", json={"name": "shop.orders", "config": OWN}).status_code == 409


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 100_000, 400),
        (b"{}" * 2, 400),
        (b"[]", 400),
        (b'"text"', 400),
        (b"\xff\xfe", 400),
        (b'{"name": 1, "config": {}}', 400),
        (b'{"name": "orders", "config": []}', 400),
        (b'{"name": "orders", "config": {"source": 1, "destinations": "x", "interval": {}, "a": null}}', 400),
        (b'{"name": "orders", "config": {"value": ' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}}", 400),
        (b'{"name": "orders", "config": {"description": "\\ud800", "\\u0000": "a\\u0000"}}', 400),
        (b'{"name": "orders", "config": {"description": ' + b"9" * 5_000 + b"}}", 400),
        (b" " * (10 * 2**20), 413),
    ],
    ids=[
        "deep",
        "two",
        "list",
        "text",
        "no-utf8",
        "number",
        "config-list",
        "wrong-types",
        "deep-value",
        "unwritable",
        "digits",
        "10-mb",
    ],
)
def test_body_of_any_kind_gets_an_answer(login: Login, pipelines: Path, body: bytes, status: int):
    """With the shape of Kafka Connect's errors, whatever was sent."""
    answer = login("admin").post("/connectors", content=body, headers=JSON)

    assert answer.status_code == status, answer.text[:500]
    assert answer.json()["error_code"] == status
    assert list(pipelines.iterdir()) == []
    assert login("admin").post("/connectors", content=body, headers={"Content-Type": "text/xml"}).status_code == 415


def test_of_two_writers_at_once_one_wins(login: Login, pipelines: Path):
    """The other one is told, as by Kafka Connect while a rebalance is under way; nothing is mixed."""
    clients = [login("admin") for _ in range(4)]
    statuses: list[int] = []
    for round_ in range(3):
        barrier = Barrier(len(clients))

        def write(number: int, round_: int = round_, barrier: Barrier = barrier) -> int:
            barrier.wait()
            body = {**OWN, "interval": f"{10 * (round_ + 1) + number}m"}
            return clients[number].put("/connectors/orders/config", json=body).status_code

        with ThreadPoolExecutor(len(clients)) as pool:
            statuses += pool.map(write, range(len(clients)))
    won = [status for status in statuses if status in (200, 201)]

    assert set(statuses) <= {200, 201, 409}
    assert statuses.count(201) == 1
    assert won
    assert [file.name for file in pipelines.iterdir()] == ["orders.yaml"]
    assert yaml.safe_load((pipelines / "orders.yaml").read_text())["interval"].endswith("m")


def test_files_that_are_not_to_be_changed_answer_409(login: Login, pipelines: Path, rewrite_settings: Rewrite):
    """By the settings, which refuse changes unless they say otherwise; and because a file is a link."""
    rewrite_settings(changes="refused")
    refused = login("admin").put("/connectors/orders/config", json=OWN)
    assert refused.status_code == 409
    assert "rest_api" in refused.json()["message"]
    rewrite_settings()
    login("admin").put("/connectors/orders/config", json=OWN)
    rewrite_settings(changes="refused")
    for method, path, body in (
        ("DELETE", "/connectors/orders/offsets", None),
        ("PATCH", "/connectors/orders/offsets", {"offsets": [OFFSET]}),
        ("PATCH", "/connectors/orders/config", {"interval": "8m"}),
        ("DELETE", "/connectors/orders", None),
    ):
        refused = login("admin").request(method, path, json=body)
        assert (refused.status_code, path) == (409, path)
        assert "rest_api" in refused.json()["message"]
    rewrite_settings()
    (pipelines / "orders.yaml").rename(pipelines / "elsewhere")
    (pipelines / "orders.yaml").symlink_to(pipelines / "elsewhere")

    assert login("admin").put("/connectors/orders/config", json={**OWN, "interval": "8m"}).status_code == 409
    assert login("admin").delete("/connectors/orders").status_code == 409
    assert (pipelines / "orders.yaml").is_symlink()


def test_change_is_a_commit_of_its_author(
    login: Login, pipelines: Path, rewrite_settings: Rewrite, repository: Callable[..., str]
):
    """One per change, of this one file; what others have begun stays theirs."""
    rewrite_settings(changes="commit")
    client = login("admin")
    (pipelines / "begun.txt").write_text("of somebody else")
    repository("add", "begun.txt")

    assert client.put("/connectors/orders/config", json=OWN).status_code == 201
    assert client.put("/connectors/orders/config", json={**OWN, "interval": "8m"}).status_code == 200
    (pipelines / "orders.yaml").write_text("# an edit\n" + (pipelines / "orders.yaml").read_text())
    assert client.put("/connectors/orders/config", json={**OWN, "interval": "9m"}).status_code == 409
    repository("commit", "--quiet", "--message", "edit", "orders.yaml")
    assert client.delete("/connectors/orders").status_code == 204

    log = repository("log", "--format=%an|%s", "--reverse").splitlines()[1:]
    ana = "ana_admin"
    assert log == [
        f"{ana}|orders: created over HTTP",
        f"{ana}|orders: changed over HTTP",
        "t|edit",
        f"{ana}|orders: deleted over HTTP",
    ]
    assert "DAG ingest__orders runs every 8m instead of 5m" in repository("log", "--format=%b")
    assert repository("status", "--porcelain").splitlines() == ["A  begun.txt"]


def test_refused_commit_leaves_the_file_as_it_was(
    login: Login, pipelines: Path, rewrite_settings: Rewrite, repository: Callable[..., str]
):
    """A hook of the repository has the last word."""
    rewrite_settings(changes="commit")
    hook = pipelines / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not on a Friday >&2\nexit 1\n")
    hook.chmod(0o755)

    answer = login("admin").put("/connectors/orders/config", json=OWN)

    assert answer.status_code == 409
    assert "not on a Friday" in answer.json()["message"]
    assert not (pipelines / "orders.yaml").exists()
    assert repository("status", "--porcelain") == ""


def test_audit_log_of_airflow_names_who_changed_what(login: Login, airflow_reads: Callable[[], None]):
    """Files by the API, pauses and runs by Airflow itself."""
    client = login("admin")
    client.put("/connectors/orders/config", json=OWN)
    airflow_reads()
    client.put("/connectors/orders/config", json={**OWN, "interval": "8m"})
    client.put("/connectors/orders/resume")
    client.put("/connectors/orders/pause")
    client.delete("/connectors/orders")

    from airflow.models.log import Log
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        entries = list(session.execute(select(Log.event, Log.owner, Log.extra).where(Log.dag_id == "ingest__orders")))
    events = [entry.event for entry in entries if entry.owner == "ana_admin"]
    created, changed, deleted = (f"frazil_{event}_pipeline" for event in ("create", "change", "delete"))
    assert events[-5:] == [created, changed, "patch_dag", "patch_dag", deleted]
    facts = json.loads(next(entry.extra for entry in reversed(entries) if entry.event == changed))
    assert facts == {"pipeline": "orders", "file": "orders.yaml", "keys": ["interval"]}


def test_dag_that_airflow_has_not_read_yet_is_a_conflict(login: Login):
    """As during a rebalance: clients ask again."""
    client = login("admin")
    fresh = {**OWN, "destinations": [{"table": "shop.fresh", "columns": {"id": "long"}}]}
    assert client.put("/connectors/never_read/config", json=fresh).status_code == 201

    assert client.get("/connectors/never_read/status").json()["connector"]["state"] == "UNASSIGNED"
    assert client.put("/connectors/never_read/resume").status_code == 409
    assert client.post("/connectors/never_read/restart").status_code == 409


def test_file_that_is_called_like_a_connector_and_is_another_pipeline_stays(login: Login, pipelines: Path):
    """Names of files are a custom; the name in the file counts."""
    client = login("admin")
    client.put("/connectors/orders/config", json=OWN)
    (pipelines / "orders.yaml").rename(pipelines / "more.yaml")
    more = {**OWN, "destinations": [{"table": "shop.more", "columns": {"id": "long"}}]}

    assert client.get("/connectors/more").status_code == 404
    assert client.put("/connectors/more/config", json=more).status_code == 201
    assert client.put("/connectors/orders/config", json={**OWN, "interval": "8m"}).status_code == 200
    assert sorted(client.get("/connectors").json()) == ["more", "orders"]
    assert client.get("/connectors/orders/config").json()["interval"] == "8m"
    assert client.delete("/connectors/more").status_code == 204
    assert [file.name for file in pipelines.iterdir()] == ["more.yaml"]


def test_broken_file_of_the_same_stem_is_not_its_own(login: Login, pipelines: Path):
    """Who may see one of them need not be allowed to see the other."""
    client = login("admin")
    client.put("/connectors/orders/config", json=OWN)
    (pipelines / "orders.yml").write_text("name: payments\nnot_to_be_seen: 1\n")

    assert "not_to_be_seen" not in client.get("/connectors/orders/status").text
    assert client.get("/connectors/orders/status").json()["connector"]["state"] != "FAILED"
    assert "not_to_be_seen" in client.get("/connectors/payments/status").text


def test_broken_file_is_a_failed_connector_that_can_be_fixed(login: Login, pipelines: Path):
    """It hides no other one. A file that can't be read is in the list, too."""
    client = login("admin")
    client.put("/connectors/orders/config", json=OWN)
    (pipelines / "torn.yaml").write_text("name: [")
    (pipelines / "binary.yaml").write_bytes(b"\xff\xfe")

    listed = client.get("/connectors?expand=status&expand=info").json()

    assert set(listed) == {"binary", "orders", "torn"}
    assert listed["torn"]["status"]["connector"]["state"] == "FAILED"
    assert "not YAML" in listed["torn"]["status"]["connector"]["trace"]
    mended = {**OWN, "destinations": [{"table": "shop.torn", "columns": {"id": "long"}}]}
    assert client.put("/connectors/torn/config", json=mended).status_code == 200
    assert client.put("/connectors/binary/config", json=mended).status_code == 409


@pytest.mark.parametrize(
    "secret", [4815162342, {"of": SECRET}, json.dumps({"of": SECRET}), [SECRET], f"${{env:NOT_THERE:-{SECRET}}}"]
)
def test_secret_of_any_type_is_refused(login: Login, pipelines: Path, secret: object):
    """A number, a text within an object, the default of a reference: each would stay in the file, and in Git for good."""
    config = {**PIZZAS, "name": "pizzas", "iceberg.catalog.credential": secret}
    for path in ("/connectors/pizzas/config", f"/connector-plugins/{PIZZAS['connector.class']}/config/validate"):
        answer = login("admin").put(path, json=config)
        assert "references.allow" in answer.text
        assert SECRET not in answer.text
        assert "4815162342" not in answer.text
    assert list(pipelines.iterdir()) == []


def test_half_of_a_character_hides_no_connector(login: Login, pipelines: Path):
    """JSON can say it, no answer can: neither a body nor a file with it breaks the list of all connectors."""
    client = login("admin")
    assert client.put("/connectors/pizzas/config", json=PIZZAS).status_code == 201
    body = json.dumps({**PIZZAS, "remark": "\ud800"})
    assert client.put("/connectors/pizzas/config", content=body, headers=JSON).status_code == 400
    file = pipelines / "pizzas.yaml"
    file.write_text(file.read_text().replace('"config": {', '"config": {"a\\ud800": "\\ud800", '))

    assert client.get("/connectors?expand=info").json()["pizzas"]["info"]["config"]["a\\ud800"] == "\\ud800"
    assert client.get("/connectors/pizzas").status_code == 200


@pytest.mark.timeout(60)
def test_value_of_a_megabyte_keeps_nobody_waiting(login: Login, pipelines: Path):
    """An expression that looks at each part of a value again and again would stop all of Airflow's server: Python holds its lock."""
    client = login("admin")
    for part in ("://?", "?key", "${a:", "a,"):
        value = part * (900_000 // len(part))
        for key in ("iceberg.catalog.header.x", "iceberg.catalog.uri", "iceberg.tables.default-partition-by"):
            assert client.put("/connectors/pizzas/config", json={**PIZZAS, key: value}).status_code < 500
        (pipelines / "orders.yaml").write_text(f"name: orders\ndescription: '{value}'\n")
        assert client.get("/connectors?expand=info").status_code == 200


def test_no_second_file_takes_the_name_of_a_pipeline(
    login: Login, pipelines: Path, rewrite_settings: Rewrite, monkeypatch: pytest.MonkeyPatch
):
    """With two files of one name neither runs, and without one of them the other begins to."""
    client = login("admin")
    monkeypatch.setenv("PIPE", "orders")
    rewrite_settings(allow=("env:PIPE",))
    assert client.put("/connectors/orders/config", json=OWN).status_code == 201
    file = pipelines / "orders.yaml"
    document = yaml.safe_load(file.read_text())
    (pipelines / "shop.yaml").write_text(yaml.safe_dump({**document, "name": "orders"}))

    refused = client.delete("/connectors/orders")

    assert (refused.status_code, file.exists()) == (409, True)
    assert "orders.yaml, shop.yaml" in refused.json()["message"]

    file.unlink()
    (pipelines / "shop.yaml").write_text(yaml.safe_dump({**document, "name": "${env:PIPE}"}))

    refused = client.put("/connectors/orders/config", json=OWN)

    assert (refused.status_code, file.exists()) == (409, False)
    assert "is pipeline orders already" in refused.json()["message"]
