"""Configuration of nbgrader in the course's service: as ``grading/nbgrader_config.py``, and a collector for Hubs."""

from mlsys_grading.build.stubs import preprocessors
from mlsys_grading.hub.collect import Collect

c = get_config()  # noqa: F821 - traitlets provides it

c.GenerateAssignment.preprocessors = preprocessors()
c.LimitOutput.max_lines = 1000

# Students write into the exchange. The file system shows the student and the time of each submission.
c.ExchangeFactory.collect = Collect
