"""The process that interprets kernels: Triton's language over numpy, and the memory of one launch."""
