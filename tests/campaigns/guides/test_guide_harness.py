"""The tests of guides find what is wrong with a guide."""

import textwrap
from pathlib import Path

import pytest

from tests.support.guides import findings

SERVER = """\
```sh
mkdir site && cd site
printf 'User-agent: *\\nDisallow: /private\\n' > robots.txt
printf 'A page' > index.html
python3 -m http.server 8000
```

"""


def fenced(language: str, code: str) -> str:
    return f"```{language}\n{textwrap.dedent(code).strip()}\n```\n"


PROGRAM = fenced(
    "python",
    """
    import asyncio
    from urllib.request import urlopen

    async def main():
        print(urlopen("http://localhost:8000/").read().decode())

    asyncio.run(main())
    """,
)


async def wrong(folder: Path, *blocks: str, patience_s: float = 30.0) -> list[str]:
    return await findings("bad.md", "\n".join(blocks), folder, patience_s=patience_s)


@pytest.mark.realtime
async def test_good_guide_has_no_findings(tmp_path: Path) -> None:
    guide = [
        SERVER,
        PROGRAM,
        fenced("text", "A page"),
        fenced(
            "python",
            """
            import asyncio
            for number in range(2):
                print(number)

            print("http://localhost:8000")
            await asyncio.sleep(0, 1)  # 1: what it returns
            {"a": 2.71828, "b": "c"}  # {'a': 2.7..., 'b': 'c'}
            None  # nothing is echoed, so that this is a remark
            """,
        ),
        fenced("text", "0\n1\nhttp://localhost:8000"),
        fenced("python", "[number,\n 3]  # [1, 3]"),
        fenced("sh", "echo 2026-11-22T07:00:00Z, 3 s old; echo error >&2"),
        fenced("text", "2026-01-01T00:00:00Z, 12 s old\nerror"),
        fenced("sh", "pip install '.[all]'"),
        fenced("py", "ROBOTSTXT_OBEY = True"),
        fenced("json", '{"a": 1}\n{"b": 2}'),
        fenced("python", "import two\nimport asyncio\nprint(two.SITE, __name__)\nasyncio.run(asyncio.sleep(0))"),
        fenced("text", "http://localhost:8000/ __main__"),
        fenced("py", '# two.py\nSITE = "http://localhost:8000/"'),
    ]
    assert await wrong(tmp_path, *guide) == []


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("blocks", "start", "named"),
    [
        (["def one():\n    number = 1\n\n    return number"], "bad.md:5: ", "IndentationError: unexpected indent"),
        (["for number in range(2):\n    number\nprint(1)"], "bad.md:4: ", "SyntaxError"),
        (["import math", "math.pi\nmath.tau / 0"], "bad.md:7: ", "ZeroDivisionError"),
        (["1 + 1  # 2\n1 + 2  # 4\n1 + 3  # 4, of course"], "bad.md:3: ", "the comment says '4', the console '3\\n'"),
        (["import asyncio\nasyncio.run(asyncio.sleep())"], "bad.md:2: it ends with 1 and ", "TypeError"),
        (['import warnings\nwarnings.warn("old")  # asyncio.run()'], "bad.md:2: it ends with 1 and ", "UserWarning"),
    ],
    ids=["blank", "no blank", "later block", "value", "failing program", "warning"],
)
async def test_fault_of_a_program_is_found_at_its_line(
    tmp_path: Path, blocks: list[str], start: str, named: str
) -> None:
    [found] = await wrong(tmp_path, *(fenced("python", code) for code in blocks))
    assert found.startswith(start)
    assert named in found


@pytest.mark.full
@pytest.mark.realtime
@pytest.mark.parametrize(
    ("block", "found"),
    [
        (fenced("python", "await asyncio.Event().wait()\n1 / 0"), "bad.md:2: it hangs"),
        (fenced("python", "import asyncio\nasyncio.run(asyncio.Event().wait())"), "bad.md:2: it hangs after "),
        (fenced("sh", "sleep 60"), "bad.md:2: it hangs after "),
        (fenced("sh", "python3 -m http.server 8000 --wrong"), "bad.md:2: the server does not answer: usage"),
    ],
    ids=["paste", "program", "command", "server"],
)
async def test_hang_is_found(tmp_path: Path, block: str, found: str) -> None:
    [fault] = await wrong(tmp_path, block, patience_s=3)
    assert fault.startswith(found)


@pytest.mark.realtime
@pytest.mark.parametrize(
    "block",
    [
        fenced("python", "import asyncio\nprint(1)\nasyncio.run(asyncio.sleep(0))"),
        fenced("python", "import asyncio\nprint(1)"),
        fenced("python", "await asyncio.sleep(0, 1)"),
        fenced("sh", "echo 1; echo 2; echo 3"),
    ],
    ids=["program", "paste", "echo", "command"],
)
async def test_wrong_output(tmp_path: Path, block: str) -> None:
    [found] = await wrong(tmp_path, block, fenced("text", "2"))
    assert found.startswith("bad.md:2: the guide shows\n2\nand it prints\n1\n")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (fenced("", "1"), "a block of the language ''"),
        (fenced("text", "1"), "text that no block prints"),
        (fenced("py", "ADDONS = {"), "'{' was never closed"),
        (fenced("json", "{"), "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (fenced("py", f"A = {'1' * 76}"), "80 columns, more than 76"),
    ],
    ids=["unknown", "orphan", "py", "json", "wide"],
)
async def test_block_of_a_wrong_form(tmp_path: Path, block: str, message: str) -> None:
    assert await wrong(tmp_path, block) == [f"bad.md:2: {message}"]
