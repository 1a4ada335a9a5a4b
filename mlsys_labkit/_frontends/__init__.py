"""Private packages behind the entry points: command line, doctor, figures, progress, saved notebooks and pages."""
