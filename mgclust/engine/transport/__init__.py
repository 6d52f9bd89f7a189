"""Exchange of arrays between ranks.

::

    comm              the collectives; host_comm has those of CPUs, cuda those of GPUs
    nccl_network      the network on which NCCL connects GPUs, or why it may not
    wire, handshake   the sockets between processes, and how two ranks connect
    session           the connections of the ranks, kept between runs of one client
"""
