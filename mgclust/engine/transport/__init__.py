"""Exchange of arrays between ranks.

::

    comm              the collectives; host_comm implements them for CPUs, cuda for GPUs
    nccl_network      the network interface on which NCCL connects GPUs, or the reason why NCCL may not connect them
    wire, handshake   the sockets between processes, and how two ranks connect
    session           the connections of the ranks, which one client keeps between its runs
"""
