"""`frazil dead-letters` as a user calls it, over letters that a run left."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from frazil.project import Project


def answer(place: Any, *arguments: str) -> Any:
    """What a command says with --json."""
    done = place.frazil(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def declare(place: Any, text: str) -> None:
    """Give the pipeline these dead_letters."""
    file = place.root / "pipelines" / "orders.yaml"
    file.write_text(
        re.sub(r"dead_letters: .*", f"dead_letters: {text}", file.read_text(encoding="utf-8")), encoding="utf-8"
    )


def produce(place: Any, *values: str) -> None:
    lines = place.root / "lines.txt"
    lines.write_text("\n".join(values) + "\n", encoding="utf-8")
    assert place.frazil("produce", place.topic, "--file", str(lines), "--partitions", "2").returncode == 0


GOOD = '{"id": "a", "amount": 1}'
BAD = '{"id": "b", "amount": "4111-hush"}'


def test_dead_letters_are_listed_once_and_as_filtered(landed: Any) -> None:
    """Each of the ten once, by record; and only what was asked for."""
    letters = answer(landed, "dead-letters", "list", "orders")
    shown = landed.frazil("dead-letters", "list", "orders").stdout

    assert len(letters) == 10
    assert all(f"{letter['topic']}/{letter['partition']}/{letter['offset']}" in shown for letter in letters)
    assert shown.endswith("orders: 10 open dead letters\n")
    code = letters[0]["code"]
    chosen = answer(landed, "dead-letters", "list", "orders", "--code", code)
    assert [letter for letter in letters if letter["code"] == code] == chosen
    assert len(answer(landed, "dead-letters", "list", "orders", "--limit", "3")) == 3


def test_empty_selection_says_what_was_searched(landed: Any) -> None:
    """It is said in words what was looked for."""
    done = landed.frazil("dead-letters", "list", "orders", "--landed", "--topic", "other")

    assert (done.returncode, done.stdout) == (0, "orders: no landed dead letters in topic other\n")


def test_dead_letter_payload_can_be_exported(landed: Any, tmp_path: Path) -> None:
    """What the list names can be shown, with its remedy, and written byte by byte."""
    one = next(letter for letter in answer(landed, "dead-letters", "list", "orders") if letter["code"] != "NULL_VALUE")
    record = f"{one['topic']}/{one['partition']}/{one['offset']}"
    done = landed.frazil("dead-letters", "show", "orders", record, "--raw", str(tmp_path / "value"))
    (whole,) = answer(landed, "dead-letters", "show", "orders", record)

    assert done.returncode == 0, done.stderr
    assert f"{record}  {one['code']}" in done.stdout
    assert "to do" in done.stdout
    value = (tmp_path / "value").read_bytes()
    assert f"value: {len(value):,} bytes" in done.stdout
    assert whole["value"] in (value.decode(errors="replace"), whole["value"] if "base64:" in whole["value"] else None)


def test_record_without_dead_letter_is_explained(landed: Any) -> None:
    """It has a row, or was never read: that is not the same as an empty letter."""
    done = landed.frazil("dead-letters", "show", "orders", f"{landed.topic}/0/999999")

    assert done.returncode == 78
    assert "no dead letter of record" in done.stderr


def test_report_counts_as_list_does(landed: Any, tmp_path: Path) -> None:
    """To the terminal as Markdown, to files where that is wanted; the numbers are those of the list."""
    counted = answer(landed, "dead-letters", "report", "orders")
    shown = landed.frazil("dead-letters", "report", "orders")
    files = {"--html": tmp_path / "r.html", "--markdown": tmp_path / "r.md"}
    done = landed.frazil(
        "dead-letters", "report", "orders", *(str(argument) for item in files.items() for argument in item)
    )

    assert sum(group["count"] for group in counted["groups"]) == 10
    assert "10 dead letters, 10 of them open; 0 in the period before (10 in the table)." in shown.stdout
    assert (done.returncode, done.stdout) == (0, "")
    assert "10 dead letters" in files["--html"].read_text(encoding="utf-8")
    assert files["--markdown"].read_text(encoding="utf-8").startswith("# Dead letters of orders\n")


def test_commands_work_for_pipeline_that_never_ran(place: Any) -> None:
    """Each says so, and makes nothing."""
    outputs = [place.frazil("dead-letters", verb, "orders").stdout for verb in ("list", "report")]

    assert outputs[0] == "orders: the pipeline never ran, so it has no dead letters\n"
    assert "it never ran" in outputs[1]
    assert place.frazil("dead-letters", "show", "orders", "orders/0/0").returncode == 78


def test_tolerance_none_does_not_publish(place: Any) -> None:
    """The first bad record stops the batch, and the message says where it is; nothing was landed."""
    declare(place, "{tolerance: none}")
    produce(place, GOOD, BAD)

    done = place.frazil("run", "orders")

    assert done.returncode == 78
    assert re.search(rf"topic {place.topic}, partition \d+, offset \d+: WRONG_TYPE: amount: expected", done.stderr)
    assert [batch["kind"] for batch in answer(place, "history", "orders")] == ["start"]
    declare(place, "{tolerance: all}")
    assert place.frazil("run", "orders").returncode == 0


def test_dead_letters_above_tolerance_are_published_and_reported(place: Any) -> None:
    """`dead_letter_and_alert` lands the batch, and both the report and the result say that it was too much."""
    declare(place, "{tolerance: none, on_exceed: dead_letter_and_alert}")
    produce(place, GOOD, BAD)

    look = place.frazil("run", "orders", "--dry-run", "--json")
    done = place.frazil("run", "orders", "--json")

    assert done.returncode == 0, done.stderr
    assert "ALERT: too many dead letters, published nevertheless: 1 of 2 records" in done.stderr
    result = json.loads(done.stdout)
    assert (result["written"], result["dead"]) == (1, 1)
    assert "1 of 2 records" in result["tolerance_exceeded"][0]
    looked = json.loads(look.stdout)
    assert looked["too_many_dead"] is None
    assert "would publish this, with an alert" in looked["remarks"][-1]


def test_log_holds_no_secret(place: Any) -> None:
    """Code and coordinates of up to 100 letters, then a count; nothing that was in them."""
    declare(place, "{tolerance: all, log: true}")
    produce(place, GOOD, *[BAD] * 130)

    done = place.frazil("run", "orders")

    assert done.returncode == 0, done.stderr
    named = re.findall(
        rf"dead letter WRONG_TYPE: topic {place.topic}, partition \d+, offset \d+$", done.stderr, re.MULTILINE
    )
    assert len(named) == 100
    assert "and 30 more dead letters" in done.stderr
    assert "hush" not in done.stderr + done.stdout


@pytest.mark.parametrize("payload", ["redacted", "none"])
def test_table_holds_no_secret(place: Any, payload: str) -> None:
    """No file of the lake does, no command shows it, and verify still finds every record accounted for."""
    declare(place, f"{{tolerance: all, payload: {payload}}}")
    produce(place, GOOD, BAD, "not json: hush")

    assert place.frazil("run", "orders").returncode == 0
    verified = place.frazil("verify", "orders")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    letters = answer(place, "dead-letters", "list", "orders")
    assert sorted(letter["code"] for letter in letters) == ["INVALID_JSON", "WRONG_TYPE"]
    record = f"{letters[0]['topic']}/{letters[0]['partition']}/{letters[0]['offset']}"
    shown = place.frazil("dead-letters", "show", "orders", record)
    assert "header frazil.payload" in shown.stdout
    assert place.frazil("dead-letters", "show", "orders", record, "--raw", str(place.root / "v")).returncode == 78
    assert "hush" not in shown.stdout + json.dumps(letters)
    rows = place.frazil("sql", "FROM shop.orders__dead_letters", "--json").stdout
    assert "hush" not in rows
    assert not any(
        b"hush" in file.read_bytes() for file in (place.root / "home" / "warehouse").rglob("*") if file.is_file()
    )


def test_repaired_dead_letters_bring_no_secret(place: Any) -> None:
    """A repair reads the records from Kafka again, and keeps no more of them than the batch did."""
    declare(place, "{tolerance: all, payload: none}")
    produce(place, GOOD, BAD)
    assert place.frazil("run", "orders").returncode == 0
    letters = "shop.orders__dead_letters"
    Project.load(place.environment).lake("lake")._catalog.drop_table(letters)

    done = place.frazil("repair", "orders", letters, "--reason", "dropped", "--yes")

    assert done.returncode == 0, done.stderr
    rows = place.frazil("sql", f"FROM {letters}", "--json").stdout
    assert "WRONG_TYPE" in rows
    assert "hush" not in rows
    assert place.frazil("verify", "orders").returncode == 0


def test_changed_hashes_are_found(place: Any) -> None:
    """A redacted letter still proves its record: verify compares size and hash."""
    declare(place, "{tolerance: all, payload: redacted}")
    produce(place, BAD)
    assert place.frazil("run", "orders").returncode == 0
    table = Project.load(place.environment).lake("lake").load_table("shop.orders__dead_letters")
    rows = table.scan().to_arrow()
    (headers,) = rows.column("headers").to_pylist()
    headers[-1]["value"] = headers[-1]["value"][:-1] + b"!"
    field_index = rows.schema.get_field_index("headers")
    table.overwrite(
        rows.set_column(
            field_index, rows.schema.field(field_index), pa.array([headers], rows.schema.field(field_index).type)
        )
    )

    done = place.frazil("verify", "orders")

    assert done.returncode == 1
    assert "sizes and hashes" in done.stdout
