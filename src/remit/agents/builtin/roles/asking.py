"""Whether a sentence of a task asks for something to be done, or tells how things are. By its first words, in English.

Pure. Used by `phasing`: only what asks can be a phase.
"""

import re

_LEADING = re.compile(
    r"^(?:[-*+]\s+|\W+|(?:please|then|also|and|next|first(?:ly)?|second(?:ly)?|third(?:ly)?|finally|lastly|afterwards|instead|"
    r"after that|in addition|let us|let's|do not|don't|never|always)\b[\s,:]*)+",
    re.IGNORECASE,
)
_OWED = re.compile(r"\b(?:should|must|shall|ought to|needs? to|(?:has|have) to|is to be|are to be|we want|i want|wanted:)\b", re.IGNORECASE)
_WORDS_THAT_ASK = """
    adapt add adjust allow amend analyse analyze annotate answer apply archive ask avoid benchmark bind bring build bump cache call catch
    change check clean clear close collect compare compute configure confirm connect convert copy count cover create cut date debug
    decide declare define delete deliver deploy deprecate derive describe design detect document drop emit enable encode ensure escape
    establish evaluate examine expand explain export expose extend extract fail fetch fill filter find fix fold format generate give
    group guard handle have hide implement import improve include increase infer inline insert install integrate introduce investigate
    join keep limit link list load lock log look lower make mark measure merge migrate mock model modify monitor move name normalise
    normalize note offer open optimise optimize order package parse pass patch pin plan port prefer prepare prevent print profile
    protect prove provide publish put raise read rebuild record redact reduce refactor refuse register reject release reload remove
    rename render repair replace report reproduce require reset resolve restore restructure return reuse reverse review revise rewrite
    route run save scan schedule search secure send separate serve set show simplify skip sort speed split start stop store stream
    strip study support swap switch sync take teach tell test throw tidy time trace track translate treat trim try turn unify update
    upgrade use validate verify warn wire wrap write
"""
_VERBS = frozenset(_WORDS_THAT_ASK.split())
_ARTICLES = "a an the all any each every both its their his her our your my it them that this these those no one two"
_DETERMINERS = frozenset(_ARTICLES.split())
_WORDS_THAT_TELL = """
    after although an and are as at because before below both but by currently during each either every for from given here how if in
    inside into is it like many more most neither no nobody not nothing now of on once one only or other our out outside over per quite
    several since so some sometimes such than that the their there these they this those though through thus to today under unless until
    was we were what when whenever where whereas whether which while who why with within without yet you
"""
_NO_VERB = frozenset(_WORDS_THAT_TELL.split())


def asks(sentence: str) -> bool:
    """It begins with a verb in the imperative, or says what should or must be."""
    if _OWED.search(sentence):
        return True
    words = re.findall(r"[A-Za-z'\u2019-]+|\S+", _LEADING.sub("", sentence))
    if not words:
        return False
    first, second = words[0].lower(), words[1].lower() if len(words) > 1 else ""
    if first in _VERBS:
        return second not in ("is", "are", "was", "were", "has", "does", "will", "can")
    # A verb that is not listed: a plain word before an article or the like, and none that begins a clause or tells of a third person.
    is_plain = first.isalpha() and first not in _NO_VERB and not first.endswith(("ly", "s", "ed", "ing"))
    return is_plain and second in _DETERMINERS
