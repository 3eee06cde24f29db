import pytest
from hypothesis import given
from hypothesis import strategies as st

from politesse.robots import Quirk
from politesse.sites import DataRecord, DataTxt

DRAFT = "A Method for Web Data Discovery"
RECORDS = """\
# what we publish
User-agent: webcrawler
User-agent: infoseek
Allow:    /old/ok.html
Disallow: /old
Disallow: /user/foo

# the list
Dataset: /d.csv   # by year
  Title : Rain, 1990: by day
Dataset: /e.csv
"""


@pytest.mark.clause(f"{DRAFT} 3.2")
def test_records_are_runs_of_fields_between_blank_lines() -> None:
    assert DataTxt.parse(RECORDS).records == (
        DataRecord(
            ("webcrawler", "infoseek"),
            (
                ("User-agent", "webcrawler"),
                ("User-agent", "infoseek"),
                ("Allow", "/old/ok.html"),
                ("Disallow", "/old"),
                ("Disallow", "/user/foo"),
            ),
        ),
        DataRecord((), (("Dataset", "/d.csv"), ("Title", "Rain, 1990: by day"), ("Dataset", "/e.csv"))),
    )


@pytest.mark.clause(f"{DRAFT} 3.2")
def test_a_comment_line_does_not_end_a_record() -> None:
    [record] = DataTxt.parse("A: 1\n# between\nB: 2\n").records
    assert record.fields == (("A", "1"), ("B", "2"))


@pytest.mark.clause(f"{DRAFT} 5.2")
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_end_as_on_any_platform(end: str) -> None:
    read = DataTxt.parse(f"A: 1{end}{end} \t{end}B: 2{end}C: 3")
    assert [record.fields for record in read.records] == [(("A", "1"),), (("B", "2"), ("C", "3"))]


def test_a_misspelled_field_is_reported_as_written() -> None:
    [record] = DataTxt.parse("useragent: x\ndisalow: /a\ndisallow /b").records
    assert record == DataRecord((), (("useragent", "x"), ("disalow", "/a")))


def test_a_line_without_a_colon_is_kept_but_is_no_field() -> None:
    read = DataTxt.parse("All our data\n\nDataset: /d\n")
    assert [record.fields for record in read.records] == [(("Dataset", "/d"),)]
    assert "All our data" in read.text


def test_values_of_a_field_are_found_in_any_case() -> None:
    [record] = DataTxt.parse("DATASET: /D.csv\nTitle: x\ndataset: /e.csv").records
    assert record.values("Dataset") == ("/D.csv", "/e.csv")
    assert record.values("licence") == ()


def test_fields_can_be_given_other_names() -> None:
    [record] = DataTxt.parse("DataSet: /d\nTitle: x", fields={"dataset": "distribution"}).records
    assert record.fields == (("distribution", "/d"), ("Title", "x"))
    [record] = DataTxt.parse("DataSet: /d\nTitle: x", fields=str.upper).records
    assert record.fields == (("DATASET", "/d"), ("TITLE", "x"))


def test_a_name_of_another_kind_does_not_hide_the_agent_of_a_record() -> None:
    [record] = DataTxt.parse("User-agent: x", fields={"user-agent": "robot"}).records
    assert record == DataRecord(("x",), (("robot", "x"),))


@pytest.mark.clause(f"{DRAFT} 2")
def test_text_is_the_file_with_its_comments_and_layout() -> None:
    assert DataTxt.parse("# hello\r\n\r\nTitle:\tRéunion\n").text == "# hello\n\nTitle:\tRéunion\n"


def test_text_is_safe_to_print() -> None:
    text = DataTxt.parse(b"Title: \x1b[2J\x00\xff \xe2\x80\xae\n").text
    assert text == "Title: \\x1b[2J\\x00\\udcff \\u202e\n"


def test_a_web_page_instead_of_the_file_is_recognised() -> None:
    assert DataTxt.parse("<!DOCTYPE html>\n<p>Not found: x</p>").quirks == (Quirk.LOOKS_LIKE_HTML,)
    assert DataTxt.parse("").records == ()


@given(
    st.binary(max_size=300) | st.lists(st.sampled_from([b"a", b":", b"#", b"\n", b"\r", b" ", b"\xff"])).map(b"".join)
)
def test_parsing_raises_for_no_content_and_invents_no_field(body: bytes) -> None:
    read = DataTxt.parse(body)
    fields = [field for record in read.records for field in record.fields]
    assert len(fields) <= body.count(b":")
    assert all(record.fields for record in read.records)
    assert all(character.isprintable() or character in "\t\n" for character in read.text)
    assert repr(read) == f"<DataTxt: {len(read.records)} records>"
