"""Transforms of decoded records: a `Frame` in, frames out. `frazil.records.model.format.Transform` specifies them.

Read in this order::

    definition.py        what a transform is written with: options, base classes, the class of Kafka Connect that it stands for
    fields.py            find, add and remove fields; select rows; match texts in linear time
    kinds/               the transforms and predicates themselves, each whole: options, sentences, checks, code
    chain.py             applies transforms one after the other
    catalogue.py         transforms and predicates by the names that users write, own ones included
    missing_fields.py    finds the fields that transforms need and no record can have, before any record is read

    header_lists.py      headers as columns
    java_casts.py        numbers, texts and booleans as Java casts and writes them
    java_dates.py        dates and times as Java writes them
    sql/                 expressions of DuckDB
"""
