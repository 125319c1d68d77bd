"""Words that no rule of spaCy splits correctly, by language: contractions, abbreviations, emoticons.

The facts are from spaCy 3.8 (MIT licence; ``spacy.lang.tokenizer_exceptions``, also of English, German,
French and Russian). Specials with white space (``и т.д.``) are omitted, so their words are separate.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Final

LANGUAGES: Final = ("en", "de", "fr", "ru")
"""The languages with words of their own (ISO 639-1)."""

SPECIAL_BYTES: Final = 30
"""The size of the longest special."""

_EVERYWHERE: Final = (
    "C++ \\t \\n ' '' \\\") <space> — ä. ö. ü. "
    ":) :-) :)) :-)) :))) :-))) (: (-: =) (= :] :-] [: [-: [= =] :o) (o: :} :-} 8) 8-) (-8 ;) ;-) (; (-; "
    ":( :-( :(( :-(( :((( :-((( ): )-: =( >:( :') :'-) :'( :'-( :/ :-/ =/ =| :| :-| ]= =[ :1 :P :-P :p "
    ":-p :O :-O :o :-o :0 :-0 :() >:o :* :-* :3 :-3 =3 :> :-> :X :-X :x :-x :D :-D ;D ;-D =D xD XD xDD XDD "
    "8D 8-D ^_^ ^__^ ^___^ >.< >.> <.< ._. ;_; -_- -__- v.v V.V v_v V_V o_o O_o o_O O_O 0_o o_0 0_0 o.O "
    "O.o O.O o.o 0.0 o.0 0.o @_@ <3 <33 <333 </3 (^_^) (-_-) (._.) (>_<) (*_*) (¬_¬)"
).split()
_PARTS_EVERYWHERE: Final = "°+c+. °+f+. °+k+. °+C+. °+F+. °+K+.".split()

# A pronoun, question word or verb, also capitalized, and the endings that it takes, with or without their
# apostrophes.
_LIKE_WILL = "'ll 'll+'ve 'd 'd+'ve"
_CONTRACTIONS: Final = (
    ("i", "'m 'm+a"),
    ("i you he she it we they", _LIKE_WILL),
    ("i you we they", "'ve"),
    ("you we they", "'re"),
    ("he she it who what when where why how there that this", "'s"),
    ("who what when where why how there that this these those", _LIKE_WILL),
    ("who what when where why how there these those", "'re 've"),
    ("ca could do does did had may might must need ought sha should wo would", "n't n't+'ve"),
    ("could might must should would not", "'ve"),
    ("ai are is was were have has dare", "n't"),
)
_OTHER_WORDS: Final = frozenset("ill its hell shell shed were well whore".split())

_PARTS: Final = {
    "en": (
        "y'+all y+all how+'d+'y How+'d+'y can+not Can+not gon+na Gon+na got+ta Got+ta let+'s Let+'s "
        "c'm+on C'm+on"
    ),
    "de": "auf+'m du+'s er+'s hinter+'m ich+'s ihr+'s sie+'s unter+'m vor+'m wir+'s über+'m",
    "fr": "J.+-C. est+-ce Est+-ce qu'+est+-ce Qu'+est+-ce n'+est+-ce N'+est+-ce est+-il EST+-IL s'+est+-il "
    "S'+EST+-IL",
    "ru": "",
}
_WHOLE: Final = {
    "en": (
        "doin' goin' nothin' nuthin' ol' somethin' Doin' Goin' Nothin' Nuthin' Ol' Somethin' lovin' Lovin' "
        "havin' Havin' 'em 'll 'nuff 's 'S ‘s ‘S 're 'd 'cause 'Cause 'cos 'Cos 'coz 'Coz 'cuz 'Cuz 'bout "
        "and/or w/o ma'am Ma'am o'clock O'clock "
        "Mt. Ak. Ala. Apr. Ariz. Ark. Aug. Calif. Colo. Conn. Dec. Del. Feb. Fla. Ga. Ia. Id. Ill. Ind. "
        "Jan. Jul. Jun. Kan. Kans. Ky. La. Mar. Mass. Mich. Minn. Miss. N.C. N.D. N.H. N.J. N.M. N.Y. Neb. "
        "Nebr. Nev. Nov. Oct. Okla. Ore. Pa. S.C. Sep. Sept. Tenn. Va. Wash. Wis. a.m. p.m. Adm. Bros. co. "
        "Co. Corp. D.C. Dr. e.g. E.g. E.G. Gen. Gov. i.e. I.e. I.E. Inc. Jr. Ltd. Md. Messrs. Mo. Mont. Mr. "
        "Mrs. Ms. Ph.D. Prof. Rep. Rev. Sen. St. vs. v.s."
    ),
    "de": (
        "'S 's S' s' 'n 'ne 'nen 'nem `` d' L' CDU/CSU c/o Dipl.-Ing. "
        "Abb. Abk. Abs. Abt. Apr. Aug. Bd. Betr. Bf. Bhf. Biol. Bsp. Chr. Cie. Co. Dez. Di. Dipl. Do. Dr. "
        "Fa. Fam. Feb. Fr. Frl. Gebr. Hbf. Hg. Hr. Hrn. Hrsg. Inc. Ing. Jan. Jh. Jhd. Jr. Jul. Jun. Mi. "
        "Mio. Mo. Mr. Mrd. Mrz. MwSt. Mär. Nov. Nr. Okt. Orig. Pkt. Prof. Red. Sa. Sep. Sept. So. St. Std. "
        "Str. Tel. Tsd. Univ. Vol. abzgl. adv. al. allg. betr. biol. bspw. bzgl. bzw. ca. co. dgl. ebd. "
        "ehem. eigtl. engl. entspr. erm. etc. ev. evtl. frz. geb. gegr. gem. ggf. ggfs. ggü. hrsg. incl. "
        "inkl. insb. jr. jun. jur. kath. lat. lt. max. min. mind. mtl. nat. orig. pers. phil. rer. röm. "
        "sen. sog. std. stellv. tägl. usf. usw. uvm. vgl. vllt. vlt. vs. wiss. zzgl. österr. I. II. III. "
        "IV. A.C. A.D. A.G. B.A. B.Sc. D.C. G.m.b.H. K.O. L.A. M.A. M.Sc. N.Y. N.Y.C. O.K. P.S. R.I.P. "
        "U.S. U.S.A. U.S.S. a.D. a.M. a.Z. d.h. e.V. e.g. h.c. i.A. i.G. i.O. i.Tr. i.V. i.d.R. i.e. m.E. "
        "m.M. n.Chr. o.a. o.g. o.k. o.ä. p.a. p.s. q.e.d. s.o. u.U. u.a. u.s.w. u.v.m. v.Chr. v.a. "
        "v.l.n.r. z.B. z.Bsp. z.T. z.Z. z.Zt. z.b."
    ),
    "fr": (
        "av. janv. févr. avr. juill. sept. oct. nov. déc. apr. Dr. M. Mr. Mme. Mlle. n° d° St. Ste. cf. "
        "etc. MM. No. pp. Vol. après-midi au-delà au-dessus celle-ci celles-ci celui-ci ci-dessous "
        "elle-même en-dessous jusque-là lui-même peut-être quelques-uns rendez-vous aujourd'hui "
        "Aujourd'hui"
    ),
    "ru": (
        "ак. акад. д-р д.б.н. д.г.-м.н. д.г.н. д.и.н. д.иск. д.м.н. д.п.н. д.пед.н. д.полит.н. д.с.-х.н. "
        "д.социол.н. д.т.н. д.т.н д.ф.-м.н. д.ф.н. д.филос.н. д.фил.н. д.х.н. д.э.н. д.э.н д.ю.н. доц. "
        "и.о. к.б.н. к.воен.н. к.г.-м.н. к.г.н. к.геогр.н к.геогр.наук к.и.н. к.иск. к.м.н. к.п.н. "
        "к.псх.н. к.пед.н. канд.пед.наук к.полит.н. к.с.-х.н. к.социол.н. к.с.н. к.т.н. к.ф.-м.н. к.ф.н. "
        "к.фил.н. к.филол.н к.фарм.наук к.фарм.н. к.фарм.н к.филос.наук к.филос.н. к.филос.н к.х.н. к.х.н "
        "к.э.н. к.э.н к.ю.н. к.ю.н к.ист.н. к.соц.наук к.соц.н. к.соц.н в.н.с. м.н.с. проф. чл.-к. "
        "чл.-корр. чл.-кор. дир. зав.кафедрой асп. к.м.с. т.д. т.п. т.е. т.к. т.н. г-н г-да г-жа тов. наст. "
        "г.г. гг. т.г. респ. обл. г.ф.з. а.обл. а.окр. м.р-н г.о. г.п. с.п. вн.р-н вн.тер.г. пос. р-н с/с "
        "г. п.г.т. пгт. р.п. рп. кп. гп. п. в-ки г-к з-ка п-к киш. м-ко д. с. сл. ст. ст-ца у. х. рзд. зим. "
        "б-г ж/р кв-л мкр. ост-в платф. п/р тер. ус. тер.ф.х. ю. ал. б-р взв. взд. дор. ззд. к-цо лн. "
        "мгстр. наб. пер-д пер. пл-ка пл. пр-д пр-к пр-ка пр-лок пр-кт проул. с-р с-к сзд. туп. ул. ш. "
        "влд. г-ж двлд. зд. з/у кв. ком. подв. кот. п-б к. оф. пав. помещ. раб.уч. скл. coop. стр. торг.зал "
        "а/п им. тыс.руб. тыс. руб. долл. прим. прим.ред. см. кв.м. б/у сокр. чел. б.п."
    ),
}
_RUSSIAN_DATES: Final = (
    "пн вт ср чт чтв пт сб сбт вс вскр воскр янв фев февр мар мрт апр июн июл авг сен сент окт октб ноя "
    "нояб нбр дек"
)


@cache
def specials(language: str) -> dict[str, tuple[str, ...]]:
    """Return the words that no rule splits correctly, with their parts.

    A language that is not in LANGUAGES has those that occur in every language, such as emoticons.

    >>> specials("en")["can't"], specials("en")["6pm"], specials("de")["z.B."], "im" in specials("de")
    (('ca', "n't"), ('6', 'pm'), ('z.B.',), False)
    """
    words = {"".join(parts): parts for parts in _listed(language)}
    if language in LANGUAGES:
        words |= {  # with a typographic apostrophe
            word.replace("'", "’"): tuple(part.replace("'", "’") for part in parts)
            for word, parts in words.items()
        }
    assert all(len(word.encode()) <= SPECIAL_BYTES for word in words)
    return words


def _listed(language: str) -> Iterator[tuple[str, ...]]:
    """Yield the parts of each special, with plain apostrophes."""
    for letter in "abcdefghijklmnopqrstuvwxyz":
        yield (f"{letter}.",)
    for whole in (*_EVERYWHERE, *_WHOLE.get(language, "").split()):
        yield (whole,)
    for joined in (*_PARTS_EVERYWHERE, *_PARTS.get(language, "").split()):
        yield tuple(joined.split("+"))
    if language == "en":
        yield from _english()
    elif language == "fr":
        for verb, pronoun in product(("a", "est", "semble", "indique", "moque", "passe"), _HE_SHE):
            yield (verb, "-t", pronoun)
            yield (verb.title(), "-t", pronoun)
    elif language == "ru":
        for name in _RUSSIAN_DATES.split():
            for form in (name, name.capitalize(), name.upper()):
                yield (f"{form}.",)


_HE_SHE: Final = ("-elle", "-il", "-on")


def _english() -> Iterator[tuple[str, ...]]:
    """Yield the parts of the contractions and of the hours."""
    for words, endings in _CONTRACTIONS:
        for word, ending in product(words.split(), endings.split()):
            for parts in (ending.split("+"), ending.replace("'", "").split("+")):
                if "".join((word, *parts)) not in _OTHER_WORDS:
                    yield (word, *parts)
                    yield (word.title(), *parts)
    for hour, half in product(range(1, 13), ("am", "a.m.", "pm", "p.m.")):
        yield (str(hour), half)
