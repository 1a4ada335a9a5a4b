"""All submissions of the corpus."""

from __future__ import annotations

from tests.grading.corpus.accidents import ACCIDENTS
from tests.grading.corpus.attacks_inside import INSIDE
from tests.grading.corpus.attacks_leaks import LEAKS
from tests.grading.corpus.attacks_outside import OUTSIDE
from tests.grading.corpus.honest import HONEST

SUBMISSIONS = (*HONEST, *ACCIDENTS, *INSIDE, *LEAKS, *OUTSIDE)
