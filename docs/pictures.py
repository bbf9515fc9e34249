"""Takes pictures of the running product, for the documentation: `python docs/pictures.py`, ten minutes on two idle cores.

A stack of its own in a temporary folder lands a day of the demos' pizzas and payments, and events of a shop: batches whose clock
`time-machine` sets back, so that charts have a day to show. Then Airflow runs on its schedule, until a producer breaks too many
records, a run fails, and somebody raises the tolerance. Chromium opens Airflow and the page, light and dark, at 1440 and 390
pixels; a terminal runs commands. What the documentation shows is written to docs/images, by `pngquant` in few colours; the rest
to build/pictures, to be looked at.
"""

from __future__ import annotations

import json
import math
import os
import pty
import re
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import time_machine
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
from rich.text import Text

from frazil.cli.app import invoke
from frazil.cli.operate.produce import ensure_topic
from frazil.generators import GENERATORS
from frazil.kafka.client.cluster import OutgoingRecord
from frazil.kafka.write.produce import produce
from frazil.project import Project
from frazil.runtime.airflow_api import AirflowApi
from frazil.runtime.airflow_login import credentials
from frazil.runtime.home import PORT_VARIABLES, Home
from frazil.runtime.process import until
from tests.e2e.browser import inside, log_in, opened_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parent.parent
IMAGES, LOOKED_AT = ROOT / "docs" / "images", ROOT / "build" / "pictures"

SETTINGS = """\
clusters: {local: {bootstrap_servers: "${local:kafka}"}}
catalogs: {lake: {uri: "sqlite:///${local:home}/catalog.db", warehouse: "file://${local:home}/warehouse"}}
"""
FILES = ("pizzas", "payments", "payments_by_type", "shop_events")
"""Pipelines of this repository; the third one stays paused."""

TOPICS = {
    "pizzas": ("completed-pizzas", 900, 1),
    "payments": ("payments", 700, 2),
    "shop_events": ("shop.events", 1_500, 3),
}
"""Topic of a pipeline, records of a usual batch, and half hours from one to the next."""

DAG = "ingest__pizzas"
ROUNDS = ((420, 3), (1_200, 150), (350, 3))
"""Pizzas that Airflow lands, and how many in a thousand are broken. More than a tenth of the second round is: its run fails."""

RUN_SECONDS = 900.0
"""Bounds the wait for a run; half a minute on an idle machine."""

PIZZAS = "/plugin/frazil/frazil/pipelines/pizzas"
PAGES = {
    "page-overview": ("/plugin/frazil", 425),
    "page-pipeline": (PIZZAS, 900),
    "page-batches": (f"{PIZZAS}/batches", 600),
    "page-dead-letters": (f"{PIZZAS}/dead-letters", 600),
    "page-snapshots": (f"{PIZZAS}/snapshots", 620),
    "airflow-dag": (f"/dags/{DAG}/runs/", 620),
}
"""Where each picture is taken, and how much of it the documentation shows."""

DOCUMENTED = (
    *(name for name in PAGES if name != "page-snapshots"),
    "page-overview-dark",
)
WINDOWS = (
    ("", "light", 1440, 900),
    ("-dark", "dark", 1440, 900),
    ("-small", "light", 390, 844),
    ("-small-dark", "dark", 390, 844),
)

COLUMNS = 120
COMMANDS = (
    "run shop_events",
    "status pizzas payments payments_by_type shop_events",
    "dead-letters list pizzas --limit 5",
)
TERMINAL = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.ground {{ fill: #fff; stroke: #d0d7de; }}
{styles}
@media (prefers-color-scheme: dark) {{ .ground {{ fill: #292929; stroke: #444; }}
DARK
}}
</style>
<defs>{lines}</defs>
<rect class="ground" x="1" y="1" width="99.8%" height="99.5%" rx="8"/>
<g transform="translate(12, 24)"><g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def shop_events(count: int, seed: int) -> Iterator[OutgoingRecord]:
    """Events of three kinds, each of which gets a table."""
    random = Random(seed)  # noqa: S311 - data of a demo
    for _ in range(count):
        kind = random.choice(("visits", "visits", "visits", "carts", "orders"))
        event = {
            "table": f"shop.{kind}",
            "session": f"{random.getrandbits(24):06x}",
            "pizza": random.choice(("funghi", "diavola")),
        }
        yield OutgoingRecord(
            None, json.dumps(event | ({"euros": random.randint(8, 60)} if kind == "orders" else {})).encode()
        )


@contextmanager
def running_stack(root: Path) -> Iterator[None]:
    """A project with pipelines of this repository, and its stack, up; this process works in it too."""
    (root / "pipelines").mkdir()
    (root / "settings.yaml").write_text(SETTINGS, encoding="utf-8")
    for name in FILES:
        text = (ROOT / "include" / "pipelines" / f"{name}.yaml").read_text(encoding="utf-8")
        (root / "pipelines" / f"{name}.yaml").write_text(f"{text}engine: inline\n", encoding="utf-8")
    os.environ["FRAZIL_JARS"] = str(Home.resolve().jars)
    places = {"FRAZIL_HOME": "home", "FRAZIL_SETTINGS": "settings.yaml", "FRAZIL_PIPELINES": "pipelines"}
    os.environ.update({variable: str(root / place) for variable, place in places.items()})
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in PORT_VARIABLES]
        ports = [str(one.getsockname()[1]) for one in sockets]
    os.environ.update(zip(PORT_VARIABLES.values(), ports, strict=True))
    try:
        frazil("up")
        yield
    finally:
        frazil("down")


def frazil(*arguments: str) -> None:
    """Run a command to its end, in a process of its own."""
    subprocess.run([sys.executable, "-m", "frazil.cli", *arguments], check=True)


def land_a_day() -> None:
    """Land what a day brings, as of each half hour of it: little at night, most in the evening."""
    cluster = Project.load().cluster("local")
    for topic, _, _ in TOPICS.values():
        ensure_topic(cluster, topic, 4)
    now = datetime.now(UTC)
    for number in range(47, -1, -1):
        instant = now - timedelta(minutes=30 * number + 2)
        chance = Random(number)  # noqa: S311
        share = 1 + 0.75 * math.cos((instant.hour + instant.minute / 60 - 19) / 12 * math.pi)
        with time_machine.travel(instant, tick=True):
            for name, (topic, usual, every) in TOPICS.items():
                if number % every:
                    continue
                count = int(usual * share * chance.uniform(0.85, 1.15))
                generate = GENERATORS.get(name)
                records = (
                    generate(count, seed=number, broken_per_thousand=3, now=instant)
                    if generate
                    else shop_events(count, number)
                )
                ages = (chance.random() * 55 * every for _ in range(count))
                outgoing = (
                    replace(one, timestamp_ms=int((instant.timestamp() - age) * 1_000))
                    for one, age in zip(records, ages, strict=True)
                )
                produce(cluster, topic, outgoing)
                if invoke(["run", name]):
                    raise SystemExit(f"{name} did not run")


def run_in_airflow(root: Path, api: AirflowApi) -> str:
    """Let Airflow land some batches and refuse one; returns the last run that landed any."""
    for name in TOPICS:
        frazil("resume", name)
    for done, (count, broken) in enumerate(ROUNDS, 1):
        frazil(
            "produce", "completed-pizzas", "--generate=pizzas", f"--count={count}", f"--broken-per-thousand={broken}"
        )
        if not until(partial(has_ended, api, done), RUN_SECONDS, 2):
            raise SystemExit(f"{DAG} did not run")
        if broken > ROUNDS[0][1]:
            with (root / "pipelines" / "pizzas.yaml").open("a", encoding="utf-8") as file:
                file.write("dead_letters: {tolerance: {max_rate: 0.2}}\n")
            until(lambda: bool(api.runs(DAG)[-1].note), RUN_SECONDS, 2)
    return next(run.run_id for run in reversed(api.runs(DAG)) if run.note)


def has_ended(api: AirflowApi, rounds: int) -> bool:
    """Whether so many rounds have a run that landed them, or one that failed."""
    runs = api.runs(DAG)
    return sum(bool(run.note) for run in runs) + any(run.state == "failed" for run in runs) >= rounds


def in_terminal(command: str) -> str:
    """What a terminal has on its screen after a command: lines of progress that were wiped are gone."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, COLUMNS))
    arguments = [sys.executable, "-m", "frazil.cli", *command.split()]
    with subprocess.Popen(
        arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm-256color"}
    ):
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65_536):
                shown += chunk
        except OSError:  # the other end is closed
            os.close(ours)
    text = re.sub(r"[^\n]*\n\x1b\[\?25h\r\x1b\[1A\x1b\[2K", "", shown.decode())
    return re.sub(r"\x1b\[\?25[lh]", "", re.sub(r"[^\n]*\r\x1b\[2K", "", text)).replace("\r\n", "\n").rstrip()


def take_terminal(folder: Path) -> None:
    """One picture of some commands; the reader's browser chooses light or dark."""
    console = Console(
        record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    for command in COMMANDS:
        console.print(Text(f"$ frazil {command}", style="bold"))
        console.print(Text.from_ansi(in_terminal(command)), end="\n\n" if command != COMMANDS[-1] else "\n")
    dark = console.export_svg(theme=SVG_EXPORT_THEME, code_format="{styles}", clear=False, unique_id="t")
    light = console.export_svg(theme=DEFAULT_TERMINAL_THEME, code_format=TERMINAL, unique_id="t")
    (folder / "terminal.svg").write_text(light.replace("DARK", dark), encoding="utf-8")


def take(page: Page, name: str, address: str, height: int) -> None:
    """One picture, once the page has its figures."""
    page.goto(address)
    if "/plugin/" in address:
        frame = inside(page)
        frame.locator("#content").wait_for()
        for _ in range(60):
            if not frame.get_by_text("not read yet").count():
                break
            time.sleep(1)
            page.reload()
            frame.locator("#content").wait_for()
        page.wait_for_timeout(1_500)
    else:
        page.get_by_role("link", name="record", exact=True).first.wait_for()
        page.wait_for_timeout(5_000)  # Airflow draws its grid last
    window = page.viewport_size or {"width": 0, "height": 0}
    page.screenshot(path=LOOKED_AT / f"{name}.png", animations="disabled")
    if name in DOCUMENTED:
        shown = page.screenshot(
            animations="disabled", clip={"x": 0, "y": 0, "width": window["width"], "height": height}
        )
        few = subprocess.run(
            ["pngquant", "--strip", "--speed=1", "64", "-"],  # noqa: S607 - from the PATH, as Chromium
            input=shown,
            stdout=subprocess.PIPE,
            check=True,
        )
        (IMAGES / f"{name}.png").write_bytes(few.stdout)


def take_all(browser: Browser, home: Home, run_id: str) -> None:
    """All pictures in each window."""
    login = credentials(home)
    panels = json.dumps({"details-panel,main-panel": {"expandToSizes": {}, "layout": [26, 74]}})
    for suffix, theme, width, height in WINDOWS:
        page = browser.new_page(base_url=home.airflow_url, viewport={"width": width, "height": height})
        page.set_default_timeout(240_000)
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        log_in(page, login.user, login.password)
        keys = {"theme": theme, "react-resizable-panels:grid-ltr": panels}
        page.evaluate("keys => Object.entries(keys).forEach(([key, value]) => localStorage.setItem(key, value))", keys)
        for name, (address, shown) in PAGES.items():
            take(page, f"{name}{suffix}", address + (run_id if address.endswith("/runs/") else ""), shown)
        page.close()


def main() -> int:
    """Land, look, write the pictures."""
    LOOKED_AT.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, running_stack(Path(folder)):
        home = Home.resolve()
        login = credentials(home)
        land_a_day()
        frazil("maintain", "pizzas")
        with AirflowApi(home.airflow_url, login.user, login.password) as api:
            run_id = run_in_airflow(Path(folder), api)
        produce(Project.load().cluster("local"), "shop.events", shop_events(1_800, 48))
        take_terminal(IMAGES)
        with opened_browser() as browser:
            take_all(browser, home, run_id)
    return 0


if __name__ == "__main__":
    sys.exit(main())
