"""Student code in one process and tests in another: calls cross as plain data, and every reply is checked."""
