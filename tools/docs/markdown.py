"""Read what the documentation's tools need from Markdown: code blocks, links and anchors."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
INLINE_LINK = re.compile(r"\]\(\s*<?(?P<target>[^()\s<>]+(?:\([^()\s]*\)[^()\s<>]*)?)>?[^()]*\)")
DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(?P<target>[^\s>]+)", re.MULTILINE)
ATTRIBUTE = re.compile(r"<[a-z][^>]*?\s(?:src|href|poster|srcset)=\"(?P<target>[^\"]+)\"", re.I)
HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(?P<text>.+?)[ \t]*#*$", re.MULTILINE)
HTML_ID = re.compile(r"<[a-z][^>]*?\s(?:id|name)=\"(?P<id>[^\"]+)\"", re.I)
EXTERNAL = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.I)


@dataclass(frozen=True)
class Block:
    """A fenced code block."""

    language: str
    """First word after the fence."""
    text: str
    """Lines between the fences, without their common indentation."""
    line: int
    """Line of the opening fence, from 1."""
    end: int
    """Line of the closing fence."""


@dataclass(frozen=True)
class Link:
    """The target of a link or a picture."""

    target: str
    """Path as it is written, without the anchor; empty for an anchor on the same page."""
    anchor: str
    """Part after `#`; empty if there is none."""
    start: int
    """Offset of the target in the text."""
    end: int
    """Offset of the first character after the target and its anchor."""


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced code blocks of a page, in order."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opening = FENCE.match(lines[number])
        number += 1
        if not opening:
            continue
        first, fence, indent = number, opening["fence"], len(opening["indent"])
        while number < len(lines) and not _closes(lines[number], fence):
            number += 1
        if number == len(lines):
            raise ValueError(f"line {first}: this code block has no end")
        body = [line[min(indent, len(line) - len(line.lstrip())) :] for line in lines[first:number]]
        language = opening["info"].split()[0] if opening["info"].split() else ""
        yield Block(language, "\n".join(body) + "\n", first, number + 1)
        number += 1


def _closes(line: str, fence: str) -> bool:
    text = line.strip()
    return len(text) >= len(fence) and set(text) == {fence[0]}


def without_code(text: str) -> str:
    """Return the text with comments and code replaced by spaces, at the same offsets."""
    lines = text.splitlines(keepends=True)
    for block in blocks(text):
        for number in range(block.line - 1, block.end):
            lines[number] = _blank(lines[number])
    text = "".join(lines)
    for pattern in (COMMENT, CODE_SPAN):
        text = pattern.sub(lambda match: _blank(match[0]), text)
    return text


def _blank(text: str) -> str:
    return "".join(character if character == "\n" else " " for character in text)


def links(text: str) -> list[Link]:
    """Return the links and pictures of a page that lead to files of the repository."""
    readable, found = without_code(text), []
    for pattern in (INLINE_LINK, DEFINITION, ATTRIBUTE):
        for match in pattern.finditer(readable):
            whole = match["target"]
            if not EXTERNAL.match(whole):
                target, _, anchor = whole.partition("#")
                found.append(Link(target, anchor, match.start("target"), match.end("target")))
    return sorted(found, key=lambda link: link.start)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page, as GitHub names them."""
    found: set[str] = set(HTML_ID.findall(text))
    bare = COMMENT.sub(lambda match: _blank(match[0]), text)
    lines = bare.splitlines(keepends=True)
    for block in blocks(bare):
        for number in range(block.line - 1, block.end):
            lines[number] = "\n"
    counts: dict[str, int] = {}
    for match in HEADING.finditer("".join(lines)):
        slug = heading_slug(match["text"])
        seen = counts.get(slug, 0)
        counts[slug] = seen + 1
        found.add(f"{slug}-{seen}" if seen else slug)
    return found


def heading_slug(heading: str) -> str:
    """Return the anchor of a heading: lower case, no punctuation, hyphens for spaces."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[*`]", "", text)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def resolve(page: Path, target: str, root: Path) -> Path:
    """Return the path, relative to `root`, that a link on `page` (relative, too) leads to.

    Raises:
        ValueError: If the link is absolute or leaves the repository.
    """
    if not target:
        return page
    if target.startswith("/"):
        raise ValueError(f"{page}: the link {target} is absolute; write a relative one")
    path = (root / page.parent / target).resolve()
    if not path.is_relative_to(root.resolve()):
        raise ValueError(f"{page}: the link {target} leaves the repository")
    return path.relative_to(root.resolve())
