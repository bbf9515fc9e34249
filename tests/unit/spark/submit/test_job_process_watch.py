"""Failures of Spark are told by names: their words quote values of records, and errors go into logs, mail and Airflow's metadata."""

from __future__ import annotations

from frazil.spark.submit.job_process import names_in, shown_lines

FAILURE = """An error occurred while calling o87.merge.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times (host executor driver):
org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value '4111-1111' of the type "STRING" cannot be cast
to "BIGINT" because it is malformed. SQLSTATE: 22018
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.invalidInput(QueryExecutionErrors.scala:147)
Caused by: org.apache.iceberg.exceptions.ValidationException: Cannot commit, found new delete for file s3://lake/mail=a@b.example/1.parquet
Traceback (most recent call last):
  File "/opt/x/include/frazil/records/decoder/decode.py", line 12, in decode
pyarrow.lib.ArrowInvalid: Could not convert 'a@b.example' with type str
ValueError: a@b.example
java.io.IOException: No space left on device: /lake/mail=a@b.example"""


def test_error_names_are_shown_without_values() -> None:
    """Exceptions, conditions and places in Frazil's own code; no word of a row."""
    names = ", ".join(names_in(FAILURE))
    for name in (
        "SparkNumberFormatException",
        "[CAST_INVALID_INPUT]",
        "SQLSTATE: 22018",
        "org.apache.iceberg.exceptions.ValidationException",
        "frazil/records/decoder/decode.py:12",
        "pyarrow.lib.ArrowInvalid",
        "ValueError",
        "No space left on device",
    ):
        assert name in names
    assert "4111" not in names
    assert "example" not in names


def test_end_of_a_log_is_shown_without_values() -> None:
    """What spark-submit says of its own arguments is told as it is: no record was read yet."""
    refused = (
        'Exception in thread "main" org.apache.spark.SparkException: Master must start with yarn, spark, k8s, or local'
    )
    assert shown_lines(["WARN something", refused])[0] == refused
    assert "example" not in "\n".join(shown_lines(FAILURE.splitlines()))
    assert shown_lines(["nothing is wrong"]) == []
