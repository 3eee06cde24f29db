"""A Copy, what is known of a file, and the state machine that makes it: the meaning of an answer, now and later. Pure.

The *answer* of a Copy is the last definite answer (2xx, 4xx). Its *trouble* stands for the failures since then (5xx,
429, faults). The result of a fetch changes both (``advance``); time changes only their meaning (``judged``).

    result of a fetch              answer                    trouble
    2xx except 206                 new, successful           none
    304 to a conditional request   confirmed                 none
    401, 403 if they forbid        new, forbidden            none
    another 304                    kept                      unreachable, retry at R
    429, a host that is closed     kept                      too many requests, retry at R
    a host that is closed, while   kept                      unreachable, retry at R
    robots.txt is unreachable
    other 4xx, too many redirects  new, unavailable          none
    the same, in KOSTER_2019, and  kept                      unavailable, retry at R
    the file is less than a day old
    any other status or fault      kept                      unreachable, retry at R
    a challenge, whatever status   kept                      unreachable, retry at R

    trouble             answer                                 means                until        refreshed behind
    none                fresh                                  the answer           it is stale  from 90 % of its life
    none                stale                                  fetch
    too many requests   fresh                                  the answer           it is stale  from R
    too many requests   not fresh, before R                    too many requests    R
    unavailable         successful, confirmed within a day     the answer           the day ends from R
    unavailable         other, before R                        unavailable          R
    unreachable         successful, confirmed within a day     the answer           the day ends from R
    unreachable         other, before R                        unreachable          R
    unreachable         other, 30 days on, in some dialects    unavailable          R
    any                 none of these                          fetch

The tables follow RFC 9309. Dialect and options may change the meaning of 429 and of too many redirects. Dialect and
options also set how long an answer is used (``stale_s``), for how long after the first failure no answer is used
(``closed_s``), and what trouble without an answer means after ``closed_s``.

R is the latest of Retry-After, our own backoff (60 s doubling to an hour, with jitter), and the end of the closure that
the answer has caused. A closed host gets no request; R is then the time at which the host opens, if the pacer knows it.

A 304 does not confirm the answer if it has another entity tag, or no tag and another Last-Modified. The request is then
made once more without conditions (``names_another``). A 304 to a request without conditions means unreachable.

The times of answer and trouble are readings of the wall clock. A wall clock may be set, and a monotonic clock may stop
while the machine sleeps, so the clock that shows more elapsed time counts. If the wall clock was set back, the times
are moved back by the same time before a copy is judged (``ClockCorrection``). If the clock was set forward, the copy
counts as older.

``FileRules`` are the compiled rules of a file. All origins with the same file share them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from sys import getsizeof
from typing import TYPE_CHECKING, Final, NamedTuple

from politesse._base.constants import AGREE_S, DAY_S
from politesse._http.freshness import freshness_lifetime_s, names_another, retry_after_s, varies_by
from politesse._pacing.refusals import challenge_of
from politesse.errors import InvalidURL
from politesse.origin import Origin
from politesse.ports import FaultKind, FetchFault, FetchResponse, FetchResult, Validators
from politesse.robots import Dialect, RobotsTxt, RuleSet
from politesse.verdict import CLOSED, AccessResult, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from politesse._cache.options import AccessPolicy


_WEIGHED_AT_ONCE: Final = 4 * 1024
_DIGEST_BYTES: Final = 140  # the memory for the digest of a file as a key of the dict


class FileRules(dict[str, RuleSet]):
    """The compiled rules of a file for each agent. All origins with the same file share this mapping.

    The rules of an agent are added with its first request. Agents share their rules if the same groups apply to them.

    Args:
        digest: see below.
        known: the dict of all FileRules that kept copies use, by digest; ``retain`` and ``release`` change it.
        size: see below.

    Attributes:
        digest: the digest of the file, or of file and site if the meaning of the file depends on the site; empty
            without a file.
        size: how many octets the file has.
        copies: how many kept copies use the rules. Only the first of these copies adds the bytes of the rules to the
            size of the cache.
    """

    __slots__ = ("_known", "copies", "digest", "size")

    def __init__(self, digest: bytes, known: dict[bytes, FileRules], size: int = 0) -> None:
        self.digest: bytes = digest
        self.size: int = size
        self._known = known
        self.copies: int = 0

    def add(self, compiled: Mapping[str, RuleSet]) -> int:
        """Add the rules of agents; return about how many more bytes the kept copies take."""
        before_bytes = self.weight_bytes
        for agent, rule_set in compiled.items():
            self.setdefault(agent, rule_set)
        return self.weight_bytes - before_bytes if self.copies else 0

    @property
    def weight_bytes(self) -> int:
        """About how much memory the rules take; rules that agents share count once."""
        return _DIGEST_BYTES + getsizeof(self) + sum([rules.weight_bytes for rules in set(self.values())])

    def retain(self) -> int:
        """Count a copy that uses the rules; return about how many more bytes the cache takes.

        Only the first of the copies that share the rules adds their bytes.
        """
        if not self:
            return 0  # ``NO_RULES``
        self.copies += 1
        if self.copies > 1:
            return 0
        self._known[self.digest] = self
        return self.weight_bytes

    def release(self) -> int:
        """Stop counting a copy that used the rules; return about how many bytes of the cache become free."""
        if not self:
            return 0
        self.copies -= 1
        if self.copies:
            return 0
        if self._known.get(self.digest) is self:
            del self._known[self.digest]
        return self.weight_bytes


NO_RULES: Final = FileRules(b"", {})
"""The rules of a site without a file."""


def compile_rules(
    body: bytes, dialect: Dialect, origin: Origin, agents: Iterable[str], known: Mapping[str, RuleSet]
) -> dict[str, RuleSet]:
    """Return the rules of each agent; agents, also those that are ``known``, share rules if the same groups apply.

    The rules of a large file are weighed at once, because they are compiled in a thread. They keep their weight.
    """
    robots = RobotsTxt.parse(body, dialect, origin=origin)
    agents = tuple(agents)
    if not known and len(agents) == 1:
        rules = robots.rules_for(agents[0].split(","))
        if len(body) > _WEIGHED_AT_ONCE:
            _ = rules.weight_bytes
        return {agents[0]: rules}
    bound = {robots.binding(agent.split(",")): rules for agent, rules in known.items()}
    compiled: dict[str, RuleSet] = {}
    for agent in agents:
        tokens = agent.split(",")
        binding = robots.binding(tokens)
        if binding not in bound:
            bound[binding] = rules = robots.rules_for(tokens)
            _ = rules.weight_bytes
        compiled[agent] = bound[binding]
    return compiled


CLOCK_SKEW_S: Final = 300.0
"""The seconds by which the clock of the writer may be ahead of the clock of the reader."""

_STRICTNESS: Final = {"redirects": 1, "deny": 2}  # the values of FetchOptions.private_addresses
_MIN_RETRY_S: Final = 1.0  # the wait is at least this long, even if the options permit less
_MAX_RETRY_S: Final = DAY_S  # the longest wait, so that a large Retry-After does not close a site for a year
_MAX_UNAVAILABLE_S: Final = DAY_S  # the lifetime of a 4xx, by default and at most, in all dialects (RFC 9309 2.4)
_JITTER: Final = 0.1
_MAX_TYPE: Final = 256  # a media type is cut to this many characters
_MAX_GAP_S: Final = 2 * DAY_S
_TICK_S: Final = 0.001  # an answer is valid for at least this time, so that the waiting callers can use it

# Measured with tracemalloc in CPython 3.11: a copy with its source and its permission in its dicts, an answer, and a
# trouble; all without their own strings.
_COPY_BYTES: Final = 920
_ANSWER_BYTES: Final = 150
_TROUBLE_BYTES: Final = 200
_STR_BYTES: Final = 49


# No code changes a DefiniteAnswer, a Trouble or a Moment. The classes are not frozen, because each fetch makes an
# instance, and a frozen instance takes twice the time to make.
@dataclass(slots=True)
class DefiniteAnswer:
    """The last definite answer.

    Attributes:
        result: SUCCESSFUL, UNAVAILABLE or FORBIDDEN.
        status: the HTTP status; after too many redirects, the status of the last redirect.
        final_url: the URL of the answer, after redirects.
        etag: the ETag header, or empty.
        last_modified: the Last-Modified header, or empty.
        confirmed_wall: when the answer came, or a 304 last confirmed it.
        lifetime_s: how long after ``confirmed_wall`` the answer is fresh, in seconds.
        fault: the fault that became this answer, in words; else empty.
        user_agent: the User-Agent of the request, if the answer varies by it; else empty.
        cut_bytes: the limit at which the body was cut; None if the body is complete.
        private_addresses: ``FetchOptions.private_addresses`` of the fetcher; empty if the fetcher does not report it.
        faults_read: ``AccessPolicy.faults_read``, if a fault became this answer; else empty.
        content_type: the Content-Type header; empty unless SUCCESSFUL.
    """

    result: AccessResult
    status: int | None
    final_url: str
    etag: str
    last_modified: str
    confirmed_wall: float
    lifetime_s: float
    fault: str = ""

    user_agent: str = ""
    cut_bytes: int | None = None
    private_addresses: str = ""
    faults_read: str = ""
    content_type: str = ""

    @property
    def fresh_until_wall(self) -> float:
        """The end of the answer's freshness."""
        return self.confirmed_wall + self.lifetime_s


@dataclass(slots=True)
class Trouble:
    """The consecutive failures since the last definite answer.

    Attributes:
        result: UNREACHABLE, TOO_MANY_REQUESTS, or UNAVAILABLE while an older file is used in its place.
        status: the HTTP status; None without a response.
        final_url: the URL that failed.
        fault: the failure, as a phrase.
        since_wall: when the first of the consecutive failures happened, plus the time for which the host was closed.
        last_wall: when the last of these failures happened.
        failures: the number of consecutive failures, from 1.
        retry_wall: when to fetch again.
    """

    result: AccessResult
    status: int | None
    final_url: str
    fault: str
    since_wall: float
    last_wall: float
    failures: int
    retry_wall: float


@dataclass(slots=True)
class Moment:
    """Both clocks, read together.

    Attributes:
        run: the run of the monotonic clock: only readings of the same run can be compared.
        wall: the Unix time.
        mono: seconds since an arbitrary moment.
    """

    run: str
    wall: float
    mono: float


def is_before(moment: Moment | None, other: Moment | None) -> bool:
    """Return whether ``moment`` was before ``other``; None is before any moment.

    The moments of two runs are compared by the wall clock.
    """
    if moment is None or other is None:
        return other is not None
    return moment.mono < other.mono if moment.run == other.run else moment.wall < other.wall


class Record(NamedTuple):
    """The facts of a Copy, as a store keeps them.

    Attributes:
        answer: the last definite answer.
        trouble: the failures since then, or None.
        moment: both clocks at a moment when the wall times of ``answer`` and ``trouble`` were right.
        body: the file of a SUCCESSFUL answer; otherwise empty.
    """

    answer: DefiniteAnswer | None
    trouble: Trouble | None
    moment: Moment | None = None
    body: bytes = b""


class Kept:
    """What a gate keeps with a copy; it goes with its copy."""

    __slots__ = ()


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Copy:
    """What is known of a file: the last answer, the failures since then, what both mean, and the compiled rules.

    A copy whose facts were not judged disallows everything, and is valid for no time. Once a copy is kept, only
    ``used`` and ``permission`` change, and, if the wall clock was set back, the times by that clock (``set_back``).

    A deadline is over as soon as one of the clocks has reached it. A wall clock may be set back, and a monotonic clock
    may stop while the machine sleeps. Only the wait for the next attempt uses the monotonic clock alone, so that a wall
    clock that jumps ahead does not cause an early fetch.

    Attributes:
        file: the rules of the file of ``answer``, by agent, also while it does not serve.
        rules: the rules that count, by agent; empty unless ``result`` is SUCCESSFUL.
        answer, trouble, moment: see Record.
        body: the file, if the copy may have to be read again, by another agent or after the next 304; else None.
        known: the moment of the record in the store; older records of the store no longer count.
        result: what the facts mean.
        serves: whether they mean ``answer``, and not ``trouble``.
        not_before: see Source.
        confirmed_mono: when the answer was fetched or last confirmed, or the last failure happened.
        confirmed_wall: the same moment, on the wall clock.
        refresh_mono: from this moment on, a lookup starts a refresh; at the latest ``deadline_mono``.
        refresh_wall: the same moment, on the wall clock.
        deadline_mono: when the copy stops being valid.
        deadline_wall: the same moment, on the wall clock; infinite for a copy that closes its site.
        used: second-chance bit of the eviction, set on every hit.
        permission: what the agent that asked last may do; None before the first question, and after the wall clock was
            set back. The gate makes it.
    """

    origin: Origin
    path: str
    file: FileRules
    rules: FileRules
    answer: DefiniteAnswer | None = None
    trouble: Trouble | None = None
    moment: Moment | None = None
    body: bytes | None = None
    known: Moment | None = None
    result: AccessResult = AccessResult.UNREACHABLE
    serves: bool = False
    not_before: float | None = None
    confirmed_mono: float = -inf
    confirmed_wall: float = -inf
    refresh_mono: float = -inf
    refresh_wall: float = -inf
    deadline_mono: float = -inf
    deadline_wall: float = -inf
    used: bool = False
    permission: Kept | None = None
    _source: Source | None = None

    @classmethod
    def of_record(cls, origin: Origin, path: str, record: Record) -> Copy:
        """Return a copy of the facts of a record, which are not judged yet."""
        answer, trouble, moment, body = record
        is_file = answer is not None and answer.result is AccessResult.SUCCESSFUL
        return cls(origin, path, NO_RULES, NO_RULES, answer, trouble, moment, body if is_file else None, moment)

    def changed(self, answer: DefiniteAnswer | None, trouble: Trouble | None, moment: Moment | None) -> Copy:
        """Return a copy of the same file with other facts, which are not judged yet."""
        body, file = (None, NO_RULES) if answer is None else (self.body, self.file)
        return Copy(self.origin, self.path, file, NO_RULES, answer, trouble, moment, body, self.known)

    @property
    def record(self) -> Record:
        """The facts for a store; without the answer, if its file is not in memory."""
        answer, body = self.answer, self.body
        if body is None and answer is not None and answer.result is AccessResult.SUCCESSFUL:
            answer = None
        return Record(answer, self.trouble, self.moment, body or b"")

    @property
    def validators(self) -> Validators | None:
        """The validators of the answer for a conditional request, or None."""
        answer = self.answer
        if answer is None or answer.result is not AccessResult.SUCCESSFUL or not (answer.etag or answer.last_modified):
            return None
        return Validators(answer.final_url, answer.etag, answer.last_modified)

    @property
    def source(self) -> Source:
        """The copy as users see it; made when it is asked for. Its times follow a wall clock that was set back."""
        if self._source is not None:
            return self._source
        answer, trouble, url = self.answer, self.trouble, self.origin.text + self.path
        result, not_before, confirmed_wall = self.result, self.not_before, self.confirmed_wall
        if self.serves and answer is not None:
            final_url = answer.final_url
            url = final_url if final_url == url else url  # most copies then have one string for both
            until_wall, fault = self.deadline_wall, answer.fault
            if trouble is not None:
                until_wall = confirmed_wall + answer.lifetime_s
                fault = trouble.fault
            facts = answer.status, final_url, confirmed_wall, until_wall, fault, not_before
            self._source = Source(url, result, *facts, not_before is not None and _is_of_host(trouble, url))
        elif trouble is not None and not_before is not None:
            # ``set_back`` has moved ``confirmed_wall``, which was ``last_wall``, but not the trouble.
            since_wall = trouble.since_wall - (trouble.last_wall - confirmed_wall)
            facts = trouble.status, trouble.final_url, confirmed_wall, not_before, trouble.fault, not_before
            self._source = Source(url, result, *facts, _is_of_host(trouble, url), since_wall)
        else:
            self._source = Source(url, result, None, url, confirmed_wall, self.deadline_wall)
        return self._source

    @property
    def own_bytes(self) -> int:
        """About how much memory the copy takes, without the rules that it shares with other copies."""
        answer, trouble = self.answer, self.trouble
        size = _COPY_BYTES + len(self.origin.text) + len(self.body or b"")
        if answer is not None:
            texts = answer.etag, answer.last_modified, answer.content_type, answer.fault
            size += _ANSWER_BYTES + sum(map(len, texts))
            if answer.final_url != self.origin.text + self.path:
                size += _STR_BYTES + len(answer.final_url)
        if trouble is not None:
            size += _TROUBLE_BYTES + len(trouble.fault) + len(trouble.final_url)
        return size

    def holds(self, now_mono: float, now_wall: float) -> bool:
        """Return whether the copy is still valid."""
        return now_mono < self.deadline_mono and now_wall < self.deadline_wall

    def is_due(self, now_mono: float, now_wall: float) -> bool:
        """Return whether the file is to be fetched again."""
        return now_mono >= self.refresh_mono or now_wall >= self.refresh_wall

    def due_in_s(self, now_mono: float, now_wall: float) -> float:
        """Return in how many seconds the file is to be fetched again; 0 if the fetch is due."""
        return max(0.0, min(self.refresh_mono - now_mono, self.refresh_wall - now_wall))

    def age_s(self, now_mono: float, now_wall: float) -> float:
        """Return the seconds since the answer was fetched or last confirmed."""
        return max(now_mono - self.confirmed_mono, now_wall - self.confirmed_wall)

    def set_back(self, now_mono: float, now_wall: float) -> None:
        """If the wall clock was set back, move the wall times of the copy back by the same time."""
        by_s = (now_mono - self.confirmed_mono) - (now_wall - self.confirmed_wall)
        if by_s < AGREE_S:
            return
        self.confirmed_wall -= by_s
        self.refresh_wall -= by_s
        self.deadline_wall -= by_s
        if self.not_before is not None:
            self.not_before -= by_s
        self._source = self.permission = None

    def answers(self, agent: str) -> bool:
        """Return whether the copy has an answer for ``agent``; an empty name stands for the file itself."""
        return agent in self.rules or self.result is not AccessResult.SUCCESSFUL or not agent

    def __repr__(self) -> str:
        return f"<Copy of {self.origin.text}{self.path}: {self.result}>"


def advance(copy: Copy, result: FetchResult, now: Moment, policy: AccessPolicy, jitter: float) -> Copy:
    """Return the copy after an answer or a fault.

    Args:
        copy: what was known before, with times that are corrected for ``now``.
        result: the answer or fault.
        now: both clocks.
        policy: how answers are read.
        jitter: 0 to 1, drawn by the caller.
    """
    answer, trouble, meaning = copy.answer, None, policy.meaning_of(result)
    if meaning is None:
        validators = copy.validators
        confirms = answer is not None and validators is not None and not names_another(result, validators)
        if answer is not None and confirms and isinstance(result, FetchResponse):
            answer = _confirmed(answer, result, now.wall, policy)
        else:
            meaning = AccessResult.UNREACHABLE
    if meaning is not None:
        if answer is not None or copy.trouble is not None:
            copy = believed(copy, now.wall)
            answer = copy.answer
        # Only KOSTER_2019 (draft-koster-rep-00 2.3.1.3): a file counts for a day although robots.txt is unavailable.
        counts = (
            answer is not None
            and answer.result is AccessResult.SUCCESSFUL
            and now.wall < answer.confirmed_wall + policy.outcomes.unavailable_copy_s
        )
        if meaning in CLOSED or (meaning is AccessResult.UNAVAILABLE and counts):
            trouble = _trouble(meaning, result, copy.trouble, now.wall, policy, jitter)
        else:
            answer = _settled(result, meaning, now.wall, policy)
    body, file = None, NO_RULES
    if meaning is None or trouble is not None:  # the answer was confirmed or kept, and its file with it
        body, file = copy.body, copy.file
    elif isinstance(result, FetchResponse) and meaning is AccessResult.SUCCESSFUL:
        body = result.body
    made = Copy(copy.origin, copy.path, file, NO_RULES, answer, trouble, now, body, now)
    if not _judge(made, now, policy):
        raise AssertionError(f"{made.record} means nothing")  # each fetch has a meaning for some time
    return made


def judged(copy: Copy, now: Moment, policy: AccessPolicy) -> Copy | None:
    """Return a copy with what its facts mean at ``now``; None if the file must be fetched."""
    believable = believed(copy, now.wall)
    # A new copy even of the same facts: ``copy`` may be in use, and keeps its meaning.
    copy = believable.changed(believable.answer, believable.trouble, believable.moment)
    return copy if _judge(copy, now, policy) else None


def _judge(copy: Copy, now: Moment, policy: AccessPolicy) -> bool:
    """Set what the facts of a new copy mean at ``now``; return False if they mean nothing."""
    answer, trouble, now_wall = copy.answer, copy.trouble, now.wall
    closed_until_wall = -inf if trouble is None else _closed_until_wall(trouble, policy)
    until_wall = -inf
    if answer is not None and now_wall >= closed_until_wall:
        until_wall = answer.confirmed_wall + answer.lifetime_s
        if trouble is not None:
            until_wall = _serves_until_wall(answer, trouble, policy)
    if answer is not None and now_wall < until_wall:
        copy.serves, copy.result, confirmed_wall = True, answer.result, answer.confirmed_wall
        refresh_wall = confirmed_wall + policy.options.refresh_after * answer.lifetime_s
        if trouble is not None:
            refresh_wall = trouble.retry_wall
            if trouble.result is AccessResult.TOO_MANY_REQUESTS and now_wall < refresh_wall:
                copy.not_before = refresh_wall
    # By the monotonic clock the wait may be over already, although the wall clock is just behind ``retry_wall``.
    elif trouble is not None and now_wall < trouble.retry_wall - AGREE_S:
        until_wall = trouble.retry_wall
        if now_wall < closed_until_wall:
            until_wall = min(until_wall, closed_until_wall)
        copy.result, confirmed_wall = _without_answer(trouble, answer, now_wall, policy), trouble.last_wall
        copy.not_before = refresh_wall = until_wall
    else:
        return False
    copy.confirmed_wall = confirmed_wall
    copy.confirmed_mono = now.mono - (now_wall - confirmed_wall)
    copy.deadline_mono = now.mono + (until_wall - now_wall)
    # Only the monotonic clock ends a wait: a wall clock that jumps ahead must not cause an early fetch. So a copy that
    # closes its site has no deadline by the wall clock, and the next fetch after a failure is not due by it.
    copy.deadline_wall = inf if copy.result in CLOSED else until_wall
    copy.refresh_mono = min(now.mono + (refresh_wall - now_wall), copy.deadline_mono)
    copy.refresh_wall = copy.deadline_wall if trouble is not None else min(refresh_wall, copy.deadline_wall)
    return True


def was_open(copy: Copy, now_wall: float, policy: AccessPolicy) -> bool:
    """Return whether a copy permitted requests for pages until its answer expired.

    The next fetch does not open such a site anew, however old the answer is: it may expire while a page waits for a
    Crawl-delay of a day. After a long idle time, a fetch restarts the interval anyway (``Hosts.fetched``).
    """
    answer, trouble = copy.answer, copy.trouble
    if answer is None or answer.result is AccessResult.FORBIDDEN:
        return False
    return trouble is None or (
        _closed_until_wall(trouble, policy) <= now_wall < _serves_until_wall(answer, trouble, policy)
    )


def shared_lifetime_s(result: FetchResult, now_wall: float, policy: AccessPolicy) -> float:
    """Return how long other origins may use the answer of a redirect's target, in seconds; 0 if they may not.

    Each origin keeps its copy for at least ``min_lifetime_s``, and no copy may become older than the policy permits.
    """
    if isinstance(result, FetchFault):
        redirects = result.kind is FaultKind.REDIRECT_LIMIT and bool(result.location)
        return policy.options.min_lifetime_s if redirects else 0.0
    meaning = policy.meaning_of(result)
    if meaning in CLOSED:
        return 0.0
    known = meaning or AccessResult.SUCCESSFUL  # a 304 confirms a file
    longest_s = _longest_s(known, policy) - policy.options.min_lifetime_s
    return min(_lifetime_s(result, known, now_wall, policy), longest_s)


def _settled(result: FetchResult, meaning: AccessResult, now_wall: float, policy: AccessPolicy) -> DefiniteAnswer:
    if isinstance(result, FetchFault):  # too many redirects, or another fault that the policy reads as an answer
        return DefiniteAnswer(
            result=meaning,
            status=result.status,
            final_url=result.final_url,
            etag="",
            last_modified="",
            confirmed_wall=now_wall,
            lifetime_s=_MAX_UNAVAILABLE_S,
            fault=fault_in_words(result),
            private_addresses=policy.private_addresses,
            faults_read=policy.faults_read,
        )
    headers, successful = result.headers, meaning is AccessResult.SUCCESSFUL
    confirmed_wall = now_wall - result.age_s  # another origin that redirects here may have fetched it before
    return DefiniteAnswer(
        result=meaning,
        status=result.status,
        final_url=result.final_url,
        etag=_validator(result, "etag") if successful and "etag" in headers else "",
        last_modified=_validator(result, "last-modified") if successful and "last-modified" in headers else "",
        confirmed_wall=confirmed_wall,
        lifetime_s=_lifetime_s(result, meaning, confirmed_wall, policy),
        user_agent=policy.user_agent if "vary" in headers and varies_by(headers, "user-agent") else "",
        content_type=headers.get("content-type", "")[:_MAX_TYPE] if successful else "",
        # A fetcher of the user may not tell its limit (0).
        cut_bytes=(policy.max_body_bytes or len(result.body)) if result.truncated else None,
        private_addresses=policy.private_addresses,
    )


def _confirmed(
    answer: DefiniteAnswer, response: FetchResponse, now_wall: float, policy: AccessPolicy
) -> DefiniteAnswer:
    """Return the answer after a 304. RFC 9111 4.3.4: headers of the 304 replace the same headers of the answer."""
    confirmed_wall = now_wall - response.age_s
    says_how_long = "cache-control" in response.headers or "expires" in response.headers
    return replace(
        answer,
        etag=_validator(response, "etag") or answer.etag,  # the same tag, or its weak or strong form
        last_modified=_validator(response, "last-modified") or answer.last_modified,
        confirmed_wall=confirmed_wall,
        lifetime_s=_lifetime_s(response, answer.result, confirmed_wall, policy) if says_how_long else answer.lifetime_s,
        user_agent=policy.user_agent if varies_by(response.headers, "user-agent") else answer.user_agent,
        private_addresses=policy.private_addresses,
    )


def _validator(response: FetchResponse, name: str) -> str:
    """Return a header if a client can send it back unchanged; otherwise an empty string."""
    value = response.headers.get(name, "")
    return value if value.isascii() and value.isprintable() else ""


def fault_in_words(result: FetchResult) -> str:
    """Return the failure of an answer or a fault as a phrase."""
    if isinstance(result, FetchResponse):
        challenge = challenge_of(result.headers)
        return f"the server answered with status {result.status}{challenge and f', {challenge}'}"
    return result.detail if result.kind is FaultKind.REDIRECT_LIMIT else f"{result.kind}: {result.detail}"


def is_fault_of_kind(failure: Source | Trouble, kind: FaultKind) -> bool:
    """Return whether robots.txt is unreachable because of a fault of ``kind``; reads the text of ``fault_in_words``."""
    return failure.result is AccessResult.UNREACHABLE and failure.fault.startswith(f"{kind}: ")


def _trouble(
    meaning: AccessResult,
    result: FetchResult,
    before: Trouble | None,
    now_wall: float,
    policy: AccessPolicy,
    jitter: float,
) -> Trouble:
    if before is not None and now_wall - before.last_wall > _MAX_GAP_S:
        before = None  # after days without a request, the old failures no longer count
    if isinstance(result, FetchFault):
        asked_s = result.retry_after_s
    else:  # the larger one: the file cannot be fetched again before its host opens
        asked_s = max(retry_after_s(result.headers, now_wall) or 0.0, result.closed_s)
    of_closed_host = isinstance(result, FetchFault) and result.kind is FaultKind.HOST_CLOSED
    if of_closed_host and before is not None and before.result is AccessResult.UNREACHABLE:
        meaning = before.result  # nothing was asked: a site that was unreachable is not known to answer
    # A closed host got no request, so the failure does not count. The next request follows when the host opens, and not
    # later: in report mode, pages start then as well.
    opens = of_closed_host and asked_s is not None
    failures = 1 if before is None else before.failures + (not opens)
    # A host that answers 429 is not unreachable: the two states count their days separately. The time for which the
    # host is closed does not count, because it says nothing about robots.txt.
    since_wall = now_wall
    if before is not None and before.result is meaning:
        was_closed = is_fault_of_kind(before, FaultKind.HOST_CLOSED)
        since_wall = before.since_wall + (max(0.0, now_wall - before.last_wall) if was_closed else 0.0)
    wait_s = max(asked_s or 0.0, 2.0 * AGREE_S)  # a failure holds for longer than the clocks may differ by
    if not opens:
        # The exponent is bounded, so that a year of failures does not overflow.
        backoff_s = min(policy.options.retry_min_s * 2.0 ** min(failures - 1, 32), policy.options.retry_max_s)
        backoff_s = min(backoff_s * (1.0 + _JITTER * jitter), policy.options.retry_max_s)
        wait_s = max(wait_s, backoff_s, _MIN_RETRY_S)
    retry_wall = now_wall + min(wait_s, _MAX_RETRY_S)
    fault = fault_in_words(result)
    return Trouble(meaning, result.status, result.final_url, fault, since_wall, now_wall, failures, retry_wall)


def _is_of_host(trouble: Trouble | None, robots_url: str) -> bool:
    """Return whether the trouble is a 429 of the host itself, not of a host to which robots.txt redirects."""
    if trouble is None or trouble.result is not AccessResult.TOO_MANY_REQUESTS:
        return False
    try:
        return Origin.of(trouble.final_url).pacing_host == Origin.of(robots_url).pacing_host
    except InvalidURL:  # another program may have written the record
        return True


def _closed_until_wall(trouble: Trouble, policy: AccessPolicy) -> float:
    """Return until when the file has been unreachable for less than ``closed_s``; until then no answer is used."""
    if trouble.result is not AccessResult.UNREACHABLE:
        return -inf
    until_wall = trouble.since_wall + policy.outcomes.closed_s
    if is_fault_of_kind(trouble, FaultKind.HOST_CLOSED):  # the failures have ended with the last one, see ``_trouble``
        return inf if trouble.last_wall < until_wall else -inf
    return until_wall


def _without_answer(
    trouble: Trouble, answer: DefiniteAnswer | None, now_wall: float, policy: AccessPolicy
) -> AccessResult:
    """Return the meaning of trouble without a usable answer."""
    if trouble.result is not AccessResult.UNREACHABLE or now_wall < _closed_until_wall(trouble, policy):
        return trouble.result
    outcomes = policy.outcomes
    if now_wall >= trouble.since_wall + outcomes.after_s:
        # RFC 9309 2.3.1.4: a crawler MAY then treat robots.txt as unavailable. This requires an answer, which shows
        # that the host is up. Refusals of pages still close the host.
        allows = outcomes.after_allows and trouble.status is not None
    else:
        allows = outcomes.opens_without_copy and (answer is None or answer.result is not AccessResult.SUCCESSFUL)
    return AccessResult.UNAVAILABLE if allows else AccessResult.UNREACHABLE


def _serves_until_wall(answer: DefiniteAnswer, trouble: Trouble, policy: AccessPolicy) -> float:
    """Return until when an answer is used in spite of trouble."""
    if trouble.result is AccessResult.TOO_MANY_REQUESTS:
        return answer.fresh_until_wall
    if answer.result is not AccessResult.SUCCESSFUL:
        # In the past: while robots.txt is unreachable, an answer without a file does not count, even if it is fresh.
        return answer.confirmed_wall
    if trouble.result is AccessResult.UNAVAILABLE:
        return answer.confirmed_wall + policy.outcomes.unavailable_copy_s
    # RFC 9309 2.4: a copy may be used beyond its lifetime while robots.txt is unreachable.
    outcomes = policy.outcomes
    from_wall = trouble.since_wall + outcomes.closed_s if outcomes.stale_from_failure else answer.confirmed_wall
    return max(answer.fresh_until_wall, from_wall + outcomes.stale_s)


def _lifetime_s(response: FetchResponse, result: AccessResult, received_wall: float, policy: AccessPolicy) -> float:
    """Return the freshness lifetime, from ``received_wall``; at least ``min_lifetime_s`` of it are left now."""
    most_s = _longest_s(result, policy)
    asked_s = freshness_lifetime_s(response.headers, received_wall)
    if asked_s is None:
        asked_s = policy.outcomes.default_lifetime_s if result is AccessResult.SUCCESSFUL else most_s
    return min(max(asked_s, response.age_s + policy.options.min_lifetime_s, _TICK_S), most_s)


def _longest_s(result: AccessResult, policy: AccessPolicy) -> float:
    return policy.outcomes.max_lifetime_s if result is AccessResult.SUCCESSFUL else _MAX_UNAVAILABLE_S


# The facts of another time, or of another process.


def _is_permitted(answer: DefiniteAnswer, policy: AccessPolicy) -> bool:
    """Return whether an answer, perhaps of another process, could have been fetched under this policy."""
    return (
        answer.user_agent in ("", policy.user_agent)
        and (answer.cut_bytes is None or answer.cut_bytes >= policy.max_body_bytes)
        and _STRICTNESS.get(answer.private_addresses, 0) >= _STRICTNESS.get(policy.private_addresses, 0)
    )


def as_read(copy: Copy, policy: AccessPolicy) -> Copy:
    """Return a stored copy as this policy reads it, without its answer if this policy would not have made it.

    Another or an earlier process may have stored the record with another dialect, User-Agent or limit. An answer from
    other settings is neither used nor revalidated. The failures since then still count.
    """
    answer = copy.answer
    if answer is None:
        return copy
    alike = (
        answer.faults_read == policy.faults_read
        if answer.fault
        else answer.result is policy.meaning_of(FetchResponse(answer.status or 0, answer.final_url))
    )
    if not alike or not _is_permitted(answer, policy):
        return copy.changed(None, copy.trouble, copy.moment)
    most_s = _longest_s(answer.result, policy)
    if answer.lifetime_s <= most_s:
        return copy
    return copy.changed(replace(answer, lifetime_s=most_s), copy.trouble, copy.moment)


def believed(copy: Copy, now_wall: float) -> Copy:
    """Return ``copy`` without the facts that are dated in the future.

    The writer's clock was ahead, so such facts would stay valid too long. Facts that are ahead by up to
    ``CLOCK_SKEW_S`` count as dated now. If the trouble is removed, the answer is removed, too, because the time at
    which its renewal failed is unknown.
    """
    answer, trouble = copy.answer, copy.trouble
    if (answer is None or answer.confirmed_wall <= now_wall) and (trouble is None or trouble.last_wall <= now_wall):
        return copy  # true for nearly all copies
    latest_wall = now_wall + CLOCK_SKEW_S
    if answer is not None and answer.confirmed_wall > now_wall:
        answer = replace(answer, confirmed_wall=now_wall) if answer.confirmed_wall <= latest_wall else None
    if trouble is not None and trouble.last_wall > now_wall:
        if trouble.last_wall > latest_wall:
            return copy.changed(None, None, copy.moment)
        trouble = _earlier(trouble, trouble.last_wall - now_wall)
    return copy.changed(answer, trouble, copy.moment)


class ClockCorrection:
    """Corrects the ages of copies with both clocks, including those of other processes.

    Args:
        started: both clocks at the start of this process.
    """

    __slots__ = ("_foremost",)

    def __init__(self, started: Moment) -> None:
        self._foremost = started  # when our wall clock was furthest ahead of the monotonic clock

    def corrected(self, copy: Copy, now: Moment) -> Copy:
        """Return ``copy`` with wall times corrected for ``now``; the clock that shows more elapsed time counts."""
        answer, moment = copy.answer, copy.moment
        if moment is not None and moment.run == now.run:
            return _corrected(copy, moment, now)
        # Our monotonic clock cannot measure the age of another process's record. But its answer may be older than it
        # seems: our wall clock may be behind the clock that dated the answer. The trouble stays unchanged, or the next
        # request would come too early.
        ahead = now
        if answer is not None and now.wall < answer.confirmed_wall <= now.wall + CLOCK_SKEW_S:
            ahead = replace(now, wall=answer.confirmed_wall)
        if ahead.wall - ahead.mono > self._foremost.wall - self._foremost.mono:
            self._foremost = ahead
        return copy.changed(_corrected(copy, self._foremost, now).answer, copy.trouble, now)


def _corrected(copy: Copy, then: Moment, now: Moment) -> Copy:
    """Return ``copy`` with wall times corrected for ``now``; its times were right at ``then``."""
    set_back_s = (now.mono - then.mono) - (now.wall - then.wall)
    if set_back_s < AGREE_S:
        return copy
    answer, trouble = copy.answer, copy.trouble
    if answer is not None:
        answer = replace(answer, confirmed_wall=answer.confirmed_wall - set_back_s)
    return copy.changed(answer, None if trouble is None else _earlier(trouble, set_back_s), now)


def _earlier(trouble: Trouble, by_s: float) -> Trouble:
    """Return ``trouble`` with all its times moved back by ``by_s`` seconds."""
    return replace(
        trouble,
        since_wall=trouble.since_wall - by_s,
        last_wall=trouble.last_wall - by_s,
        retry_wall=trouble.retry_wall - by_s,
    )
