"""nbgrader's configuration for these labs.

    mkdir my-course && cd my-course
    cp CHECKOUT/grading/nbgrader_config.py . && cp -r CHECKOUT/build/source .     # after: labkit build
    nbgrader generate_assignment lab00_your_machine                               # -> release/, for students
    mkdir -p submitted/STUDENT/lab00_your_machine         # one folder a student; the notebook keeps its name
    cp THEIR_NOTEBOOK submitted/STUDENT/lab00_your_machine/lab00_your_machine.ipynb
    nbgrader autograde lab00_your_machine && nbgrader generate_feedback lab00_your_machine
    nbgrader export                                       # -> grades.csv

Run ``nbgrader`` with its environment's ``bin`` on PATH: it starts ``alembic`` by name to set up its database.
Reference: https://nbgrader.readthedocs.io/en/stable/configuration/config_options.html
"""

from mlsys_grading.build.stubs import preprocessors

c = get_config()  # noqa: F821 - traitlets provides it

c.CourseDirectory.course_id = "mlsys"

# A cell of C++ gets a stub in C++.
c.GenerateAssignment.preprocessors = preprocessors()

# nbgrader's 30 seconds a cell are tight for a lab on a loaded grading machine; no honest cell comes near this.
c.Execute.timeout = 120
c.Execute.startup_timeout = 120

# Figures would put megabytes of widget state into every graded notebook, and feedback pages do not use it.
c.Execute.store_widget_state = False

# A runaway print must not fill the gradebook's disk.
c.LimitOutput.max_lines = 1000
