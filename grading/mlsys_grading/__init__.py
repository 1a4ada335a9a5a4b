"""Build, execute, prove and grade the labs. Never part of what a student installs."""
