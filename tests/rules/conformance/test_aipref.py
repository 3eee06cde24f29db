import pytest

from politesse.page.preferences import header_usage
from politesse.robots import RobotsTxt
from politesse.usage.model import Preference, Purpose, combine


@pytest.mark.clause("draft-ietf-aipref-attach 3.1")
def test_preference_denies_no_request() -> None:
    rules = RobotsTxt.parse("User-agent: *\nContent-Usage: train-ai=n\n").rules_for("ExampleBot")
    assert rules.allowed("/page")
    assert len(rules) == 0


@pytest.mark.clause("draft-ietf-aipref-vocab 5.1")
@pytest.mark.parametrize(
    ("header", "file", "expected"),
    [
        ("y", "n", Preference.DISALLOWED),
        ("n", "y", Preference.DISALLOWED),
        ("y", "y", Preference.ALLOWED),
        ("y", "x", Preference.ALLOWED),
        ("x", "n", Preference.DISALLOWED),
        ("x", "x", Preference.UNSTATED),
    ],
)
def test_header_and_file_are_joined_by_the_most_restrictive_word(header: str, file: str, expected: Preference) -> None:
    of_file = RobotsTxt.parse(f"User-agent: *\nContent-Usage: train-ai={file}\n").rules_for("x").usage("/")
    assert of_file is not None
    of_header = header_usage({"Content-Usage": f"train-ai={header}"}, "https://example.com/")
    assert combine([of_header, of_file]).preference(Purpose.AI_TRAIN) is expected
