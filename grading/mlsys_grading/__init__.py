"""The graders' package: builds, executes, proves and grades the labs. It is never part of what a student installs."""
