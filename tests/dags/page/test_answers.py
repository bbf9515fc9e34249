"""The page's answers: who gets any, what they hold, and that records in them stay text."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from frazil.batch.changes import Place
from frazil.error_codes import INTERNAL
from tests.dags.page.conftest import Open
from tests.dags.page.source import HOSTILE, MadeUp, pipeline

ROUTES = (
    "/",
    "/pipelines/orders",
    "/pipelines/orders/batches",
    "/pipelines/orders/snapshots",
    "/pipelines/orders/schema",
    "/pipelines/orders/dead-letters",
    "/pipelines/orders/dead-letters/orders-topic/0/4",
    "/dag?dag_id=ingest__orders",
    "/start/ingest__orders",
)


class Markup(HTMLParser):
    """What a browser makes of a page: its elements and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append((tag, dict(attrs)))


@pytest.mark.parametrize("path", [*ROUTES, "/static/page.css", "/docs", "/openapi.json", "/redoc", "/no/such/page"])
def test_nothing_is_answered_to_somebody_who_did_not_log_in(open_page: Open, path: str):
    """Every route asks Airflow, static files and unknown ones too."""
    for method in ("GET", "HEAD", "POST", "OPTIONS"):
        answer = open_page(login=False).request(method, path)
        assert answer.status_code in {401, 405}, method
        assert "payments" not in answer.text


def test_every_route_depends_on_the_user(open_page: Open):
    """A route that is added without the dependency would be open."""
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.routing import APIRoute

    from frazil_airflow.page.app import create_app

    def needs(route: object) -> bool:
        assert isinstance(route, APIRoute)
        return get_user in {dependency.call for dependency in route.dependant.dependencies}

    routes = [route for router in create_app().routes for route in getattr(router, "routes", None) or [router]]
    assert routes
    answers = {route.path for route in routes if isinstance(route, APIRoute) and not needs(route)}
    assert answers == set()


def test_pages_only_answer_questions(open_page: Open):
    """Whatever a link or a form on another site sends along with a person's login, nothing is changed by it: runs are started by
    Airflow's own API.
    """
    from fastapi.routing import APIRoute

    from frazil_airflow.page.app import create_app

    routes = [route for router in create_app().routes for route in getattr(router, "routes", None) or [router]]
    details = {
        route.path: route.methods for route in routes if isinstance(route, APIRoute) and route.path != "/{path:path}"
    }

    assert len(details) >= len(ROUTES)
    assert set().union(*details.values()) <= {"GET", "HEAD"}
    page = open_page(start={"ingest__orders"})
    assert {page.request(method, path).status_code for path in ROUTES for method in ("POST", "PUT", "DELETE")} <= {
        404,
        405,
    }


def test_a_person_sees_only_pipelines_whose_dag_he_may_read(open_page: Open, source: MadeUp):
    """The others are not on the overview, and their pages are as if they were not there."""
    source.complaints = {name: f"{name}.yaml: {HOSTILE}" for name in ("orders_eu", "payments_eu")}
    page = open_page(read={"ingest__payments", "ingest__payments_eu"})

    assert "payments_eu.yaml: &lt;script" in page.get("/").text
    assert "orders" not in page.get("/").text
    assert "payments" in page.get("/").text
    hidden = [page.get(path).status_code for path in ROUTES[1:] if not path.startswith("/dag?")]
    assert set(hidden) == {404}
    hidden_dag, no_dag = (page.get(f"/dag?dag_id=ingest__{name}") for name in ("orders", "nothing"))
    assert hidden_dag.status_code == no_dag.status_code
    assert hidden_dag.text.replace("orders", "nothing") == no_dag.text
    assert page.get("/pipelines/nothing").status_code == 404


def test_records_are_shown_only_to_who_may_read_task_logs(open_page: Open, source: MadeUp):
    """Key, value, headers, and messages, which quote them. Where the record is, its code and what to do is for all readers."""
    one, many = "/pipelines/orders/dead-letters/orders-topic/0/4", "/pipelines/orders/dead-letters"
    reader, trusted = (open_page(logs=logs) for logs in ({"ingest__payments"}, {"ingest__orders"}))

    for path in (one, many):
        assert "expected a number" not in reader.get(path).text
        assert "expected a number" in trusted.get(path).text
    quoted = "<pre" in reader.get(one).text, "<pre" in trusted.get(one).text
    assert quoted == (False, True)
    assert "task logs of <code>ingest__orders</code>" in reader.get(one).text
    assert all(text in reader.get(many).text for text in ("orders-topic/0/4", "WRONG_TYPE"))


def test_dead_letter_fields_are_shown_only_if_pipeline_file_declares_them(open_page: Open, source: MadeUp):
    """Keys of maps, and names that nobody declared, are content of records: for people who may read the task logs."""
    columns = {"id": "long", "order": "struct<price: double>", "m": "map<string, int>"}
    source.known["orders"] = pipeline("orders", destinations=[{"table": "shop.orders", "columns": columns}])
    one, many = "/pipelines/orders/dead-letters/orders-topic/0/4", "/pipelines/orders/dead-letters"
    paths = {'m["alice-4711"]': "m[…]", "alice-4711.x": "…", "order.price": "order.price"}
    whole = source.whole[0]

    for path, shown in paths.items():
        source.whole = [replace(whole, letter=replace(whole.letter, path=path))]
        source.found = [source.whole[0].letter]
        for address in (one, many):
            assert f">{shown}</" in open_page(logs={"ingest__payments"}).get(address).text
            assert "alice-4711" not in open_page(logs={"ingest__payments"}).get(address).text
            assert html.escape(path) in html.escape(html.unescape(open_page(logs={"ingest__orders"}).get(address).text))


def test_dead_letter_page_is_bounded_whatever_record_holds(open_page: Open, source: MadeUp):
    """Airflow's own server makes the page. Brackets in brackets, thousands of headers, and a letter of each of many tables: a record
    of a megabyte would be a page of gigabytes.
    """
    deep = b"[" * 900 + b"1," * 7_000 + b"1" + b"]" * 900
    headers = (("k" * 100_000, deep), *((f"h{n}", deep) for n in range(2_000)))
    source.whole = [replace(source.whole[0], key=deep, value=deep, headers=headers)] * 300

    page = open_page().get("/pipelines/orders/dead-letters/orders-topic/0/4").text

    assert len(page) < 4_000_000
    assert "and 1,951 more" in page
    assert "and 290 more letters of this record" in page


def test_airflow_is_asked_for_the_right_to_task_logs_of_the_dag(monkeypatch: pytest.MonkeyPatch):
    """Reading the DAG is another right than reading its logs; both are asked at each request."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    from frazil_airflow.page.access import AirflowAccess

    class PerDag(SimpleAuthManager):
        """Lets everybody read DAGs, and task logs of one."""

        def is_authorized_dag(self, *, access_entity: Any = None, details: Any = None, **arguments: Any) -> bool:
            allowed = access_entity is not DagAccessEntity.TASK_LOGS or details.id == "ingest__orders"
            return allowed and super().is_authorized_dag(access_entity=access_entity, details=details, **arguments)

    monkeypatch.setattr("airflow.api_fastapi.app.get_auth_manager", PerDag)
    viewer, nobody = (AirflowAccess(SimpleAuthManagerUser(username="ana", role=role)) for role in ("viewer", None))

    assert [viewer.may_read_logs(f"ingest__{name}") for name in ("orders", "payments")] == [True, False]
    assert not nobody.may_read_logs("ingest__orders")
    assert not viewer.startable(["ingest__orders"])


def test_buttons_are_only_for_what_a_person_may_start(open_page: Open):
    """Who may read and not start gets no button, and not the form by its address."""
    reader = open_page()
    starter = open_page(start={"ingest__orders"})

    assert "/start/" not in reader.get("/pipelines/orders").text
    assert reader.get("/start/ingest__orders").status_code == 403
    assert starter.get("/pipelines/orders").text.count("/start/ingest__orders") == 2
    assert "maintain__" not in starter.get("/pipelines/orders").text.replace("/dags/maintain__", "")
    assert starter.get('/start/ingest__orders?conf={"mode": "replay"}').status_code == 200
    for conf in ("[1]", "[" * 15_000, "{"):
        assert starter.get("/start/ingest__orders", params={"conf": conf}).status_code == 422
    forms = {f"replay_dead_letters__{name}" for name in ("payments", "orders", "nothing")}
    replayer = open_page(read={*forms, "ingest__payments"}, start=forms)
    for name, status, is_told in (("payments", 200, True), ("orders", 200, False), ("nothing", 404, False)):
        form = replayer.get(f"/start/replay_dead_letters__{name}")
        assert (form.status_code, f'href="/pipelines/{name}"' in form.text) == (status, is_told)


@pytest.mark.parametrize("path", ROUTES)
def test_records_and_messages_stay_text(open_page: Open, path: str):
    """Topics, keys, values, headers, field names and errors of others: none becomes an element or a handler."""
    page = open_page(start={"ingest__orders"}).get(path)

    assert page.status_code == 200
    elements = Markup(page.text).elements
    assert not [tag for tag, _ in elements if tag in {"img", "iframe", "object", "embed", "style"}]
    assert all(attributes.get("src") for tag, attributes in elements if tag == "script"), "a script within the page"
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on") or name == "style"]
    assert "alert(1)</script>" not in page.text
    assert "49" not in re.findall(r"onerror=alert\(2\)&gt;(\S{2})", page.text)


@pytest.mark.parametrize("path", [*ROUTES, "/static/page.css", "/no/such/page"])
def test_browser_runs_only_our_files(open_page: Open, path: str):
    """If something slipped through, the policy stops it; and only Airflow may show the page in a frame."""
    headers = open_page(start={"ingest__orders"}).get(path).headers

    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["frame-ancestors"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"


def test_unreadable_catalog_is_reported_instead_of_blank_page(
    open_page: Open, source: MadeUp, monkeypatch: pytest.MonkeyPatch
):
    """The catalog is away: the page says so, with the next step, as text."""

    def fail(*_: object) -> None:
        raise INTERNAL.retryable(f"the catalog does not answer {HOSTILE}", next_step="start it")

    monkeypatch.setattr(source, "batches", fail)
    batches, overview = (open_page().get(f"/pipelines/orders{path}") for path in ("/batches", ""))

    assert (batches.status_code, overview.status_code) == (502, 200)
    for answer in (batches, overview):
        assert "the catalog does not answer" in answer.text
        assert "start it" in answer.text
        assert "<script>alert" not in answer.text
    assert "51,000" in overview.text  # the headroom: what else is known is there


@pytest.mark.parametrize("path", [path for path in ROUTES if path.startswith(("/pipelines", "/dag?"))])
def test_tables_are_read_while_a_connection_of_airflow_waits(
    open_page: Open, source: MadeUp, monkeypatch: pytest.MonkeyPatch, path: str
):
    """A catalog may hang, and Airflow's heartbeats need the few connections that it has."""
    order: list[str] = []
    for name in ("batches", "letters", "letter", "reports", "snapshots", "schema_changes"):
        read_method = getattr(source, name)
        monkeypatch.setattr(
            source, name, lambda *arguments, read_method=read_method: order.append("tables") or read_method(*arguments)
        )
    monkeypatch.setattr("frazil_airflow.page.request.RUNS.find", lambda *_: order.append("runs") or {})

    assert open_page().get(path).status_code == 200
    assert order == ["tables", "runs"]


def test_a_pipeline_that_was_never_read_has_a_page(open_page: Open, source: MadeUp):
    """Right after the start nothing is known yet; and of an empty project nothing ever."""
    source.conditions = {}
    page = open_page()
    assert "not read yet" in page.get("/").text
    assert page.get("/pipelines/orders").status_code == 200
    source.known = {}
    assert "No pipelines yet" in page.get("/").text


def test_a_dag_of_others_has_no_pipeline(open_page: Open):
    """The tab is on every DAG, also on those that are not ours."""
    for dag_id in ("example_bash", "replay_dead_letters__nothing", "ingest__nothing", HOSTILE[:200]):
        answer = open_page().get("/dag", params={"dag_id": dag_id})
        assert answer.status_code == 200
        assert "belongs to no single pipeline" in answer.text


def test_only_existing_static_files_are_served(open_page: Open):
    """A name never becomes a path."""
    page = open_page()
    assert page.get("/static/vendor/uplot/uPlot.iife.min.js").headers["content-type"].startswith("text/javascript")
    for name in ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "/etc/passwd", "vendor/uplot/LICENSE", ""):
        assert page.get(f"/static/{name}").status_code == 404
    tag = page.get("/static/page.css").headers["etag"]
    assert page.get("/static/page.css", headers={"If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize("number", [str(2**63), "9" * 4_000, "-1", "1e3", "1.5", "x"])
def test_impossible_record_coordinates_are_refused(open_page: Open, number: str):
    """No table is asked for it: the answer says which part of the address is wrong, and no error is logged."""
    page = open_page()
    for place in (f"0/{number}", f"{number}/0"):
        answer = page.get(f"/pipelines/orders/dead-letters/orders-topic/{place}")
        assert answer.status_code == 422
        assert "This address can&#39;t be read" in answer.text
    marks = [f'[1, "t", {number}, 0, null]', f'[{number}, "t", 0, 0, null]', f'[1, "t", 0, {number}, null]']
    assert {
        page.get("/pipelines/orders/dead-letters", params={"after": mark[:2_000]}).status_code for mark in marks
    } == {422}


def test_missing_record_is_not_found(open_page: Open, source: MadeUp):
    """Not an empty page."""
    assert source.letter("orders", Place("orders-topic", 9, 9)) == ()
    assert open_page().get("/pipelines/orders/dead-letters/orders-topic/9/9").status_code == 404
