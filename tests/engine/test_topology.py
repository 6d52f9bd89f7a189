"""Shapes of links, by the rules that collectives rely on."""

from __future__ import annotations

import math

import pytest

from mgclust.engine.transport.topology import FAN, Halves, Tree, neighbors

SIZES = [*range(1, 35), 63, 64, 65, 100, 192, 512, 1000, 1024]


@pytest.mark.parametrize("size", SIZES)
def test_a_tree_has_all_ranks_in_order(size):
    trees = [Tree(rank, size) for rank in range(size)]
    below = [1] * size
    for rank in reversed(range(size)):
        tree = trees[rank]
        assert len(tree.children) <= FAN
        following = rank + 1
        for child in tree.children:
            assert (child.root, trees[child.root].parent) == (following, rank)
            following = child.stop
            below[rank] += below[child.root]
            assert child.stop - child.root == below[child.root]
        assert tree.depth <= tree.height <= math.ceil(math.log(max(size, 2), FAN))
    assert below[0] == size and trees[0].parent is None
    for rank in {0, 1, size // 2, size - 1} - {size}:
        for other in {0, size // 3, size - 1} - {rank}:
            steps, here = 0, rank
            while here != other:
                here, steps = trees[here].toward(other), steps + 1
            assert steps <= 2 * trees[0].height


@pytest.mark.parametrize("size", SIZES)
def test_the_neighbor_of_a_late_rank_gives_up_first(size):
    """Ranks wait for children, of which the deepest wait for no others; then for parents, the deepest last."""
    trees = [Tree(rank, size) for rank in range(size)]
    for rank, tree in enumerate(trees):
        if tree.parent is None:
            continue
        assert 0 <= trees[tree.parent].margin(rank) < tree.margin(tree.parent) <= 0.25 + 1e-9
        if trees[tree.parent].parent is not None:
            above = trees[tree.parent].parent
            assert trees[tree.parent].margin(rank) < trees[above].margin(tree.parent)
            assert tree.margin(tree.parent) > trees[tree.parent].margin(above)


@pytest.mark.parametrize("size", SIZES)
def test_partners_of_halves(size):
    """Each has the other, in the same lane; groups are in rank order, and a rank has few links."""
    every = [Halves(rank, size) for rank in range(size)]
    groups = [each.group for each in every]
    assert groups == sorted(groups) and len(set(groups)) == 1 << every[0].steps <= size < 2 << every[0].steps
    for rank, each in enumerate(every):
        assert each.mate is None or every[each.mate].mate == rank
        assert sorted(each.own + ([] if each.mate is None else every[each.mate].own)) == list(range(each.lanes))
        for step in range(each.steps):
            for lane in each.own:
                partner = every[each.partner(step, lane)]
                assert lane in partner.own and partner.partner(step, lane) == rank
                assert partner.group == each.group ^ 1 << step
        assert len(neighbors("halves", rank, size)) <= 2 * each.steps + 1


@pytest.mark.parametrize("shape", ["tree", "ring", "halves", "all"])
@pytest.mark.parametrize("size", SIZES[:40])
def test_both_ends_know_of_a_link(shape, size):
    found = [neighbors(shape, rank, size) for rank in range(size)]
    for rank, others in enumerate(found):
        assert rank not in others
        assert all(rank in found[other] for other in others)
