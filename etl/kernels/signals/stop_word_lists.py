"""The stop words of each language."""

import hashlib
import json
from functools import cache
from typing import Final

STOP_WORDS: Final = {
    # Rae et al. 2021, appendix A.1.1
    "en": "the be to of and that have with",
    # huggingface/fineweb-2, configs, commits 05e6729 and d331bee (my, km, tr: baedee4, their last
    # version): the most frequent words of each Wikipedia (Penedo et al. 2025, arXiv 2506.20920),
    # except its punctuation marks (، · ・) and words that end in one (l' d' s. г.), which are not words here.
    "ar": "في من على إلى عام أن مع أو هو عن التي كان بين ما كانت هي المتحدة بعد",
    "bg": "на и в е от за се с през да по",
    "cs": "v a se na je z s do",
    "da": "i og af en til er den at som på for med det blev var der fra de han et",
    "de": "der und die in von im den des mit das er dem als wurde für",
    "el": "του και το της η την από ο με τον να που των στην για στο σε είναι τη τα οι",
    "es": "de la en el y a que del los se por un con una las su",
    "fa": "در و به از که است این را با یک",
    "fi": "ja on oli hän vuonna myös joka se ei sen ovat sekä mutta että tai vuoden kanssa hänen "
    "jälkeen the",
    "fr": "de la le et à en des du les est un une il dans par au",
    "he": "של את על הוא עם בשנת גם היה היא לאחר לא ידי בין או כי",
    "hi": "के में है की और से का को एक हैं पर",
    "hu": "a az és is egy volt hogy nem meg de magyar első el között",
    "id": "dan yang di pada dari ini dengan adalah untuk dalam",
    "it": "di e il la in a del che è della un per nel con da i una",
    "ja": "の に を は た て が と で 年 し 月 れ さ",
    "km": "មាន បាន ដែល ជា និង នៅ របស់ ក្នុង ថា នេះ នៃ ហើយ ទៅ ដោយ",
    "ko": "의 다 이 는 에 을 한 년 하 은 를 했 고 에서 가 있 으로 인 월 로 되",
    "lo": "ແລະ ໃນ ຂອງ ເປັນ ທີ່ ໄດ້ ມີ",
    "my": "သည် များ ကို တွင် ဖြစ် ၏ သော ခဲ့ နှင့် ရှိ တို့ မှာ ဦး ၌ က မ မှ",
    "nl": "de van in het een en is op voor met door zijn werd hij uit",
    "no": "i og av som en er til på for ble med den det var han de å fra",
    "pl": "w i na z do się roku od a jest przez po jako oraz o został był nie",
    "pt": "de a e o em do da que um no uma com para na é foi",
    "ro": "de în a și din la o cu este un pe fost care al",
    "ru": "в и на с года по году из был к не от что за для его как а он также до после",
    "sv": "i och är av en som den med på till att för",
    "th": "ใน ที่ และ ของ เป็น มี การ ได้",
    "tr": "ve bir olarak bu ile için olan da de tarafından yılında sonra en daha ilk the",
    "uk": "у в на і з та до року за що",
    "vi": "là và của một được trong năm các có loài này đã người",
    "zh": "的 年 在 月 是 和 日 了 於 為 有 被 人 中 为 他 與 後 也 而 由",
}
"""Language (ISO 639-1) -> its stop words. The comparison is case-sensitive."""

ANYWHERE: Final = ("ja", "km", "ko", "lo", "my", "th", "zh")
"""The languages whose stop words may occur inside a run of letters."""


@cache
def identity() -> dict[str, str]:
    """Return the sha256 of the lists, which determine the counts."""
    text = json.dumps({"words": STOP_WORDS, "anywhere": ANYWHERE}, sort_keys=True)
    return {"stop_words": hashlib.sha256(text.encode()).hexdigest()}
