"""Line ends and control characters by ``str.splitlines`` and Unicode's categories."""

import unicodedata

from hypothesis import strategies as st

from tests.helpers.tricky_text import TRICKY

BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"

ODD = [
    *BREAKS,
    "\r\n",
    "\t",
    "\0",
    "\x7f",
    "\x80",
    "\x9f",
    "\ufeff",
    "\ufffa",
    "\u206f",
    "\u200d\u200c",
]

texts = (
    st.lists(
        st.sampled_from([*ODD, "a", "é", "東", "😀", " ", "\u2027", "\u2030", "\xa0"]), max_size=20
    ).map("".join)
    | st.text(st.sampled_from(TRICKY), max_size=30)
    | st.text(max_size=40)
)


def naive(text: str, line_ends: bool, controls: bool) -> tuple[str, int, int]:
    replaced = removed = 0
    if line_ends:
        lines = text.splitlines(keepends=True)
        bare = text.splitlines()
        ends = [line[len(rest) :] for line, rest in zip(lines, bare, strict=True)]
        replaced = sum(end not in ("", "\n") for end in ends)
        text = "".join(rest + ("\n" if end else "") for rest, end in zip(bare, ends, strict=True))
    if controls:
        kept = "".join(char for char in text if not is_control(char))
        text, removed = kept, len(text) - len(kept)
    return text, replaced, removed


def is_control(char: str) -> bool:
    if char in "\ufeff\ufff9\ufffa\ufffb" or 0x206A <= ord(char) <= 0x206F:
        return True
    return unicodedata.category(char) == "Cc" and char not in f"\t{BREAKS}"
