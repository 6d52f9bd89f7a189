"""Adjacency rows (`adjacency`): moves between communities, matching, groups of nodes, contraction."""
