"""The text of the student's kernels: read, checked, and changed within its lines, so that lines keep their numbers."""
