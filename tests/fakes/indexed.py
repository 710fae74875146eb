"""The texts that an engine's drafters copy from."""

from localspec.drafters.earlier_texts import EarlierTexts


def indexed(earlier: EarlierTexts) -> list[list[int]]:
    """The tokens of each text in the index, the first one first."""
    texts: list[list[int]] = [[]]
    for token in earlier.up_to_date().texts.tokens:
        if token < 0:
            texts.append([])
        else:
            texts[-1].append(token)
    return texts[:-1] if not texts[-1] else texts
