"""The words of a page as a browser's parser finds them: lexbor's tree with the rules of the extractor."""

import re
from typing import Any

from etl.kernels.html.tags import IS_BLOCK, IS_RAW, IS_SKIPPED, TAGS

_BLOCKS = {name for name, is_block in zip(TAGS, IS_BLOCK, strict=True) if is_block} | {"br"}
_SKIPPED = {n for n, raw, skipped in zip(TAGS, IS_RAW, IS_SKIPPED, strict=True) if raw or skipped}
_WHOLE = ("html", "body", "head")
_HIDING = re.compile(r"display:none|visibility:hidden", re.IGNORECASE)
_WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """Return the words of a text."""
    return _WORD.findall(text.replace("\0", ""))


def words_in_tree(html: bytes) -> list[str]:
    """Return the words of a page that are shown, without what is never text, such as scripts."""
    from selectolax.lexbor import LexborHTMLParser

    parts: list[str] = []
    root = LexborHTMLParser(html).root
    stack: list[Any] = [] if root is None else [root]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            parts.append(node)
        elif node.tag == "-text":
            parts.append(node.text_content or "")
        else:
            ends = ["\n"] if node.tag in _BLOCKS else []
            parts += ends  # also a hidden block separates words
            if _is_left_out(node):
                continue
            children = [node.first_child]
            while children[-1] is not None:
                children.append(children[-1].next)
            stack += [*ends, *reversed(children[:-1])]
    return words_of("".join(parts))


def _is_left_out(node) -> bool:
    tag = node.tag
    if tag is None or tag in _SKIPPED:
        return True
    if tag.startswith("-"):
        return tag not in ("-undef", "-document")
    given = node.attributes or {}
    style = re.sub(r"\s", "", given.get("style") or "")
    hidden = "hidden" in given or (given.get("aria-hidden") or "").lower() == "true"
    return tag not in _WHOLE and (hidden or bool(_HIDING.search(style)))
