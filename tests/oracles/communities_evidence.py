"""Exchange of edges' ends, removal of edges, and Jaccard indices, in plain Python: one edge after the other."""

from __future__ import annotations

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def splitmix(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def mixed(number: int) -> int:
    return splitmix((number + 1) * GOLDEN & MASK) >> 1


def hashed(value: int, salt: int) -> int:
    return splitmix((value * GOLDEN + salt) & MASK)


def edge_hash(edge: tuple[int, int], salt: int) -> int:
    return hashed((min(edge) << 32) | max(edge), salt)


def exchange_ends(edges: list[tuple[int, int]], seed: int, rounds: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the new edges, and for each of them the number of the given edge that was in its place."""
    salt = mixed(seed)
    source = sorted(range(len(edges)), key=lambda number: hashed(number, salt))
    now = [edges[number] for number in source]
    for step in range(rounds if len(edges) > 1 else 0):
        salt = mixed(salt + step)
        slots = 8 * len(now)
        proposals = []
        for i in range(len(now)):
            j = (salt - i) % len(now)
            if i < j:
                (a, b), (c, d) = now[i], now[j]
                if hashed(i, salt) >= 2**63:
                    c, d = d, c
                proposals.append((i, j, (a, d), (c, b)))
        news = [new for proposal in proposals for new in proposal[2:]]
        used = [edge_hash(edge, salt) % slots for edge in [*now, *news]]
        times = {slot: used.count(slot) for slot in set(used)}
        for i, j, one, two in proposals:
            free = all(times[edge_hash(each, salt) % slots] == 1 for each in (one, two))
            if one[0] != one[1] and two[0] != two[1] and free:
                now[i], now[j] = one, two
    return now, source


def kept(edges: list[tuple[int, int]], seed: int, removed: float) -> list[bool]:
    return [edge_hash(edge, mixed(seed)) >= int(removed * 2**64) for edge in edges]


def jaccard(labels: list[int], found: list[int]) -> list[float]:
    """For each community, the largest Jaccard index with a community of `found`; NaN for unused numbers."""
    indices = []
    for community in range(max(labels) + 1):
        own = {node for node, label in enumerate(labels) if label == community}
        others = [{node for node, label in enumerate(found) if label == other} for other in set(found)]
        indices.append(max(len(own & other) / len(own | other) for other in others) if own else float("nan"))
    return indices
