"""The examination of one submission: which cells run in which process, and the verdict of each test cell."""
