"""``labkit export``: marks in the files of Canvas, Moodle or a spreadsheet."""
