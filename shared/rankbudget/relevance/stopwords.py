"""Function and question words, folded as `words.fold` folds: only queries lose them."""

from __future__ import annotations

__all__ = ["STOP_WORDS"]

_ENGLISH = """a about am an and any are as at be been being but by can could d did do does doing done for from
had has have he her hers him his how i if in into is it its just ll m me my of on or our s shall she should so
some such t than that the their them then there these they this those to too us ve was we were what when where
which while who whom whose why will with would you your re"""
_SPANISH = """al como con cual cuales cuando cuanto cuanta cuantos cuantas de del donde el ella en era eran es
esta este esto estos fue fueron ha han hay la las le les lo los mas no para pero por que quien quienes se
segun ser si sin sobre son su sus tenia tiene un una uno y ya"""
_GERMAN = """aber als am auf aus bei bis da damit das dass dem den der des die dies diese dieser dieses durch
ein eine einem einen einer eines er es fur gab hat hatte hatten ihr ihre im ist kann konnte mit nach nicht
oder sein seine sich sie sind uber um und viele viel von vor wann war waren warum was welche welchem welchen
welcher welches wem wen wenn wer werden wessen wie wird wo woher wofur womit wurde wurden zu zum zur"""
_FRENCH = """au aux avec ce cet cette ces combien comment dans des du elle est et etait il ils je leur ma mais
mes mon ne nos notre nous ont ou par pas pour pourquoi quand quel quelle quelles quels qui sa ses sont sur ta
tes ton tu une vos votre vous"""
_RUSSIAN = """а без бы был была были было в во вы где да для до его ее если же за и из или их к как какая
каким какими какие каких какого какое какои какую ко когда кто кого кому ли на не него нее них но о об он она
они оно от по под при с сколько со так также то того тоже только том у чего чем чему что чтобы это этого этои
этом этот я"""
_ARABIC = """ما ماذا من متي اين كيف كم لماذا لم هل اي هو هي في علي الي عن مع هذا هذه ذلك تلك التي الذي الذين
ان كان كانت قد لا او و ثم بين بعد قبل عند كل تم بها به لها له فيها فيه منها منه"""
_CHINESE = """什么 么时 哪些 哪个 多少 如何 为什 怎么 谁是 是谁 是什 的是 是多 少个 哪一 有多 有哪 些是 是哪 在哪 哪里 的哪 了多 了什 个是
么是 多大 的什"""
_JAPANESE = "です ます した して いる ある どの なに 何で すか ので から まで こと"

STOP_WORDS = frozenset(
    word
    for language in (_ENGLISH, _SPANISH, _GERMAN, _FRENCH, _RUSSIAN, _ARABIC, _CHINESE, _JAPANESE)
    for word in language.split()
)
