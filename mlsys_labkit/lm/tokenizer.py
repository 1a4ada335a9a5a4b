"""A byte-level byte-pair encoding: text to token numbers, and back without loss.

Text is cut into words first (``WORD``), so that no token spans two of them; then the most frequent neighbours inside
words are merged, over and over. Saved in the ``tokenizer.json`` of Hugging Face's tokenizers, which cut alike.

Reference: Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016;
Radford et al., "Language Models are Unsupervised Multitask Learners" (bytes instead of characters), 2019.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from mlsys_labkit.lm.errors import CheckpointError, TokenError

END_OF_TEXT = "<|endoftext|>"
# A line break with the indentation after it; a run of letters, digits, punctuation or non-ASCII with the space before
# it; other white space. ASCII classes only: Python's re and the Oniguruma of other libraries cut the same words.
WORD = (
    r"\n[ \t\n]*| ?[A-Za-z]+| ?[0-9]{1,3}| ?[^\x00-\x7f]+| ?[!-/:-@\[-`{-~]+"
    r"|[ \t]+(?= )|[ \t]+|[\x00-\x08\x0b-\x1f\x7f]+"
)
_WORDS = re.compile(WORD)


class Tokenizer:
    """Byte-pair encoding with a fixed list of merges.

    Tokens 0 to 255 are the bytes; token 256 + i is the i-th merge; the last one, ``end``, closes a document.

    Example:
        >>> tokenizer = Tokenizer.train(["low lower lowest"], vocabulary=260)
        >>> tokenizer.decode(tokenizer.encode("slow"))
        'slow'
        >>> len(tokenizer.encode("low"))
        1
    """

    def __init__(self, merges: Sequence[tuple[int, int]]) -> None:
        self.merges = tuple(merges)
        self._rank = {pair: rank for rank, pair in enumerate(self.merges)}
        self._bytes = [bytes([value]) for value in range(256)]
        for left, right in self.merges:
            self._bytes.append(self._bytes[left] + self._bytes[right])
        self.end = len(self._bytes)
        self._encode_word = lru_cache(maxsize=65536)(self._merge)

    def __len__(self) -> int:
        return self.end + 1

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text. ``END_OF_TEXT`` in it is plain text: append ``end`` to close a document."""
        return [token for word in _WORDS.findall(text) for token in self._encode_word(word)]

    def encode_special(self, text: str) -> list[int]:
        """Return the tokens of a text in which ``END_OF_TEXT`` stands for the end token."""
        first, *others = (self.encode(part) for part in text.split(END_OF_TEXT))
        return first + [token for part in others for token in (self.end, *part)]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens; bytes that are no UTF-8 become U+FFFD, and ``end`` becomes ``END_OF_TEXT``."""
        return b"".join(map(self.token_bytes, tokens)).decode("utf-8", errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token. Raises TokenError for a number that is no token."""
        if not 0 <= token <= self.end:
            raise TokenError(f"a token is a number from 0 to {self.end}, got {token}")
        return END_OF_TEXT.encode() if token == self.end else self._bytes[token]

    def _merge(self, word: str) -> tuple[int, ...]:
        tokens = list(word.encode("utf-8", errors="surrogatepass"))
        while len(tokens) > 1:
            rank = min(self._rank.get(pair, len(self.merges)) for pair in pairwise(tokens))
            if rank == len(self.merges):
                break
            tokens = _replace(tokens, self.merges[rank], 256 + rank)
        return tuple(tokens)

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int) -> Tokenizer:
        """Learn ``vocabulary - 257`` merges, fewer if no pair occurs twice. Ties go to the lower token numbers."""
        counts = Counter(word for text in texts for word in _WORDS.findall(text))
        words = [(list(word.encode("utf-8", errors="surrogatepass")), count) for word, count in sorted(counts.items())]
        frequency: Counter[tuple[int, int]] = Counter()
        where: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        for index, (tokens, count) in enumerate(words):
            for pair in pairwise(tokens):
                frequency[pair] += count
                where[pair].add(index)
        queue = [(-count, pair) for pair, count in frequency.items()]
        heapq.heapify(queue)
        merges: list[tuple[int, int]] = []
        while queue and len(merges) < vocabulary - 257:
            negative, best = heapq.heappop(queue)
            if frequency[best] != -negative:  # counted anew since it was queued
                continue
            if -negative < 2:
                break
            changed: set[tuple[int, int]] = set()
            for index in where[best]:
                tokens, count = words[index]
                merged = _replace(tokens, best, 256 + len(merges))
                for pair in pairwise(tokens):
                    frequency[pair] -= count
                    changed.add(pair)
                for pair in pairwise(merged):
                    frequency[pair] += count
                    where[pair].add(index)
                    changed.add(pair)
                words[index] = (merged, count)
            merges.append(best)
            for pair in changed:
                if frequency[pair] > 0:
                    heapq.heappush(queue, (-frequency[pair], pair))
        return cls(merges)

    def save(self, path: Path) -> None:
        """Write the tokenizer as a ``tokenizer.json`` that Hugging Face's tokenizers reads as well."""
        names = ["".join(_PRINTABLE[byte] for byte in token) for token in self._bytes]
        special = {"id": self.end, "content": END_OF_TEXT, "special": True}
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        split = {"type": "Split", "pattern": {"Regex": WORD}, "behavior": "Isolated", "invert": False}
        data = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{**special, **flags}],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {name: token for token, name in enumerate(names)},
                "merges": [[names[left], names[right]] for left, right in self.merges],
            },
        }
        path.write_text(json.dumps(data, indent=None, ensure_ascii=True) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read what ``save`` wrote. Raises CheckpointError for any other kind of tokenizer."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            names, merges = data["model"]["vocab"], data["model"]["merges"]
            pattern = data["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
        except FileNotFoundError:
            raise CheckpointError(
                f"there is no {path.name} in {path.parent}; a checkpoint's folder holds one"
            ) from None
        except (ValueError, KeyError, TypeError, IndexError):
            raise CheckpointError(
                f"{path} is not a byte-level tokenizer that this kit wrote; load it by tokenizers"
            ) from None
        tokenizer = cls([(names[left], names[right]) for left, right in merges])
        written = ["".join(_PRINTABLE[byte] for byte in token) for token in tokenizer._bytes]
        if pattern != WORD or [names.get(name) for name in written] != list(range(tokenizer.end)):
            raise CheckpointError(
                f"{path} cuts or numbers its tokens in another way than this kit; load it by tokenizers"
            )
        return tokenizer


def _replace(tokens: list[int], pair: tuple[int, int], token: int) -> list[int]:
    merged: list[int] = []
    index = 0
    while index < len(tokens):
        if index + 1 < len(tokens) and (tokens[index], tokens[index + 1]) == pair:
            merged.append(token)
            index += 2
        else:
            merged.append(tokens[index])
            index += 1
    return merged


def _printable_bytes() -> dict[int, str]:
    """Return GPT-2's visible character for every byte: itself where Latin-1 prints it, else one from U+0100."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(0x100 + order) for order, byte in enumerate(hidden)}


_PRINTABLE = _printable_bytes()


def printed_bytes(name: str) -> bytes | None:
    """Return the bytes that a byte-level tokenizer's file writes as ``name``; None for another kind of name.

    Example:
        >>> printed_bytes("Ġthe"), printed_bytes("▁the")
        (b' the', None)
    """
    if all(letter in _BYTES for letter in name):
        return bytes(_BYTES[letter] for letter in name)
    return None


_BYTES = {letter: byte for byte, letter in _PRINTABLE.items()}
