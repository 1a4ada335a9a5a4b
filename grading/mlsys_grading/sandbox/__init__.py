"""The sandbox: which files, system calls, memory and network a process that runs untrusted code has."""
