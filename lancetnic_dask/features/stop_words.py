"""Setting -> stop words: tokens that are left out before n-grams are made.

The English list is the one of the Glasgow Information Retrieval Group, as scikit-learn has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lancetnic_dask.errors import SettingError, quoted, suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ENGLISH_STOP_WORDS", "resolve_stop_words"]

ENGLISH_STOP_WORDS: Final = frozenset(
    """
    a about above across after afterwards again against all almost alone along already also
    although always am among amongst amoungst amount an and another any anyhow anyone anything
    anyway anywhere are around as at back be became because become becomes becoming been
    before beforehand behind being below beside besides between beyond bill both bottom but by
    call can cannot cant co con could couldnt cry de describe detail do done down due during
    each eg eight either eleven else elsewhere empty enough etc even ever every everyone
    everything everywhere except few fifteen fifty fill find fire first five for former
    formerly forty found four from front full further get give go had has hasnt have he hence
    her here hereafter hereby herein hereupon hers herself him himself his how however hundred
    i ie if in inc indeed interest into is it its itself keep last latter latterly least less
    ltd made many may me meanwhile might mill mine more moreover most mostly move much must my
    myself name namely neither never nevertheless next nine no nobody none noone nor not
    nothing now nowhere of off often on once one only onto or other others otherwise our ours
    ourselves out over own part per perhaps please put rather re same see seem seemed seeming
    seems serious several she should show side since sincere six sixty so some somehow someone
    something sometime sometimes somewhere still such system take ten than that the their them
    themselves then thence there thereafter thereby therefore therein thereupon these they
    thick thin third this those though three through throughout thru thus to together too top
    toward towards twelve twenty two un under until up upon us very via was we well were what
    whatever when whence whenever where whereafter whereas whereby wherein whereupon wherever
    whether which while whither who whoever whole whom whose why will with within without
    would yet you your yours yourself yourselves
    """.split()  # noqa: SIM905 - 318 quoted words, one a line, are no better to read
)


def resolve_stop_words(stop_words: str | Iterable[str] | None) -> frozenset[str]:
    """Make one set of what users may pass.

    Parameters
    ----------
    stop_words : {'english'}, iterable of str or None
        The name of a list, the words themselves, or None for none. Words are compared with
        tokens, thus with lower-cased words of two letters or more.

    Returns
    -------
    frozenset of str
        The words.

    Raises
    ------
    SettingError
        If there is no list of that name, or a word is not a string.

    References
    ----------
    C. J. van Rijsbergen, Information Retrieval, 2nd edition, Butterworths 1979, chapter 2.

    Examples
    --------
    >>> len(resolve_stop_words("english")), sorted(resolve_stop_words(["und", "oder"]))
    (318, ['oder', 'und'])
    """
    if stop_words is None:
        return frozenset()
    if isinstance(stop_words, str):
        if stop_words != "english":
            raise SettingError(
                f"stop_words={quoted(stop_words)} is not the name of a list.",
                None,
                f"{suggestion(stop_words, ['english'])} Other words are passed as a list.",
            )
        return ENGLISH_STOP_WORDS
    words = frozenset(stop_words)
    for word in words:
        if not isinstance(word, str):
            raise SettingError(
                f"stop_words holds {quoted(word)}, which is not a string.",
                None,
                "Pass a list of strings.",
            )
    return words
