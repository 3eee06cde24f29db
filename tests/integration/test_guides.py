"""Each guide does what it says: ``pytest tests/integration/test_guides.py -k pacing`` runs one."""

import re
from pathlib import Path

import pytest

from politesse.cli.guide_command import TOPICS
from tests.support.guides import blocks_of, findings

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "src/politesse/guides").glob("*.md"))
TEXTS = {path.name: path.read_text() for path in GUIDES}
LINK = re.compile(r"\]\(([^)#\s]*)(?:#[^)]*)?\)")


@pytest.mark.realtime
@pytest.mark.timeout(300)
@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
async def test_guide_runs_as_written(guide: Path, tmp_path: Path) -> None:
    found = await findings(guide.name, TEXTS[guide.name], tmp_path)
    assert not found, "\n\n".join(found)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_guide_opens_with_a_title_a_sentence_and_code_that_prints(guide: Path) -> None:
    title, blank, sentence, *_ = TEXTS[guide.name].splitlines()
    assert title.startswith("# ")
    assert (blank, sentence[:1].isupper() or sentence.startswith("`")) == ("", True)
    first = next(block for block in blocks_of(guide.name, TEXTS[guide.name]) if block.language == "python")
    assert first.text is not None


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_links_of_a_guide_lead_to_guides(guide: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", TEXTS[guide.name], flags=re.DOTALL | re.MULTILINE)
    links = [link for link in LINK.findall(prose) if not link.startswith(("https://", "http://"))]
    assert [link for link in links if link and link not in {path.name for path in GUIDES}] == []


def test_topics_are_the_guides() -> None:
    assert sorted(TOPICS) == sorted(path.stem for path in GUIDES)
