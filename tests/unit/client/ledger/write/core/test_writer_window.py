"""A writer beside others has unconfirmed only what is confirmed within the target."""

from __future__ import annotations

import pytest

from client.ledger.write.core.writer_window import Company, WriterWindow

MAX = 16_000_000
MIN = 1_000_000


def window(company: Company) -> WriterWindow:
    return WriterWindow(company, MAX, shared_bytes_min=MIN, target_s=0.01)


def confirm(busy: WriterWindow, bytes_per_s: int, *, begin_s: float, seconds: float = 1.0) -> None:
    for at in range(int(seconds * 1000)):
        now_s = begin_s + at / 1000
        busy.on_confirmed(int(now_s * bytes_per_s), now_s)


def test_a_writer_alone_has_the_whole_window() -> None:
    company = Company()
    busy = window(company)
    company.change(busy, 100.0)
    assert busy.size == MAX
    confirm(busy, 200_000_000, begin_s=100.0)
    assert busy.size == MAX


def test_a_writer_in_company_has_what_is_confirmed_within_the_target() -> None:
    company = Company()
    busy = window(company)
    company.change(busy, 100.0)
    company.change(object(), 100.0)
    confirm(busy, 200_000_000, begin_s=100.0)
    assert busy.size == pytest.approx(2_000_000, rel=0.01)
    confirm(busy, 400_000_000, begin_s=101.0)
    assert busy.size == pytest.approx(4_000_000, rel=0.01)


def test_never_less_than_the_least_and_never_more_than_alone() -> None:
    company = Company()
    busy = window(company)
    company.change(busy, 100.0)
    company.change(object(), 100.0)
    confirm(busy, 1_000, begin_s=100.0)
    assert busy.size == MIN
    confirm(busy, 10_000_000_000, begin_s=101.0)
    assert busy.size == MAX


def test_company_that_went_away_is_forgotten_and_one_record_a_second_is_company() -> None:
    company = Company()
    busy, quiet = window(company), object()
    for second in range(100, 110):
        company.change(quiet, second)
        company.change(busy, second + 0.5)
        confirm(busy, 200_000_000, begin_s=second)
        assert busy.size == pytest.approx(2_000_000, rel=0.01)
    confirm(busy, 200_000_000, begin_s=112.0)
    assert busy.size == pytest.approx(2_000_000, rel=0.01)
    confirm(busy, 200_000_000, begin_s=115.0)
    assert busy.size == MAX


def test_confirmed_bytes_are_measured_over_an_interval_and_not_from_one_to_the_next() -> None:
    company = Company()
    busy = window(company)
    company.change(busy, 100.0)
    company.change(object(), 100.0)
    busy.on_confirmed(0, 100.0)
    busy.on_confirmed(5_000_000, 100.001)
    assert busy.size == MIN, "a burst is no rate"
    busy.on_confirmed(5_000_000, 100.025)
    assert busy.size == pytest.approx(2_000_000, rel=0.01)
