"""Deflation: one step along a direction whose image is known, so that the residual sums to zero.

Let A = I - αP̄ᵀ. The slowest error of an iterate is that of its scale, which shows as Σr ≠ 0. For a
direction z with known image A·z,

    y += c·z,  r -= c·A·z,  c = Σr / Σ(A·z)

keeps r the residual of y and makes Σr = 0: an oblique projection. Three directions are used:

- the *right-hand side* itself: lowering β by c lowers r by c·b, as if c times a vector with image b
  had been added to y. For b = 1 this is the mean correction: β becomes (α·D(y) + (1-α)·Σy) / n with
  D(y) the sum of y over dangling vertices, which makes a sweep the classic normalised power
  iteration. (Never scale y by n/Σy instead: with dangling vertices that converges to wrong ranks.)
  For b = s the correction is made at the seeds;
- the *global ranks*, for personalized iterates: ``A·z = β·1 - r`` of the global iterate. After a
  few steps what is left of any personalized residual is distributed as that of any other, and falls
  by α a sweep; a vector with such a residual is known already. On R-MAT the bound falls to a sixth
  or a seventh a sweep along either direction: with the global ranks from the second or third sweep
  on, with the seeds from the fifth. In a graph of parts that are seldom left, z has mass where the
  iterate has none, and that falls by α a sweep: see liverank_gpu.personalized.deflation_trial.

Vertices without edges are excluded: their y is known in closed form and follows β at once, so sums
are over the others. (Where half of the vertices have no edges, as in R-MAT, including them would
leave an error that falls by 0.4 a sweep instead of 0.14.)
"""

from __future__ import annotations

from dataclasses import dataclass

from liverank_gpu.operations.sweeps import DeflationVector
from liverank_gpu.pagerank.certificate import UNIT_ROUNDOFF, Certificate, Scalar


@dataclass(frozen=True, slots=True)
class Deflation:
    """A direction and what is known of its image.

    image_sum    Σ(A·z) over the vertices with edges
    vector       z and its residual; None for the right-hand side
    mass         Σz
    image_error  how far A·z can be off by rounding, in L1
    """

    image_sum: float
    vector: DeflationVector | None = None
    mass: float = 0.0
    image_error: float = 0.0

    def coefficient(self, residual_sum: Scalar) -> Scalar:
        """c, for what Σr would be without it."""
        return residual_sum / self.image_sum

    def rounding_error(self, coefficient: Scalar, certificate: Certificate) -> Scalar:
        """How far r can be off after ``y += c·z, r -= c·A·z``: the image's own error, products and
        subtractions, and what y rounds away, negative entries included.
        """
        size = abs(coefficient)
        image = self.image_error + 4.0 * UNIT_ROUNDOFF * (self.mass + self.image_sum)
        values = abs(certificate.mass) + size * self.mass
        values = values + certificate.residual_l1 / (1.0 - certificate.damping)
        return size * image + 4.0 * UNIT_ROUNDOFF * values
