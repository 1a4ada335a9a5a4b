"""PTX in a kernel, ``tl.inline_asm_elementwise``: its text, its types and its instructions."""
