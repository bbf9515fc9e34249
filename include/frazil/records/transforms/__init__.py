"""Kinds of transforms: `Frame` in, `Frame` out. See `frazil.records.model.format.Transform`.

::

    kinds/               the transforms and predicates themselves, each whole: options, sentences, checks, code; also `When`
    definition.py        what they are written with: options, the base classes, the class of Kafka Connect that they stand for
    catalogue.py         all of them by the names that users write, own ones included
    chain.py             transforms one after the other
    missing_fields.py    what transforms won't find in any record, said before one is read
    values/              numbers, texts and dates as Java writes them
    cdc/                 what transforms of change events share
    sql/                 expressions of DuckDB

    fields.py            find, put and leave out fields; rows that fail, and rows that go on
    header_lists.py      headers as columns
    patterns.py          regular expressions in linear time
"""
