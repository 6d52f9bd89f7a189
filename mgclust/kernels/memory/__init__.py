"""Arrays on their way between the host's memory and the one in which kernels read them."""
