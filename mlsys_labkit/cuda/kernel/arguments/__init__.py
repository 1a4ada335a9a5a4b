"""The values of a launch: parameters of a kernel, and the arrays and numbers that are passed for them."""
