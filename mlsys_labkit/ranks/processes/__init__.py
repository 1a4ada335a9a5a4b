"""The backend of real processes: ranks are forked from a warm host, and all end with the notebook."""
