"""The page's answers: who gets any, what they hold, and that records in them stay text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from frazil.batch.letters import Place
from frazil.errors import Retryable
from tests.dags.page.conftest import Open
from tests.dags.page.source import HOSTILE, MadeUp

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


class Seen(HTMLParser):
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
        return get_user in {of.call for of in route.dependant.dependencies}

    routes = [route for of in create_app().routes for route in getattr(of, "routes", None) or [of]]
    assert routes
    answers = {route.path for route in routes if isinstance(route, APIRoute) and not needs(route)}
    assert answers == set()


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
    replayer = open_page(read={"dead_letters__replay", "ingest__payments"}, start={"dead_letters__replay"})
    for name, is_told in (("payments", True), ("orders", False), ("nothing", False)):
        form = replayer.get("/start/dead_letters__replay", params={"conf": f'{{"pipeline": "{name}"}}'}).text
        assert (f'href="/pipelines/{name}"' in form) == is_told


@pytest.mark.parametrize("path", ROUTES)
def test_records_and_messages_stay_text(open_page: Open, path: str):
    """Topics, keys, values, headers, field names and errors of others: none becomes an element or a handler."""
    page = open_page(start={"ingest__orders"}).get(path)

    assert page.status_code == 200
    elements = Seen(page.text).elements
    assert not [tag for tag, _ in elements if tag in {"img", "iframe", "object", "embed", "style"}]
    assert all(attributes.get("src") for tag, attributes in elements if tag == "script"), "a script within the page"
    assert not [name for _, attributes in elements for name in attributes if name.startswith("on") or name == "style"]
    assert "alert(1)</script>" not in page.text
    assert "49" not in re.findall(r"onerror=alert\(2\)&gt;(\S{2})", page.text)


@pytest.mark.parametrize("path", [*ROUTES, "/static/page.css", "/no/such/page"])
def test_the_browser_is_told_to_run_nothing_but_our_files(open_page: Open, path: str):
    """If something slipped through, the policy stops it; and only Airflow may show the page in a frame."""
    headers = open_page(start={"ingest__orders"}).get(path).headers

    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["frame-ancestors"] == "'self'"
    assert headers["x-content-type-options"] == "nosniff"


def test_what_can_not_be_read_is_said_and_not_a_blank_page(
    open_page: Open, source: MadeUp, monkeypatch: pytest.MonkeyPatch
):
    """The catalog is away: the page says so, with the next step, as text."""

    def fail(*_: object) -> None:
        raise Retryable(f"the catalog does not answer {HOSTILE}", next_step="start it")

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
        asked = getattr(source, name)
        monkeypatch.setattr(source, name, lambda *of, asked=asked: order.append("tables") or asked(*of))
    monkeypatch.setattr("frazil_airflow.page.asking.RUNS.of", lambda *_: order.append("runs") or {})

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
    for dag_id in ("example_bash", "dead_letters__replay", "ingest__nothing", HOSTILE[:200]):
        answer = open_page().get("/dag", params={"dag_id": dag_id})
        assert answer.status_code == 200
        assert "belongs to no single pipeline" in answer.text


def test_static_files_are_only_those_that_there_are(open_page: Open):
    """A name never becomes a path."""
    page = open_page()
    assert page.get("/static/vendor/uplot/uPlot.iife.min.js").headers["content-type"].startswith("text/javascript")
    for name in ("../app.py", "..%2fapp.py", "%2e%2e/app.py", "/etc/passwd", "vendor/uplot/LICENSE", ""):
        assert page.get(f"/static/{name}").status_code == 404
    tag = page.get("/static/page.css").headers["etag"]
    assert page.get("/static/page.css", headers={"If-None-Match": tag}).status_code == 304


def test_a_record_that_is_not_there_is_not_found(open_page: Open, source: MadeUp):
    """Not an empty page."""
    assert source.letter("orders", Place("orders-topic", 9, 9)) == ()
    assert open_page().get("/pipelines/orders/dead-letters/orders-topic/9/9").status_code == 404
