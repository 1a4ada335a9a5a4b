"""GPUs of the machine: a list, their leases, and a check of what a submission left on one. Not tested on a GPU."""
