"""What a page of the book keeps of unread records, span by span."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from frazil.alerts.notification_log import Page
from frazil.monitor.freshness import Span, span_at
from frazil.pipeline.syntax.interval import Interval

START = datetime(2026, 5, 1, tzinfo=UTC)


def test_unread_records_are_compared_over_adjacent_intervals_only():
    """The fewest of each interval; where nobody looked for an interval it begins anew."""
    page, every = Page(), timedelta(minutes=5)
    for minute, lag in ((0, 50), (2, 10), (4, 30), (5, 20), (9, 25), (10, 40)):
        page = page.with_lag(lag, span(minute, every), keep=9)
    assert page.finished == (10, 20)

    assert page.with_lag(9, span(25, every), keep=9).finished == ()
    assert page.with_lag(None, span(25, every), keep=9) == page


def span(minute: int, every: timedelta) -> Span:
    return span_at(Interval(every), START + timedelta(minutes=minute), every)
