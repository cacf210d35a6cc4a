"""Name of an encoding -> whether its files can be cut at newlines; bytes -> what they may be."""

from __future__ import annotations

import codecs
from unicodedata import category

from lancetnic_dask.errors import SettingError, quoted

__all__ = ["checked_encoding", "encoding_advice", "is_cuttable", "likely_encodings"]

_SAMPLE_BYTES = 1 << 12
_MAX_LIKELY = 3
_GIVE_ENCODING = "Pass the encoding of the file, for example encoding='cp1251' or 'cp1252'"
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NO_TEXT = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"})

# charset-normalizer is made for whole documents. Of a sentence or a word, which is what there is
# when one cell is wrong, it is often mistaken, also if it is asked about the common encodings
# alone (3.5.3: right for 62 of 108 short texts, and for 4 of 13 in koi8-r; "хорошо" in cp1251 is
# big5, "£5" Japanese). So these are ranked by how usual their characters would be (96 of the 108),
# and it is asked for the rest.
_RUSSIAN = "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфъёіїє№«»—–…“”°"
_CHINESE = (
    "，的。不了是我很一有好人这在个没来买上就到还们大用也错要说时看可以都质量快服务货！、和去吃得多给"
    "价会他下后家对过中小东西子么那你真非常天收出能年里想开点样喜欢物流评名称分（）：；？“”"
)  # fmt: skip
_TAIWANESE = (
    "，的。不了是我很一有好人這在個沒來買上就到還們大用也錯要說時看可以都質量快服務貨！、和去吃得多給"
    "價會他下後家對過中小東西子麼那你真非常天收出能年裡想開點樣喜歡物流評名稱分品電影（）：；？「」"
)  # fmt: skip
_JAPANESE = (
    "のいしたてにとはをがるなでかっすもらりれまうくんさこ、。きあそどけめよつえせわおちほみやばろじだ"
    "アイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワンーッャュョ"
    "ガギグゲゴザジズゼゾダデドバビブベボパピプペポずごげぎびぶべぼへねぬひふむゆゃゅょぁ日本人年大東京良品"
    "「」・"
)  # fmt: skip
_KOREAN = (
    "이다고는가을에의요도하지은기로나서한어사리를것아해그보대시습니게자만있들으좋정수인제스라오전너무음"
    "일안여주상부배송빨영화"
)  # fmt: skip
_WESTERN = "éèàüöäñóíáçêß’“”–°£€…ôúâîûãõåøæëïìòù«»¿¡—‘œšžº·½"
# The more frequent a character the nearer to the start, and so with the encodings.
_USUAL = {
    "cp1251": _RUSSIAN,
    "cp1252": _WESTERN,
    "koi8-r": _RUSSIAN,
    "cp866": _RUSSIAN,
    "gb18030": _CHINESE,
    "cp932": _JAPANESE,
    "euc-jp": _JAPANESE,
    "euc-kr": _KOREAN,
    "big5": _TAIWANESE,
    "cp1253": "αοιετσνηυρπκμλίόςήέάωύγχδθφώβξζψ«»–’…€°",
    "cp1254": "ıüşçğö’“”–…€°",
    "cp1255": "יוהלאתרבשמנםחדעקפגטכסצזןךץףװ׳״–…",
    "iso8859-5": _RUSSIAN,
    "mac-cyrillic": _RUSSIAN,
    "cp1256": "ايلمنروتبدسعةهفقكحجأشصىطخضغذزثإءئظؤآ،؟",
    "cp1250": "áíéěčšžřýůąęłżśćńźóúťďňőűöüăășțâî„”–…€°",
}
_RARER = 0.03
# Of an encoding that only the detector knows: above those that hardly fit.
_DETECTED_SCORE = 0.3
_LATIN = frozenset({"cp1250", "cp1252", "cp1254"})
_MULTIBYTE = frozenset({"gb18030", "cp932", "euc-jp", "euc-kr", "big5"})
_DETECTED = ("cp1257", "cp1258", "cp874", "cp437", "cp850", "cp852")


def checked_encoding(encoding: object) -> str:
    """Return Python's name of a text encoding; UTF-8 with a byte order mark is UTF-8.

    Parameters
    ----------
    encoding : str
        What the user passed.

    Returns
    -------
    str
        The name, such as ``utf-8`` or ``cp1251``.

    Raises
    ------
    SettingError
        If Python knows no such encoding, or it is none of text.

    Examples
    --------
    >>> checked_encoding("UTF8"), checked_encoding("windows-1251")
    ('utf-8', 'cp1251')
    """
    try:
        name = codecs.lookup(encoding).name.replace("-sig", "")  # type: ignore[arg-type]
        is_text = isinstance("a".encode(name), bytes) and name not in _NO_TEXT
    except (LookupError, TypeError, ValueError):
        is_text, name = False, ""
    if not is_text:
        raise SettingError(
            f"encoding is {quoted(encoding)}.",
            None,
            "Pass a text encoding that Python knows, such as 'utf-8', 'cp1251' or 'latin-1'.",
        )
    return name


def is_cuttable(encoding: str) -> bool:
    """Tell whether a newline byte is a newline wherever it stands.

    Parameters
    ----------
    encoding : str
        As `checked_encoding` returns it.

    Returns
    -------
    bool
        True for UTF-8, and where each byte is a character by itself and an ASCII byte that of
        ASCII. Files in other encodings are transcoded before they are cut.

    Examples
    --------
    >>> [name for name in ("utf-8", "koi8-r", "utf-16", "gb18030") if is_cuttable(name)]
    ['utf-8', 'koi8-r']
    """
    if encoding == "utf-8":
        return True
    characters = [bytes([byte]).decode(encoding, errors="replace") for byte in range(256)]
    if characters[:128] != [chr(byte) for byte in range(128)]:
        return False
    # In GB18030 or Shift-JIS single bytes look alright; pairs of them don't.
    pairs = bytes(byte for first in range(256) for second in range(256) for byte in (first, second))
    decoded = pairs.decode(encoding, errors="replace")
    return decoded == "".join(characters[byte] for byte in pairs)


def likely_encodings(sample: bytes) -> list[str]:
    """Guess the encoding of bytes that are not UTF-8.

    Parameters
    ----------
    sample : bytes
        The more, the better; the first 4 KiB are looked at. It may begin and end within a
        character.

    Returns
    -------
    list of str
        At most three names that decode the sample, the likeliest first; none where nothing fits.

    Examples
    --------
    >>> likely_encodings("Привет".encode("koi8-r"))[0]
    'koi8-r'
    """
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return [name]
    sample = sample[:_SAMPLE_BYTES]
    if sample.isascii() and b"\0" not in sample:
        return []
    for first, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if sample[first::2].count(0) > len(sample) / 4:
            return [name]
    texts = {name: _decoded(sample, name) for name in (*_USUAL, *_detected(sample))}
    fits = {name: text for name, text in texts.items() if text is not None and _is_text(text)}
    scores = {
        name: _plausibility(text, name) * (1 - _RARER * position)
        if name in _USUAL
        else _DETECTED_SCORE
        for position, (name, text) in enumerate(fits.items())
    }
    return sorted(fits, key=lambda name: -scores[name])[:_MAX_LIKELY]


def encoding_advice(sample: bytes, *, wrong: str = "") -> str:
    """Return what to do about bytes that are not in the encoding, without the full stop.

    Parameters
    ----------
    sample : bytes
        As for `likely_encodings`.
    wrong : str, default=""
        The encoding that the bytes are known not to be in.

    Returns
    -------
    str
        With the likeliest encoding, if anything fits.
    """
    found = likely_encodings(sample)
    likely = [name for name in found if not (wrong and name.startswith(wrong.replace("_", "-")))]
    if not likely:
        return _GIVE_ENCODING
    listed = " or ".join(likely)
    return f"It looks like {listed}: pass encoding={likely[0]!r}, or encoding_errors='replace'"


def _detected(sample: bytes) -> list[str]:
    """Return what charset-normalizer says, by the names that people know."""
    from charset_normalizer import from_bytes

    try:
        matches = list(from_bytes(sample, cp_isolation=list(_DETECTED)))
    except (ValueError, LookupError, TypeError, RecursionError):
        # The guess is for an error message, which must not become another error.
        return []
    return [match.encoding.replace("_", "-") for match in matches]


def _decoded(sample: bytes, encoding: str) -> str | None:
    """Return the text of a sample that may be cut within a character, or None."""
    # Four bytes are the longest character.
    for start in range(min(4, len(sample))):
        try:
            return codecs.getincrementaldecoder(encoding)().decode(sample[start:])
        except UnicodeDecodeError:
            if encoding not in _MULTIBYTE:
                return None
    return None


def _is_text(text: str) -> bool:
    """Tell whether no character is a control character or one that nobody has assigned."""
    return not any(
        character not in "\t\n\r\f" and category(character) in ("Cc", "Cn", "Co", "Cs")
        for character in text
    )


def _plausibility(text: str, encoding: str) -> float:
    """Tell how usual the characters beyond ASCII are in texts of an encoding, at most 1."""
    usual = _USUAL[encoding]
    is_latin = encoding in _LATIN
    unusual = 0.1 if encoding in _MULTIBYTE else -0.5
    total = count = 0.0
    for before, character, after in zip(" " + text, text, text[1:] + " ", strict=False):
        if character.isascii():
            continue
        count += 1
        rank = usual.find(character.lower())
        weight = 1 - 0.5 * rank / len(usual) if rank >= 0 else unusual
        touches_ascii = any(one.isascii() and one.isalpha() for one in (before, after))
        if character.isalpha():
            # An accented letter stands among plain ones; others don't stand in a Latin word.
            if is_latin and not touches_ascii:
                weight /= 2
            elif not is_latin and touches_ascii:
                weight = 0
        if character.isupper() and before.isalpha():
            weight /= 2  # koi8-r read as cp1251 has the cases swapped
        total += weight
    return total / count if count else 0.0
