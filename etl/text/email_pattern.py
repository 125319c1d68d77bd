"""The pattern of e-mail addresses, in any script.

The local part of an address is the longest run of its characters before the "@". Where a script has no
spaces, a word before an address is not separated from it, so a local part in Latin letters begins after the
last letter of such a script, and one in such letters begins after the last punctuation mark.
"""

import re
from typing import Final

_MARK = rb"""(?: \xc3[\x97\xb7] | \xcd\xbe | \xce\x87 | \xd5[\x9a-\x9f] | \xd6[\x89\x8a\xbe]
    | \xd7[\x80\x83\xb3\xb4] | \xd8[\x8c\x9b\x9f] | \xdb\x94 | \xe0\xa5[\xa4\xa5] | \xe0\xb8\xbf
    | \xe0\xb9[\x8f\x9a\x9b] | \xe1\x81[\x8a\x8b] | \xe1\x8d[\xa0-\xa8] | \xe1\x9f[\x94-\x96]
    | \xe3\x83\xbb )"""  # punctuation in the ranges below
_SPACED = (
    rb"""(?: [A-Za-z0-9] | (?!%s) (?: [\xc3-\xdf][\x80-\xbf] | \xe0[\xa0-\xb7][\x80-\xbf]
    | \xe1 (?: \x82[\xa0-\xbf] | [\x83\x88-\x9d\xa0-\xbf][\x80-\xbf] ) ) )"""
    % _MARK
)
_UNSPACED = (
    rb"""(?: (?!%s) (?: \xe0[\xb8-\xbf][\x80-\xbf] | \xe1\x82[\x80-\x9f]
    | \xe1[\x80\x81\x84-\x87\x9e\x9f][\x80-\xbf] | \xe3\x80[\x85-\x87] | \xe3[\x81-\xbf][\x80-\xbf]
    | [\xe4-\xed][\x80-\xbf]{2} | \xef[\xa4-\xab][\x80-\xbf] | \xef\xbd[\xa6-\xbf]
    | \xef\xbe[\x80-\x9f] | \xf0[\xa0-\xb3][\x80-\xbf]{2} ) )"""
    % _MARK
)
"""The letters of ``pii_candidates.SPACED`` and ``UNSPACED`` in UTF-8; those in ASCII are spaced."""
_TOP_LEVEL: Final = "|".join(
    (
        "中国 中國 香港 한국 ລາວ 澳門 澳门 新加坡 ไทย 台灣 台湾 臺灣 セール 佛山 慈善 集团 "
        "在线 点看 คอม 八卦 公益 公司 香格里拉 网站 移动 我爱你 联通 时尚 微博 淡马锡 "
        "ファッション ストア アマゾン 삼성 商标 商店 商城 ポイント 新闻 家電 中文网 中信 "
        "娱乐 谷歌 電訊盈科 购物 クラウド 通販 网店 餐厅 网络 亚马逊 食品 飞利浦 手机 닷컴 "
        "政府 机构 组织机构 健康 招聘 大拿 みんな グーグル 世界 書籍 网址 닷넷 コム 天主教 "
        "游戏 企业 信息 嘉里大酒店 嘉里 广东 政务 日本 广告 测试 測試 テスト 테스트"
    ).split()
).encode()
"""Top-level domains in scripts without spaces: from the public suffix list, and names of examples.

Other letters after a dot may be words of the text.
"""
_COMMON = rb"(?: com | net | org | info | biz | edu | cn | hk | jp | kh | kr | la | mm | mo | sg | th | tw )"
_DOMAIN = rb"(?: %(letter)s (?: (?:%(letter)s|-)* %(letter)s )? \. )+"
_EMAIL: Final = re.compile(
    rb"""[.%%+'-]*
    (?P<email>
      (?: (?P<local> (?:%(spaced)s|_) (?:%(spaced)s|[._%%+'-])* (?<![.']) )
        | (?<!\\) " (?= [\w\x80-\xff] ) (?: [^"\\\x00-\x1f] | \\[^\x00-\x1f] ){1,64}
          (?<= [\w\x80-\xff] ) " )
      @ (?! \d (?:\.\d)? x\. )
      %(domain)s (?: (?: xn--[A-Za-z0-9-]{1,57}[A-Za-z0-9] | [A-Za-z]{2,63} ) (?!\w)
        | (?! [A-Za-z0-9] ) %(spaced)s{2,63} | %(top)s )
    | (?! [.%%+'-] ) (?: %(spaced)s | %(unspaced)s | [._%%+'-] )* %(unspaced)s
      @ %(domain)s (?: %(common)s (?![\w/]) | %(top)s )
    )"""
    % {
        b"spaced": _SPACED,
        b"unspaced": _UNSPACED,
        b"domain": _DOMAIN % {b"letter": rb"(?:%s|%s)" % (_SPACED, _UNSPACED)},
        b"common": _COMMON,
        b"top": rb"(?: %s )" % _TOP_LEVEL,
    },
    re.VERBOSE,
)
"""Local parts as in RFC 5322 and RFC 6531, without comments and rare symbols; domains of two or more labels.

A quoted local part begins and ends with a letter or digit, unlike code such as ``name + "@example.com"``.
``icon@2x.png`` does not match: it is an image name. After a local part in a script without spaces, the
top-level domain must be a known one: in Japanese, ``@name`` may follow a word.
"""


def match_email(text: memoryview, offset: int) -> tuple[int, int] | None:
    """Return the span of the address that begins at an offset, or after symbols there."""
    match = _EMAIL.match(text, offset)
    if match is None:
        return None
    start, end = match.span("email")
    before, following = bytes(text[max(start - 1, 0) : start]), bytes(text[end : end + 1])
    if match["local"] and following == b"'" != before:
        start += match["local"].rfind(b"'") + 1  # a quote, as in: N'joe@example.com'
    return start, end
