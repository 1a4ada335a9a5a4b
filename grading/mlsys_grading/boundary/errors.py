"""Errors that end a conversation with a student's process.

They do not derive from ``Exception``, so neither ``except Exception`` in a test nor ``pytest.raises`` turns one into a
pass. A session that raised one stays unusable, even if the test caught the error.
"""

from __future__ import annotations


class BoundaryError(BaseException):
    """An error that ends the conversation: the student's process cannot be called any more."""


class ProtocolError(BoundaryError):
    """An error: the student's process sent something that an honest process never sends."""


class StudentGoneError(BoundaryError):
    """An error: the student's process has ended."""


class StudentSilentError(BoundaryError):
    """An error: the student's process did not answer in time."""


class StarvedError(BoundaryError):
    """An error: the machine gave the student's process too little processor time, so no verdict can be trusted."""


class ContractError(BoundaryError):
    """An error: the student's code changed an argument or returned an object, as the solution never does."""


class NotPlainError(TypeError):
    """A value that has no plain-data form: an ordinary error, on whichever side tried to send it."""
