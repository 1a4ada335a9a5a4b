"""Number formats of machine learning, bit by bit: the value of each code, rounding, and blocks with a scale.

    from mlsys_labkit.formats import FORMATS

    FORMATS["fp8_e4m3"].max                  # 448.0
    FORMATS["bf16"].round(3.14159)           # 3.140625
    FORMATS["mxfp4"].quantize(x).bytes       # codes and scales, packed

Every format is checked code by code against ml_dtypes and gfloat. Needs numpy alone.
"""

from __future__ import annotations

from mlsys_labkit.formats.blocks import BlockFormat, Blocks
from mlsys_labkit.formats.errors import FormatError
from mlsys_labkit.formats.floats import FloatFormat
from mlsys_labkit.formats.integers import CodebookFormat, IntegerFormat
from mlsys_labkit.formats.table import FORMATS

__all__ = ["FORMATS", "BlockFormat", "Blocks", "CodebookFormat", "FloatFormat", "FormatError", "IntegerFormat"]
