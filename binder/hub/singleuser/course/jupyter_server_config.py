"""Configuration of the course's service, with formgrader and without students' lists. It precedes the folder above."""

c = get_config()  # noqa: F821 - traitlets provides it

c.ServerApp.jpserver_extensions = {
    "mlsys_grading.hub.formgrader": True,
    "nbgrader.server_extensions.formgrader": False,  # our extension loads it
    "nbgrader.server_extensions.assignment_list": False,
    "nbgrader.server_extensions.course_list": False,
    "jupyter_lsp": False,
}

# A module that a student handed in must not run when an instructor opens the notebook beside it.
c.ServerApp.kernel_manager_class = "mlsys_grading.hub.formgrader.CourseKernels"
