"""Records in the memory of this process: they come back as they were, within a bound."""

import random

import pytest

from politesse._cache.own_records import OwnRecords
from politesse._cache.record import Copy, Moment, Record, Trouble
from politesse.verdict import AccessResult

URL = "https://example.com/robots.txt"
MOMENT = Moment("run", 1_800_000_000.0, 5.0)


def record(body: bytes) -> Record:
    copy = Copy(AccessResult.SUCCESSFUL, 200, URL, body, '"v1"', "", MOMENT.wall, 3_600.0)
    return Record(copy, None, MOMENT)


def incompressible(octets: int) -> bytes:
    return random.Random(octets).randbytes(octets)


@pytest.mark.parametrize("octets", [0, 1, 2_047, 2_048, 500_000])
def test_a_record_comes_back_as_it_was(octets: int) -> None:
    records, kept = OwnRecords(), record(b"Disallow: /a\n" * (octets // 13) + b"#" * (octets % 13))
    records.save("https://example.com", kept)
    assert records.load("https://example.com") == kept
    assert records.load("https://example.com") == kept  # once more: it is kept


def test_a_failure_without_a_copy_comes_back() -> None:
    trouble = Trouble(AccessResult.UNREACHABLE, None, URL, "timeout", 1.0, 2.0, 3, 4.0)
    records, kept = OwnRecords(), Record(None, trouble, MOMENT)
    records.save("https://example.com", kept)
    assert records.load("https://example.com") == kept


def test_the_last_record_of_a_key_counts() -> None:
    records = OwnRecords()
    records.save("a", record(b"old"))
    records.save("a", record(b"new"))
    assert records.load("a") == record(b"new")
    assert len(records) == 1


def test_a_deleted_record_is_gone() -> None:
    records = OwnRecords()
    records.save("a", record(b""))
    records.delete("a")
    records.delete("never seen")
    assert records.load("a") is None
    assert "0 records, 0 of" in repr(records)


def test_the_least_recently_used_record_is_evicted_first() -> None:
    records = OwnRecords(max_bytes=3_500)
    for key in "abc":
        records.save(key, record(incompressible(500)))
    assert records.load("a") is not None
    records.save("d", record(incompressible(500)))
    assert [key for key in "abcd" if records.load(key) is not None] == ["a", "c", "d"]


def test_a_record_larger_than_the_bound_is_not_kept() -> None:
    records = OwnRecords(max_bytes=10_000)
    records.save("a", record(incompressible(20_000)))
    assert records.load("a") is None
    assert "0 records, 0 of 10000 bytes" in repr(records)


def test_a_large_file_counts_as_it_is_kept() -> None:
    records = OwnRecords(max_bytes=100_000)
    for number in range(50):
        records.save(f"https://site{number}.example", record(b"Disallow: /private\n" * 5_000))
    assert len(records) == 50  # of 95 kB each, uncompressed


def test_large_files_are_compressed_when_more_of_them_have_come() -> None:
    records = OwnRecords(max_bytes=16 * 100_000)  # 100 kB of files as they came
    body = b"Disallow: /private\n" * 2_000
    for number in range(20):
        records.save(f"https://site{number}.example", record(body))
    octets = int(repr(records).partition(", ")[2].partition(" ")[0])
    assert 2 * len(body) < octets < 3 * len(body)  # two as they came, and eighteen that take next to nothing
    for number in range(20):
        assert records.load(f"https://site{number}.example") == record(body)


def test_a_large_file_that_is_replaced_or_deleted_makes_room() -> None:
    records = OwnRecords(max_bytes=16 * 100_000)
    for _ in range(20):
        records.save("a", record(incompressible(60_000)))
    records.save("b", record(incompressible(30_000)))
    records.delete("b")
    records.save("c", record(b"Disallow: /private\n" * 2_000))
    octets = int(repr(records).partition(", ")[2].partition(" ")[0])
    assert octets > 60_000 + 38_000  # neither is compressed: together they are within the 100 kB
    assert records.load("c") == record(b"Disallow: /private\n" * 2_000)
