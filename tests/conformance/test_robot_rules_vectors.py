"""The vectors of the tests of WWW::RobotRules 6.02 (CPAN, t/rules.t): six files, 50 questions, by their numbers there.

What is true there is not false here: the questions about another site, whose answer is -1 in Perl, are UNKNOWN.
"""

from __future__ import annotations

from typing import Final

import pytest

from politesse.robotrules import Answer, RobotRules

pytestmark = pytest.mark.clause("WWW::RobotRules 6.02, t/rules.t")

FILES: Final = {
    1: (
        "# http://foo/robots.txt\n"
        "User-agent: *\n"
        "Disallow: /private\n"
        "Disallow: http://foo/also_private\n"
        "\n"
        "User-agent: MOMspider\n"
        "Disallow:\n"
    ),
    2: ("# http://foo/robots.txt\nUser-agent: MOMspider\n # comment which should be ignored\nDisallow: /private\n"),
    3: ("# http://foo/robots.txt\n"),
    4: (
        "# http://foo/robots.txt\n"
        "User-agent: *\n"
        "Disallow: /private\n"
        "Disallow: mailto:foo\n"
        "\n"
        "User-agent: MOMspider\n"
        "Disallow: /this\n"
        "\n"
        "User-agent: Another\n"
        "Disallow: /that\n"
        "\n"
        "\n"
        "User-agent: SvartEnke1\n"
        "Disallow: http://fOO\n"
        "Disallow: http://bar\n"
        "\n"
        "User-Agent: SvartEnke2\n"
        "Disallow: ftp://foo\n"
        "Disallow: http://foo:8080/\n"
        "Disallow: http://bar/\n"
        "\n"
        "Sitemap: http://www.adobe.com/sitemap.xml\n"
    ),
    5: (
        "# I've locked myself away\n"
        "User-agent: *\n"
        "Disallow: /\n"
        "# The castle is your home now, so you can go anywhere you like.\n"
        "User-agent: Belle\n"
        "Disallow: /west-wing/ # except the west wing!\n"
        "# It's good to be the Prince...\n"
        "User-agent: Beast\n"
        "Disallow: \n"
    ),
    6: (
        "# It's good to be the Prince...\n"
        "User-agent: Beast\n"
        "Disallow: \n"
        "# The castle is your home now, so you can go anywhere you like.\n"
        "User-agent: Belle\n"
        "Disallow: /west-wing/ # except the west wing!\n"
        "# I've locked myself away\n"
        "User-agent: *\n"
        "Disallow: /\n"
    ),
}

QUESTIONS: Final = [
    # number, file, robot, URL, what Perl says
    (1, 1, "MOMspider", "http://foo/private", 1),
    (2, 1, "MOMspider", "http://foo/also_private", 1),
    (3, 1, "Wubble", "http://foo/private", 0),
    (4, 1, "Wubble", "http://foo/also_private", 0),
    (5, 1, "Wubble", "http://foo/other", 1),
    (6, 2, "MOMspider", "http://foo/private", 0),
    (7, 2, "MOMspider", "http://foo/other", 1),
    (8, 2, "Wubble", "http://foo/private", 1),
    (9, 2, "Wubble", "http://foo/also_private", 1),
    (10, 2, "Wubble", "http://foo/other", 1),
    (11, 3, "MOMspider", "http://foo/private", 1),
    (12, 3, "MOMspider", "http://foo/other", 1),
    (13, 3, "Wubble", "http://foo/private", 1),
    (14, 3, "Wubble", "http://foo/other", 1),
    (15, 4, "MOMspider", "http://foo/private", 1),
    (16, 4, "MOMspider", "http://foo/this", 0),
    (17, 4, "MOMspider", "http://foo/that", 1),
    (18, 4, "Another", "http://foo/private", 1),
    (19, 4, "Another", "http://foo/this", 1),
    (20, 4, "Another", "http://foo/that", 0),
    (21, 4, "Wubble", "http://foo/private", 0),
    (22, 4, "Wubble", "http://foo/this", 1),
    (23, 4, "Wubble", "http://foo/that", 1),
    (24, 4, "Another/1.0", "http://foo/private", 1),
    (25, 4, "Another/1.0", "http://foo/this", 1),
    (26, 4, "Another/1.0", "http://foo/that", 0),
    (27, 4, "SvartEnke1", "http://foo/", 0),
    (28, 4, "SvartEnke1", "http://foo/this", 0),
    (29, 4, "SvartEnke1", "http://bar/", 1),
    (30, 4, "SvartEnke2", "http://foo/", 1),
    (31, 4, "SvartEnke2", "http://foo/this", 1),
    (32, 4, "SvartEnke2", "http://bar/", 1),
    (33, 4, "MomSpiderJr", "http://foo/private", 1),
    (34, 4, "MomSpiderJr", "http://foo/also_private", 1),
    (35, 4, "MomSpiderJr", "http://foo/this/", 0),
    (36, 4, "SvartEnk", "http://foo/", 1),
    (37, 4, "SvartEnk", "http://foo/private/", 0),
    (38, 4, "SvartEnk", "http://bar/", 1),
    (39, 5, "Villager/1.0", "http://foo/west-wing/", 0),
    (40, 5, "Villager/1.0", "http://foo/", 0),
    (41, 5, "Belle/2.0", "http://foo/west-wing/", 0),
    (42, 5, "Belle/2.0", "http://foo/", 1),
    (43, 5, "Beast/3.0", "http://foo/west-wing/", 1),
    (44, 5, "Beast/3.0", "http://foo/", 1),
    (45, 6, "Villager/1.0", "http://foo/west-wing/", 0),
    (46, 6, "Villager/1.0", "http://foo/", 0),
    (47, 6, "Belle/2.0", "http://foo/west-wing/", 0),
    (48, 6, "Belle/2.0", "http://foo/", 1),
    (49, 6, "Beast/3.0", "http://foo/west-wing/", 1),
    (50, 6, "Beast/3.0", "http://foo/", 1),
]


@pytest.mark.parametrize(("number", "file", "robot", "url", "expected"), QUESTIONS)
def test_question(number: int, file: int, robot: str, url: str, expected: int) -> None:
    rules = RobotRules(robot, perl_exact=True)
    rules.parse("http://foo/robots.txt", FILES[file])
    answer = rules.allowed(url)
    if url.startswith("http://bar/"):
        assert (expected, answer) == (1, Answer.UNKNOWN)
    else:
        assert int(answer) == expected, number
