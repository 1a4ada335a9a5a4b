"""The rules for a lab's form: one family a file, one rule a function ``(Lab) -> objections``."""
