"""Help beside a task: a prediction to commit to, hints on demand, and pictures that wait for a solution."""

from mlsys_labkit.coach.hints import Hint, hint
from mlsys_labkit.coach.pictures import picture
from mlsys_labkit.coach.predictions import predict

__all__ = ["Hint", "hint", "picture", "predict"]
