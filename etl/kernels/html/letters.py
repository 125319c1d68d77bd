"""The bytes that mark up a page, by name: numba computes ``ord`` at run time."""

from typing import Final

TAB: Final = 0x09
LF: Final = 0x0A
CR: Final = 0x0D
SPACE: Final = 0x20
BANG: Final = ord("!")
QUOTE: Final = ord('"')
HASH: Final = ord("#")
DOLLAR: Final = ord("$")
AND: Final = ord("&")
APOSTROPHE: Final = ord("'")
HYPHEN: Final = ord("-")
SLASH: Final = ord("/")
ZERO: Final = ord("0")
NINE: Final = ord("9")
SEMICOLON: Final = ord(";")
LESS: Final = ord("<")
EQUALS: Final = ord("=")
GREATER: Final = ord(">")
QUESTION: Final = ord("?")
OPENING: Final = ord("[")
BACKSLASH: Final = ord("\\")
CLOSING: Final = ord("]")
LOWER_A: Final = ord("a")
LOWER_F: Final = ord("f")
LOWER_X: Final = ord("x")
C2: Final = 0xC2
"""The first byte of U+00A0 in UTF-8, a no-break space."""
A0: Final = 0xA0
"""The second byte of it."""
COLON: Final = ord(":")
COMMA: Final = ord(",")
OBJECT: Final = ord("{")
END_OBJECT: Final = ord("}")
