"""Small real data that travels with the kit."""

from mlsys_labkit.datasets.digit_images import digits
from mlsys_labkit.datasets.word_table import word_groups, words

__all__ = ["digits", "word_groups", "words"]
