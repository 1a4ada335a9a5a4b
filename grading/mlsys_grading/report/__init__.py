"""The report of a run: pages a person reads, JUnit and JSON that machines read."""
