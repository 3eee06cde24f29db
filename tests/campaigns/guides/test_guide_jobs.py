"""The workers of a job queue, as the guide to jobs starts them: two processes request a site as one polite crawler."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from politesse.testing import assert_polite
from tests.support.guides import blocks_of
from tests.support.redis_servers import RedisServer
from tests.support.sites import ROBOTS, Site

GUIDE = (Path(__file__).parents[3] / "src/politesse/guides/jobs.md").read_text()
FILES = {block.file: block.code for block in blocks_of("jobs.md", GUIDE) if block.file}
# The queues themselves call redis-py in ways that redis-py deprecates, and Celery warns about root.
IGNORED = ("-Wignore:Call to:DeprecationWarning", "-Wignore:You're running the worker with superuser")
PYTHON = (sys.executable, "-W", "error", *IGNORED, "-m")
PROGRAMS = {"celery": "celery_jobs.py", "arq": "arq_jobs.py", "distributed": "dask_jobs.py"}
# Each has two processes: a worker of Celery is two processes, and the program for Dask starts two workers itself.
WORKERS: dict[str, list[tuple[str, ...]]] = {
    "celery": [("celery", "-A", "celery_jobs", "worker", "--concurrency", "2")],
    "arq": [("arq", "arq_jobs.WorkerSettings")] * 2,
    "distributed": [],
}
PAGES = ["1", "2", "3", "4", "docs", "private/"]


async def started(*command: str, folder: Path) -> Process:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (folder / "log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=log
        )


@contextlib.asynccontextmanager
async def worker(*command: str, folder: Path) -> AsyncIterator[None]:
    """Run a worker, which Ctrl-C ends."""
    process = await started(*PYTHON, *command, folder=folder)
    try:
        yield
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(20):
            await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.full
@pytest.mark.realtime
@pytest.mark.parametrize("library", PROGRAMS)
async def test_two_workers_request_each_page_once_and_at_one_pace(
    library: str, site: Site, redis_server: RedisServer, tmp_path: Path
) -> None:
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    site.redirects = {"/docs": (301, "/docs/")}
    name = PROGRAMS[library]
    code = re.sub(r"pages = \(.*\)", f"pages = {PAGES}", FILES[name])
    code = code.replace("http://localhost:8000", site.base).replace("redis://localhost:6379/0", redis_server.url)
    (tmp_path / name).write_text(code)
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(60):
        for command in WORKERS[library]:
            await stack.enter_async_context(worker(*command, folder=tmp_path))
        program = await started(*PYTHON[:-1], name, folder=tmp_path)
        printed, _ = await program.communicate()
        while "/docs/" not in site.paths:  # a redirect may be a job of its own
            await asyncio.sleep(0.05)
    logged = (tmp_path / "log").read_text()
    assert program.returncode == 0, logged
    assert "Warning" not in logged
    assert sorted(site.pages) == ["/1", "/2", "/3", "/4", "/docs", "/docs/"]
    assert site.paths.count("/robots.txt") == 1
    assert_polite(site.trace(), {site.base: ROBOTS}, agent="ExampleBot", min_delay_s=1.0, slack_s=0.003)
    *pages, docs, private = printed.decode().splitlines()
    assert pages == [f"200 {site.base}/{number}" for number in range(1, 5)]
    assert docs in {f"301 {site.base}/docs", f"200 {site.base}/docs/"}
    assert private.startswith(f"disallowed: {site.base}/private/ (")
