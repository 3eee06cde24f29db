"""A slow, literal reading of WWW::RobotRules 6.02, ``parse``, ``is_me`` and ``allowed``.

It works on octets and shares no code with the library. Where the library is held to more than the module does, the
line says so.
"""

import re
from typing import Final

from tests.rules.properties.reference import Decision, remove_dot_segments, requested_path, without_mark

SITE: Final = b"http://example.com"
URIC: Final = b";/?:@&=+$,[]ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.!~*'()%"


def path_query(reference: bytes) -> bytes | None:
    """URI->new_abs($disallow, $robot_txt_uri)->path_query; None where it is to be ignored."""
    reference = reference.partition(b"#")[0]
    if re.match(rb"[A-Za-z][A-Za-z0-9.+-]*:", reference):
        if not reference.lower().startswith(SITE + b"/"):
            return None
        reference = reference[len(SITE) :]
    elif reference.startswith(b"//"):
        return None  # of another host
    path, question, query = reference.partition(b"?")
    if not path:
        path = b"/robots.txt"
    elif not path.startswith(b"/"):
        path = bytes(remove_dot_segments(list(b"/" + path)))
    return b"".join(bytes([octet]) if octet in URIC else b"%%%02X" % octet for octet in path + question + query)


def target(url: bytes) -> bytes:
    """URI->new($uri)->path_query of the URL that a client requests: it resolves dot segments, escaped or not."""
    path, question, query = url.partition(b"#")[0].partition(b"?")
    octets = requested_path(path) + question + query
    return b"".join(bytes([octet]) if octet in URIC else b"%%%02X" % octet for octet in octets)


def is_me(me: bytes, ua_line: bytes) -> bool:
    # The module takes an empty line to be everybody's; it is nobody's. And the version on the line does not count, nor
    # does what stands behind one word without a blank.
    name = re.sub(rb"[ \t]*/.*", b"", ua_line)
    if not re.search(rb"[ \t]", name):
        name = re.sub(rb"[;(,*].*", b"", name)
    return bool(name) and name.lower() in me.lower()


def decide(octets: bytes, name: bytes, url: bytes) -> Decision:  # noqa: C901, PLR0912 - as parse is
    words = re.match(rb"\s*(\S+)", name)
    me = re.sub(rb"/.*", b"", words[1] if words else name)
    ua: bytes | None = None
    mine = anon = seen_disallow = False
    me_disallowed: list[tuple[int, bytes]] = []
    anon_disallowed: list[tuple[int, bytes]] = []
    for number, text in enumerate(re.split(rb"[\n\r]", without_mark(octets).replace(b"\r\n", b"\n")), start=1):
        if re.match(rb"\s*#", text):
            continue
        line = re.sub(rb"\s*#.*", b"", text)
        if re.fullmatch(rb"\s*", line):
            if mine:
                break
            anon = seen_disallow = False
        elif (agent := re.match(rb"\s*User-Agent\s*:\s*(.*)", line, re.IGNORECASE)) is not None:
            ua = agent[1].rstrip()
            if seen_disallow:
                seen_disallow = False
                if mine:
                    break
                anon = False
            if mine:
                continue
            if ua == b"*":
                anon = True
            elif is_me(me, ua):
                mine = True
        elif (rule := re.match(rb"\s*Disallow\s*:\s*(.*)", line, re.IGNORECASE)) is not None:
            if ua is None:
                anon = True
            disallow = rule[1].rstrip()
            seen_disallow = True
            resolved = path_query(disallow) if disallow else b""
            if resolved is None:
                continue
            if mine:
                me_disallowed.append((number, resolved))
            elif anon:
                anon_disallowed.append((number, resolved))
    path = target(url)
    if path == b"/robots.txt":
        return Decision(allowed=True, exempt=True)
    for number, disallow in me_disallowed if mine else anon_disallowed:
        if not disallow:
            return Decision(allowed=True)
        if path.startswith(disallow):
            return Decision(allowed=False, octets=len(disallow), lines=frozenset({number}))
    return Decision(allowed=True)
