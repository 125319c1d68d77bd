"""Which key words occur in the classes, ids and roles of elements, as bits, by an Aho-Corasick automaton."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from etl.kernels.jit import inner

# Substrings, a bit for each line; "-" is any character that is not a letter.
KEY_WORDS: Final = tuple(
    """comment|komment|coment|disqus
reply|replies|discuss|antwort
footer|-foot-|fuss|pied-|rodape
nav
menu
sidebar|side-bar|sidecol|rightcol|right-col|leftcol|left-col|-aside|marginal|seitenl|barra|rail
share|sharing|teilen|partag|compart|bookmark
social|facebook|twitter|instagram|whatsapp
related|relacion|verwandt|similar|connexe|-lire|weiterf
recommend|empfehl|recom
promo|-cta-
advert|-ad-|-ads-|werbung|anzeige|publici|sponsor|outbrain|taboola|adsense
banner|cookie|consent|gdpr|dsgvo|popup|modal|overlay|lightbox
widget
crumb|brotkr
pagin|pager|-prev|-next
subscri|newsletter|abonn|signup|sign-up
login|register|anmeld|account
tags|-tag-|tagcl|schlagw|etiquet|keyword|categor|kategor
byline|author|autor|auteur|-bio-|avatar
date|-time|datum|fecha|publish
meta
caption|bildunter
credit|copyright|impress|legal|disclaim
header|masthead|kopf|topbar
search|suche|recherche|busca
hidden|-hide|invisible|sr-only|screen-reader|visually
teaser
more|mehr|-weiter
most|popular|trending|meist
rating|review|bewert
form
skip|print|druck
list|item
card|tile|grid
thumb|gallery|image|photo|foto|bild
video|player|media
toc-|-toc|inhaltsv
product|price|shop|cart
button|btn|link
recent|latest|neueste|archiv
article|artikel|articul
content|contenu|inhalt|conteudo|contenido
post|beitrag
entry
body
story
main|haupt
text
page|seite
blog
column
para|absatz
detail
single
wysiwyg|rich|prose|markdown|-rte
section
descri|summary|excerpt|lead|intro
title|headline|titel
news|nachricht
thread|topic|forum|message|signature
answer|question|vote
math|latex|-tex-|formula|equation""".split("\n")
)

COMMENT: Final = np.uint64(1)
"""The bit of elements with the readers' comments."""

FORMULA: Final = np.uint64(1 << len(KEY_WORDS) - 1)
"""The bit of images of formulas."""

_SYMBOLS: Final = 32
_LONGEST: Final = 256  # bytes of an attribute that are read
_SYMBOL: Final = np.zeros(256, np.uint8)  # a letter is 1 to 26, any other byte 0
for _letter in range(26):
    _SYMBOL[ord("a") + _letter] = _SYMBOL[ord("A") + _letter] = _letter + 1


def _make_automaton() -> tuple[NDArray[np.int16], NDArray[np.uint64]]:
    """Return the next state by state and symbol, and the bits of the words that end in a state."""
    follow, bits = [[0] * _SYMBOLS], [0]
    for bit, words in enumerate(KEY_WORDS):
        for word in words.split("|"):
            state = 0
            for symbol in _SYMBOL[list(word.encode())].tolist():
                if not follow[state][symbol]:
                    follow[state][symbol] = len(follow)
                    follow.append([0] * _SYMBOLS)
                    bits.append(0)
                state = follow[state][symbol]
            bits[state] |= 1 << bit
    # Breadth first: the state of the longest proper suffix is complete before it is used.
    suffix, queue = [0] * len(follow), [state for state in follow[0] if state]
    for state in queue:
        bits[state] |= bits[suffix[state]]
        for symbol in range(27):
            after = follow[suffix[state]][symbol]
            if follow[state][symbol]:
                suffix[follow[state][symbol]] = after
                queue.append(follow[state][symbol])
            else:
                follow[state][symbol] = after
    assert len(KEY_WORDS) <= 64
    return np.array(follow, np.int16).ravel(), np.array(bits, np.uint64)


_FOLLOW, _BITS = _make_automaton()


@inner
def find_key_words(data: NDArray[np.uint8], at: int, stop: int) -> int:
    """Return the bits of the key words in an attribute's value, of which the first 256 bytes are read."""
    state = np.int64(_FOLLOW[0])
    found: int = np.uint64(0)
    for k in range(at, min(stop, at + _LONGEST)):
        state = np.int64(_FOLLOW[state * _SYMBOLS + np.int64(_SYMBOL[data[k]])])
        found |= _BITS[state]
    found |= _BITS[np.int64(_FOLLOW[state * _SYMBOLS])]
    return found
