"""nbgrader's gradebook, and what is written beside it: graded notebooks, feedback pages, ``grades/LAB.csv``."""
