"""Votes of similar rows on the classes of a row, beside the probabilities of the model.

A smooth function of few latents tells classes well that lie on different sides of it, and badly those that
are small regions among the others, such as one of eleven firms. There the rows that are most alike know more.
So the probabilities of the classes of a column are a mixture of the model's and of the frequencies of classes
among similar training rows. Its weights are those with which both, each without knowing a row's own class,
predict the classes that were observed best: stacking of predictive distributions, by expectation maximisation
with a Beta prior that pulls towards equal weights.

Rows are compared by points: what is known of them, or expected, in all other columns, and their latents. The
latents and expectations of a voter are those that it has without its class, as those rows have that it votes
on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from srflvm._typing import FloatArray

UNKNOWN = -1.0

# Voters count by 1 - (distance / distance of the one this far down the list)^2, and all frequencies together
# as one voter.
_N_NEIGHBOURS = 20
_PRIOR_VOTERS = 1.0

# Rounds of expectation maximisation, and the observations of each part that the prior of its weight is worth.
_ROUNDS = 30
_PRIOR_OBSERVATIONS = 2.0
_SMALLEST_PROBABILITY = 1e-6

# Rows whose distances to all voters are held at a time.
_ROWS_AT_ONCE = 512


class Electorate(NamedTuple):
    """Voters on the classes of V columns, and the share (V,) that the votes have in the probabilities.

    Points are (V, B, E). Codes (V, B) are the voters' classes, UNKNOWN of rows that do not vote on a column.
    """

    points: FloatArray
    codes: FloatArray
    shares: FloatArray

    @classmethod
    def assemble(cls, points: FloatArray, codes: FloatArray, probabilities: list[FloatArray]) -> Electorate:
        """Return the electorate with the best shares, given the model's probabilities (B, C) of each column.

        These are those of the voters' classes as if they were not known; rows without a class are not looked
        at.
        """
        shares = np.empty(len(points))
        for place, (own, classes, of_model) in enumerate(zip(points, codes, probabilities, strict=True)):
            known = classes != UNKNOWN
            votes = _votes(own[known], own[known], classes[known], of_model.shape[1], omits_itself=True)
            shares[place] = _best_share(of_model[known], votes, classes[known].astype(int))
        return cls(points.astype(np.float32), codes, shares)

    def mix(self, place: int, points: FloatArray, probabilities: FloatArray) -> FloatArray:
        """Return probabilities (n, C) of a column, of the model, mixed with the votes at points (n, E)."""
        known = self.codes[place] != UNKNOWN
        voters = self.points[place][known].astype(np.float64)
        votes = _votes(points, voters, self.codes[place][known], probabilities.shape[1])
        return (1.0 - self.shares[place]) * probabilities + self.shares[place] * votes


def _votes(
    points: FloatArray, voters: FloatArray, codes: FloatArray, n_classes: int, omits_itself: bool = False
) -> FloatArray:
    """Return the shares of the classes (n, C) among the voters near points (n, E).

    If it `omits_itself`, points are the voters, and none of them votes on itself.
    """
    classes = (codes[:, None] == np.arange(n_classes)).astype(float)
    n_others = len(voters) - omits_itself
    if n_others < 1:
        return np.full((len(points), n_classes), 1.0 / n_classes)
    prior = _PRIOR_VOTERS * classes.mean(axis=0)
    last = min(_N_NEIGHBOURS, n_others) - 1
    parts = [np.empty((0, n_classes))]
    for start in range(0, len(points), _ROWS_AT_ONCE):
        some = points[start : start + _ROWS_AT_ONCE]
        squares = _square_distances(some, voters)
        if omits_itself:
            squares[range(len(some)), range(start, start + len(some))] = np.inf
        reach = np.partition(squares, last, axis=1)[:, last, None]
        weights = np.maximum(1.0 - squares / np.maximum(reach, 1e-300), 0.0)
        parts.append((weights @ classes + prior) / (weights.sum(axis=1, keepdims=True) + _PRIOR_VOTERS))
    return np.concatenate(parts)


def _square_distances(points: FloatArray, voters: FloatArray) -> FloatArray:
    """Return the squared distances (n, B) of points (n, E) and voters (B, E)."""
    squares = np.sum(points**2, axis=1)[:, None] + np.sum(voters**2, axis=1)
    return np.maximum(squares - 2.0 * points @ voters.T, 0.0)


def _best_share(of_model: FloatArray, votes: FloatArray, codes: np.ndarray) -> float:
    """Return the share of the votes (n, C) with which the mixture predicts the codes (n,) best."""
    rows = np.arange(len(codes))
    model, voted = (table[rows, codes] + _SMALLEST_PROBABILITY for table in (of_model, votes))
    share = 0.5
    for _ in range(_ROUNDS):
        by_votes = np.sum(share * voted / (share * voted + (1.0 - share) * model))
        share = (by_votes + _PRIOR_OBSERVATIONS) / (len(codes) + 2.0 * _PRIOR_OBSERVATIONS)
    return float(share)
