"""A lab as its author wrote it: cells, tasks and wrong answers, each with its line in the author's file.

The only source of a lab is ``solutions/labNN_topic/labNN_topic.py`` in jupytext's percent format, with
``wrong_answers.py`` beside it. Notebooks, proofs and reports are made from what this package reads.
Reference: https://jupytext.readthedocs.io/en/latest/formats-scripts.html#the-percent-format
"""

from mlsys_grading.lab.cells import Cell
from mlsys_grading.lab.checkout import choose, find_root, lab_names, read_labs
from mlsys_grading.lab.lab import Lab, Task, read_lab
from mlsys_grading.lab.wrong_answers import WrongAnswer

__all__ = ["Cell", "Lab", "Task", "WrongAnswer", "choose", "find_root", "lab_names", "read_lab", "read_labs"]
