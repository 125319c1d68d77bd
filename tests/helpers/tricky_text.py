"""Texts with characters at which kernels differ most often from Python."""

from hypothesis import strategies as st

# Characters to which several rules apply; ordinary text rarely has them.
TRICKY = (
    "ab1 9'\"’.,:;_-#éЖשא東のก한カタｶﾞ・½²"
    "\u0301\u05b8\u0e31\u00ad\u200b\u200c\u200d\u200e\u2060\ufe0f\ufeff"
    "❤😀👩🏽🇩🇪🇫…•\n\r\t\v\x1f\x85\xa0\u2028\u2029\u202f\u3000\x00\U000e0067"
)

texts = st.text(st.sampled_from(TRICKY), max_size=24) | st.text(max_size=40)

pieces = st.sampled_from(
    [
        "a ",
        "b ",
        "C ",
        "é-",
        "don't ",
        "DON’T ",
        "東",
        "\n",
        "\r\n",
        "\x85",
        "1,0 ",
        "😀 ",
        "Σ",
        "a\u0301 ",
    ]
)

documents = (
    st.lists(pieces, max_size=30).map("".join)
    | st.text(st.sampled_from(TRICKY), max_size=24)
    | st.text(max_size=24)
)
