"""Each batch is judged by the pipeline file that it ran under: an edit weakens nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frazil.batch.position import EARLIEST
from frazil.pipeline.files.folder import is_rules_file, rules_file
from tests.logs import hear
from tests.operations import replay

Make = Callable[..., Any]


def edited(orders: Any, old: str, new: str) -> Any:
    """The pipeline after an edit of its file."""
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    assert old in text
    return orders.with_pipeline(text.replace(old, new))


def kept_files(orders: Any) -> list[Path]:
    """The files of rules beside the ledger."""
    location = orders.project.lake("lake").load_table("shop.orders__ledger").location().removeprefix("file://")
    return sorted(path for path in Path(location, "metadata").iterdir() if is_rules_file(str(path)))


def found_in(check: Make, orders: Any) -> list[tuple[str, int | None]]:
    report = check(orders)
    return [(difference.kind, difference.offset) for difference in report.differences]


@pytest.fixture
def landed(shop: Make) -> Any:
    """Two batches under two files: of the first one record is bad, and one a tombstone."""
    plain = shop(partitions=1)
    orders = edited(plain, "engine: inline", "engine: inline\nvalue: {unknown_fields: fail}")
    orders.produce_orders(range(4))
    orders.produce([b'{"id": 4, "name": "a", "more": 1}', None])
    orders.run()
    later = edited(orders, "unknown_fields: fail", "unknown_fields: ignore")
    later.produce_orders(range(10, 13))
    later.run()
    return later


def test_rows_of_former_files_are_judged_by_them(landed: Any, check: Make) -> None:
    """A record that the first file called bad, and the present one would not, is clean; nothing is lenient."""
    report = check(landed)

    assert report.is_clean, list(map(str, report.differences))
    assert sum(partition.lenient for partition in report.partitions) == 0
    assert report.batches_not_judged == {}
    assert len(kept_files(landed)) == 2


def test_value_set_to_null_is_found_after_an_edit(landed: Any, check: Make, table: Make) -> None:
    """Fault B13: null is no value of a record that has one, whatever was edited since."""
    table(landed).overwrite(lambda row: row | ({"name": None} if row["id"] == 2 else {}))

    assert found_in(check, landed) == [("changed", 2)]


def test_row_deleted_with_its_count_is_found_after_an_edit(landed: Any, check: Make, table: Make) -> None:
    """A ledger that says of a deleted row that it was filtered is not believed: the file says what is filtered."""

    def edit(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] != 1:
            return row
        fewer = {"records_written": row["records_written"] - 1, "records_filtered": row["records_filtered"] + 1}
        return row | fewer | ({"rows": row["rows"] - 1} if row["role"] == "destination" else {})

    table(landed).delete(id=1)
    table(landed, "shop.orders__ledger").overwrite(edit)

    assert ("missing", 1) in found_in(check, landed)


def test_deleted_row_is_named_by_its_own_offset_after_an_edit(landed: Any, check: Make, table: Make) -> None:
    """Not the tombstone, which has no outcome either."""
    table(landed).delete(id=3)

    assert found_in(check, landed) == [("missing", 3)]


def test_dead_letter_of_good_record_is_found_after_edit(landed: Any, check: Make, table: Make) -> None:
    """What the file of the batch made a row is none of its dead letters."""
    letters, row = table(landed, "shop.orders__dead_letters"), table(landed).rows().to_pylist()[-1]
    (letter,) = letters.rows().to_pylist()
    place = {
        "offset": row["_kafka_offset"],
        "timestamp": row["_kafka_timestamp"],
        "_frazil_batch": row["_frazil_batch"],
    }
    value = json.dumps({"id": row["id"], "name": row["name"]}).encode()
    letters.append([letter | place | {"value": value}])
    table(landed).delete(id=row["id"])

    assert ("changed", row["_kafka_offset"]) in found_in(check, landed)


def test_renamed_column_is_judged_by_the_field_it_was_taken_from(landed: Any, check: Make, table: Make) -> None:
    """The file of an earlier batch knows the column by its former name."""
    with landed.project.lake("lake").load_table("shop.orders").update_schema() as change:
        change.rename_column("name", "title")
    renamed = edited(landed, "name: string", "title: {type: string, from: name}")
    renamed.produce_orders(range(20, 22))
    renamed.run()
    assert check(renamed).is_clean

    table(renamed).overwrite(lambda row: row | ({"title": None} if row["id"] == 1 else {}))

    assert found_in(check, renamed) == [("changed", 1)]


@pytest.mark.parametrize("spoil", ["gone", "edited"])
def test_batch_whose_file_is_not_known_is_named(landed: Any, check: Make, spoil: str) -> None:
    """Batches of an older Frazil have no kept file: null is accepted there, and the result says of which batches and why."""
    present = landed.pipeline.outcome_fingerprint
    (file,) = [path for path in kept_files(landed) if present not in path.name]
    if spoil == "gone":
        file.unlink()
    else:
        file.write_text(file.read_text().replace("long", "string"))

    report = check(landed)

    assert report.is_clean, list(map(str, report.differences))
    ((why, batches),) = report.batches_not_judged.items()
    assert (batches, "not kept" in why) == ((1,), spoil == "gone")
    assert sum(partition.lenient for partition in report.partitions) == 4


def test_batch_of_unknown_file_is_not_named_once_it_was_replayed(landed: Any, check: Make) -> None:
    """No row of it is left that could be judged: the replay's rows are, by the present file."""
    present = landed.pipeline.outcome_fingerprint
    (file,) = [path for path in kept_files(landed) if present not in path.name]
    file.unlink()
    replay(landed, EARLIEST)

    report = check(landed)

    assert report.is_clean, list(map(str, report.differences))
    assert report.batches_not_judged == {}


def test_batches_of_a_schema_file_are_judged_by_the_schema_of_then(shop: Make, check: Make, table: Make) -> None:
    """The text of the schema file is kept with the rules: a name that an edit of it took away is still compared."""
    plain = shop(partitions=1)
    schema = plain.project.pipelines_folder.parent / "schemas" / "order.avsc"
    schema.parent.mkdir()
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    schema.write_text(json.dumps({"type": "record", "name": "order", "fields": fields}))
    orders = edited(plain, "engine: inline", "engine: inline\nvalue: {format: avro, schema_file: order.avsc}")
    orders.produce([bytes([2 * n, 2]) + b"a" for n in range(3)])
    orders.run()
    schema.write_text(json.dumps({"type": "record", "name": "order", "fields": fields, "doc": "another text"}))
    later = edited(orders, "engine: inline", "engine: inline ")
    later.produce([b"\x08\x02b"])
    later.run()
    report = check(later)
    assert report.is_clean, list(map(str, report.differences))
    assert report.batches_not_judged == {}

    table(later).overwrite(lambda row: row | ({"name": None} if row["id"] == 1 else {}))

    assert found_in(check, later) == [("changed", 1)]


def test_batch_lands_though_its_file_can_not_be_kept(
    landed: Any, check: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only verify needs it: the reason is logged, and verify names the batch."""
    orders = edited(landed, "unknown_fields: ignore", "unknown_fields: ignore, empty_value: filter")
    (present,) = {path.parent for path in kept_files(orders)}
    path = present / rules_file("orders", orders.pipeline.outcome_fingerprint)
    path.symlink_to(path)  # as a storage that refuses to say whether it is there
    orders.produce_orders(range(20, 22))
    hear("frazil.run.commit.manifests", monkeypatch, caplog)
    orders.run()
    assert [path.name in line and "less strictly" in line for line in caplog.messages] == [True]
    path.unlink()
    later = edited(orders, ", empty_value: filter", "")

    report = check(later)

    assert report.is_clean, list(map(str, report.differences))
    ((why, batches),) = report.batches_not_judged.items()
    assert (batches, "not kept" in why) == ((3,), True)
