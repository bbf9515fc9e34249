"""Lists on the page: filters, and pages that join."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from frazil.error_codes import INTERNAL
from tests.dags.page.conftest import Open
from tests.dags.page.source import HOSTILE, NOW, MadeUp, condition, pipeline, report


def test_filter_input_comes_back_as_text(open_page: Open):
    """A link may hold anything."""
    page = open_page()
    for path in ("/", "/pipelines/orders/dead-letters"):
        for name in ("q", "state", "topic", "code", "sort"):
            answer = page.get(path, params={name: HOSTILE[: 19 if name in {"state", "sort"} else 60]})
            assert "<script>alert" not in answer.text


def test_pages_of_dead_letters_join_without_a_gap_or_a_repeat(open_page: Open):
    """The mark in the link is where the page before ended, whatever the sizes of batches."""
    page, path = open_page(), "/pipelines/orders/dead-letters"
    paths: list[str] = []
    for _ in range(10):
        text = page.get(path).text
        paths += re.findall(r"/dead-letters/orders-topic/(\d+/\d+)\"", text)
        following = re.search(r'rel="next"[^>]*href="([^"]+)"', text)
        if following is None:
            break
        path = following[1].replace("&amp;", "&")
    assert len(paths) == 120
    assert len(set(paths)) == 120


@pytest.mark.parametrize("after", ["[]", "no", '["x", "t", 0, 0, null]', "{}", "[1, 2, 3, 4, 5]", "7", "[" * 2_000])
def test_invented_page_token_is_refused(open_page: Open, after: str):
    """Anything may be in a link."""
    assert open_page().get("/pipelines/orders/dead-letters", params={"after": after}).status_code == 422


def test_batches_are_paged_on_the_server(open_page: Open):
    """Fifty at a time, down to the first."""
    page = open_page()
    for start, newest in ((0, 120), (50, 70), (100, 20)):
        rows = re.findall(
            r'<th scope="row" class="num">(\d+)</th>', page.get(f"/pipelines/orders/batches?start={start}").text
        )
        assert (rows[0], len(rows)) == (str(newest), min(50, newest))


def test_200_pipelines_are_paged_with_urgent_ones_first(open_page: Open, source: MadeUp):
    """A refused one is on the first page, whatever its name."""
    names = [f"pipeline_{number:03d}" for number in range(199)]
    source.known = {name: pipeline(name) for name in [*names, "zebras"]}
    source.conditions = {name: condition(name) for name in names} | {"zebras": condition("zebras", refusal="lost")}
    page = open_page()

    first = re.findall(r'/pipelines/(\w+)"', page.get("/").text)
    assert first[0] == "zebras"
    everything = [
        name for number in range(1, 5) for name in re.findall(r'/pipelines/(\w+)"', page.get(f"/?page={number}").text)
    ]
    assert sorted(everything) == sorted(source.known)
    assert re.findall(r'/pipelines/(\w+)"', page.get("/?q=ZEB").text) == ["zebras"]
    assert re.findall(r'/pipelines/(\w+)"', page.get("/?state=Refused").text) == ["zebras"]
    assert re.findall(r'/pipelines/(\w+)"', page.get("/?sort=name&order=down").text)[0] == "zebras"


def test_states_are_offered_as_they_are_sorted(open_page: Open, source: MadeUp):
    """What needs a person first, what a person paused last."""
    names = ("yaks", "zebras")  # no other test pauses their DAGs in Airflow's database
    source.known = {name: pipeline(name) for name in names}
    source.conditions = {"yaks": condition("yaks"), "zebras": condition("zebras", refusal="lost")}
    chosen = open_page().get("/?state=Paused").text

    assert re.findall(r'<a class="state-(\w+)"', chosen) == ["refused", "idle", "paused"]


def test_dead_letters_are_found_between_two_instants(open_page: Open):
    """By record time, each end an instant or how long ago, as the command takes them; what is none of these is refused."""
    page, path = open_page(), "/pipelines/orders/dead-letters"

    def offsets(**filters: str) -> set[int]:
        text = page.get(path, params=filters).text
        return {int(offset) for offset in re.findall(r"/dead-letters/orders-topic/\d/(\d+)\"", text)}

    instants = {"since": f"{NOW - timedelta(minutes=8):%Y-%m-%dT%H:%M:%S.%f}", "until": f"{NOW - timedelta(minutes=5)}"}
    assert offsets(**instants) == {8, 7, 6}  # a letter a minute
    grown = (datetime.now(UTC) - NOW) // timedelta(minutes=1)  # how much older they are than when they were made up
    assert min(offsets(until=f"{grown + 30}m")) in {29, 30}
    for filters in ({"since": "yesterday"}, {"until": "latest"}, {"since": "1h", "until": "2h"}, {"since": "9" * 61}):
        assert page.get(path, params=filters).status_code == 422


def test_reports_are_listed_only_to_permitted_users(open_page: Open, source: MadeUp, monkeypatch: pytest.MonkeyPatch):
    """Links to the newest ones for who may read their DAG; that they can't be read now is said, and the letters are there."""
    source.kept = [report("orders", day) for day in range(28, 20, -1)]
    path, ingest, reports = "/pipelines/orders/dead-letters", "ingest__orders", "dead_letters__orders"
    links = r'href="(/frazil_reports/[^"]+)"'

    assert re.findall(links, open_page(read={ingest}).get(path).text) == []
    shown = re.findall(links, open_page(read={ingest, reports}).get(path).text)
    assert shown == [f"/frazil_reports/{reports}/202605{day}T120000000Z" for day in range(28, 23, -1)]

    def fail(*_: object) -> None:
        raise INTERNAL.retryable("the storage does not answer")

    monkeypatch.setattr(source, "reports", fail)
    answer = open_page(read={ingest, reports}).get(path)
    assert answer.status_code == 200
    assert "the storage does not answer" in answer.text
    assert "orders-topic/0/4" in answer.text
