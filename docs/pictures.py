"""Takes pictures of the running product, for the documentation: `python docs/pictures.py`, three minutes.

A stack of its own in a temporary folder lands orders, payments and clicks in several batches, some records broken. Then
Chromium opens the page, light and dark, at 1440 and 390 pixels. Pictures of batches and dead letters are written to docs/images; all
others to build/pictures, to be looked at. (The overview in the docs is of a stack that had run for a day.)
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from frazil.runtime.airflow_login import credentials
from frazil.runtime.home import PORT_VARIABLES, Home
from tests.e2e.browser import inside, log_in, opened_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parent.parent
IMAGES, LOOKED_AT = ROOT / "docs" / "images", ROOT / "build" / "pictures"
DOCUMENTED = ("page-batches", "page-dead-letters")
ROUNDS = 6
"""Batches of each pipeline: enough for charts."""

SCHEDULE_SECONDS = 60
"""Until the first runs of the schedule are through."""

BROKEN, CUT_OFF = 0.004, 0.0005
"""Shares of payments with an odd amount, and of records that end early."""

SETTINGS = """\
clusters: {local: {bootstrap_servers: "${local:kafka}"}}
catalogs: {lake: {uri: "sqlite:///${local:home}/catalog.db", warehouse: "file://${local:home}/warehouse"}}
"""
PIPELINES = {
    "orders": """\
owner: shop
destinations: [{table: shop.orders, evolve: widen, columns: {order_id: {type: long, required: true}, amount: "decimal(10,2)"}}]
""",
    "payments": """\
owner: billing
destinations: [{table: shop.payments, columns: {payment_id: {type: long, required: true}, amount: "decimal(10,2)", method: string}}]
""",
    "clicks": """\
owner: web team
destinations: [{table: web.clicks, columns: {session: string, url: string, at: timestamptz}}]
""",
}

PAGES = {
    "page-overview": "/plugin/frazil",
    "page-pipeline": "/plugin/frazil/frazil/pipelines/orders",
    "page-batches": "/plugin/frazil/frazil/pipelines/orders/batches",
    "page-dead-letters": "/plugin/frazil/frazil/pipelines/payments/dead-letters",
}


def records(pipeline: str, first: int, count: int) -> Iterator[str]:
    """JSON lines as a producer of the topic sends them, a few in a thousand broken."""
    chance = random.Random(first)  # noqa: S311 - data of a demo
    for number in range(first, first + count):
        instant = (datetime.now(UTC) - timedelta(seconds=chance.random() * 20)).isoformat(timespec="milliseconds")
        amount = round(chance.lognormvariate(3.2, 0.8), 2)
        kinds: dict[str, dict[str, object]] = {
            "orders": {
                "order_id": number,
                "amount": amount,
                "country": chance.choice(("de", "fr", "nl")),
                "at": instant,
            },
            "payments": {"payment_id": number, "amount": amount, "method": chance.choice(("card", "sepa", "invoice"))},
            "clicks": {"session": f"s{number % 97:04x}", "url": f"/p/{chance.randrange(400)}", "at": instant},
        }
        line = kinds[pipeline]
        if pipeline == "payments" and chance.random() < BROKEN:
            line["amount"] = chance.choice(("n/a", "", True, "12,50"))
        yield json.dumps(line) if chance.random() > CUT_OFF else '{"order_id": 17, "am'


@contextmanager
def running_stack(root: Path) -> Iterator[Mapping[str, str]]:
    """A project with three pipelines, and its stack, up."""
    (root / "pipelines").mkdir()
    (root / "settings.yaml").write_text(SETTINGS, encoding="utf-8")
    for name, text in PIPELINES.items():
        head = f"name: {name}\nengine: inline\ninterval: 1h\nstart: earliest\nsource: {{topics: [{name}]}}\n"
        body = head + text
        (root / "pipelines" / f"{name}.yaml").write_text(body, encoding="utf-8")
    places = {"FRAZIL_HOME": "home", "FRAZIL_SETTINGS": "settings.yaml", "FRAZIL_PIPELINES": "pipelines"}
    env = os.environ | {variable: str(root / place) for variable, place in places.items()}
    env |= {"FRAZIL_JARS": str(Home.resolve().jars)}
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in PORT_VARIABLES]
        env |= {name: str(one.getsockname()[1]) for name, one in zip(PORT_VARIABLES.values(), sockets, strict=True)}
    try:
        frazil(env, "up")
        yield env
    finally:
        frazil(env, "down")


def frazil(env: Mapping[str, str], *arguments: str) -> None:
    """Run a command to its end."""
    subprocess.run([sys.executable, "-m", "frazil.cli", *arguments], env=dict(env), check=True)


def land(root: Path, env: Mapping[str, str]) -> None:
    """Land a batch of each pipeline, several times; leave some clicks unread."""
    lines = root / "lines.json"
    for number in range(ROUNDS + 1):
        for name in PIPELINES:
            count = 900 + hash((number, len(name))) % 800
            lines.write_text("\n".join(records(name, number * 10_000, count)), encoding="utf-8")
            if number < ROUNDS or name == "clicks":
                frazil(env, "produce", name, "--partitions", "4", "--file", str(lines))
            if number < ROUNDS:
                frazil(env, "run", name)


def take(page: Page, name: str, address: str) -> None:
    """One picture, once the page has its figures."""
    page.goto(address)
    frame = inside(page)
    frame.locator("#content").wait_for()
    for _ in range(60):
        if not frame.get_by_text("not read yet").count():
            break
        time.sleep(1)
        page.reload()
        frame.locator("#content").wait_for()
    page.wait_for_timeout(1_500)
    folder = IMAGES if name in DOCUMENTED else LOOKED_AT
    page.screenshot(path=folder / f"{name}.png", animations="disabled")


def take_all(browser: Browser, home: Home) -> None:
    """All pictures: light and dark at 1440 pixels, light at 390."""
    LOOKED_AT.mkdir(parents=True, exist_ok=True)
    login = credentials(home)
    for suffix, theme, width, height in (
        ("", "light", 1440, 900),
        ("-dark", "dark", 1440, 900),
        ("-small", "light", 390, 844),
    ):
        page = browser.new_page(base_url=home.airflow_url, viewport={"width": width, "height": height})
        page.set_default_timeout(120_000)
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        log_in(page, login.user, login.password)
        page.evaluate(f"localStorage.setItem('theme', '{theme}')")
        for name, address in PAGES.items():
            take(page, f"{name}{suffix}", address)
        page.close()


def main() -> int:
    """Land, look, write the pictures."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        with running_stack(root) as env:
            land(root, env)
            for name in ("orders", "payments"):  # the third one waits, as somebody paused it
                frazil(env, "resume", name)
            time.sleep(SCHEDULE_SECONDS)
            with opened_browser() as browser:
                take_all(browser, Home.resolve(env))
    return 0


if __name__ == "__main__":
    sys.exit(main())
