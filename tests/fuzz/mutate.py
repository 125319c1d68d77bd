"""Mutated inputs: copies of valid ones with pieces replaced, inserted, cut, repeated or flipped."""

from collections.abc import Sequence

from hypothesis import strategies as st

INTERESTING = (
    b"\0", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xed\xa0\x80", b"\r\n", b"\n",
    b'"', b"\\", b"{", b"[", b"[" * 300, b"&a [*a]", b"*a", b"!!int", b"%", b"../", b"\xef\xbb\xbf", b"-1",
    b"9" * 30, b"9" * 5000, b"1e999", b"2026-13-45", b"null", b"\\ud800", b"${HOME}", b"?*[",
)  # fmt: skip

_edit = st.tuples(
    st.sampled_from(["put", "insert", "cut", "repeat", "flip"]),
    st.floats(0, 1, exclude_max=True),
    st.one_of(st.sampled_from(INTERESTING), st.binary(min_size=1, max_size=8)),
    st.integers(1, 40),
)


def apply(content: bytes, edits: Sequence[tuple[str, float, bytes, int]]) -> bytes:
    """The bytes after the edits, each at a fraction of their length."""
    for how, fraction, piece, length in edits:
        offset = int(fraction * len(content))
        match how:
            case "put":
                content = content[:offset] + piece + content[offset + len(piece) :]
            case "insert":
                content = content[:offset] + piece + content[offset:]
            case "cut":
                content = content[:offset] + content[offset + length :]
            case "repeat":
                content = (
                    content[:offset]
                    + content[offset : offset + length] * 3
                    + content[offset + length :]
                )
            case "flip" if content:
                content = (
                    content[:offset]
                    + bytes([content[offset] ^ (1 << length % 8)])
                    + content[offset + 1 :]
                )
    return content


def mutated(valid: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """A valid input with one to four edits."""
    edits = st.lists(_edit, min_size=1, max_size=4)
    return st.builds(apply, st.sampled_from(valid), edits)
