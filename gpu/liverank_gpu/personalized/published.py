"""One personalized query by the published algorithms (Wang et al., "A lock-free approach to
parallelizing personalized PageRank computations on GPU").

An iteration takes the residual of every vertex of the work-list, r > θ, and sends it to the
out-neighbours; there are none left at the end. θ is the same for all vertices and all iterations.

``push``     one-pass forward push, the baseline of their figure 2: each addition is tested
``pushopt``  lightweight forward push (section 2): additions, a barrier, then one test a vertex
``pull``     forward pull (section 3): each vertex adds up what all of its in-neighbours send
``hybrid``   pushopt where Ψ < 0, else pull, decided before each iteration (section 4)

The paper defines Ψ as the difference of the two run times, and leaves its formula to a supplement.
Here it is counted, in edges of a pull:

    Ψ = pushed_edge · (out-edges of the work-list) - (edges of the graph).

The paper does not say how large θ is. Here it is such that the error bound at the end is at most
the target: Σr ≤ n·θ, and y holds what the residual does not, at least, so

    θ = ε(1-α)β / ((2 + ε(1-α))·n).

Nothing of ours is used: loops are sent like other edges, there is no correction and no deflation.
A vertex without out-edges sends nothing, which lets its rank return to the seeds. The maintained
residual is not trusted: one pull computes it from y afterwards, for the certificate.
"""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations import published as op
from liverank_gpu.personalized.certified_top_k import certified_top_k
from liverank_gpu.personalized.iterate import PersonalizedIterate
from liverank_gpu.personalized.query import QueryContext
from liverank_gpu.personalized.resolve import ResolvedQuery
from liverank_gpu.types import Personalized, Trace, TraceStep

_PURPOSE = "a published personalized query"


class PublishedQuery:
    """A running query: `step` until `done`, then `answer`; `close` in any case. It does not follow
    batches: it begins again.

    work_list  of the next iteration
    own_list   the part of it that is in the queue: all of it, but where the graph is a shard
    Raises OutOfMemory.
    """

    def __init__(self, context: QueryContext, query: ResolvedQuery) -> None:
        self.query = query
        self.iterations = 0
        self._pool, self._graph, self._vertices = context.pool, context.graph, context.vertices
        graph, device = self._graph, self._graph.backend.device
        contributions = device.allocate(_PURPOSE, graph.columns, np.float64)
        lists = [device.allocate(_PURPOSE, graph.vertices, np.int32) for _ in range(3)]
        lists[-1].fill(0)
        self.iterate = PersonalizedIterate(
            graph, self._pool.take(), query.options, query.seeds, self._vertices
        )
        # from now on all entries may change
        self.iterate.workspace.drop_list()
        workspace = self.iterate.workspace
        vectors = (workspace.values, workspace.residual.values, contributions)
        self.state = op.ForwardState(*vectors, *lists)
        damping, vertices = query.options.damping, graph.ids.count
        share = query.target_error * (1.0 - damping)
        self.threshold = share * self.iterate.rhs_scale / ((2.0 + share) * vertices)
        self._steps: list[TraceStep] = []
        self._modes: set[op.Mode] = set()
        self._follow(self._detected())

    def _detected(self) -> op.WorkList:
        graph = self._graph
        return graph.backend.run(op.DetectListed(graph.view, self.state, self.threshold))

    def _follow(self, own_list: op.WorkList) -> None:
        """Takes the list of the next iteration."""
        self.own_list = own_list
        self.work_list = op.WorkList(*map(int, self._vertices.sums(own_list)))

    @property
    def done(self) -> bool:
        at_limit = self.iterations >= self.query.options.max_iterations
        return self.work_list.vertices == 0 or at_limit

    @property
    def cost_difference(self) -> float:
        """Ψ: what the next iteration costs by `pushopt` more than by `pull`, in edges of a pull."""
        return self._graph.backend.costs.forward_edge * self.work_list.edges - self._graph.arcs

    @property
    def mode(self) -> op.Mode:
        """How the next iteration propagates."""
        if self.query.method == "hybrid":
            return "pushopt" if self.cost_difference < 0.0 else "pull"
        method: op.Mode = self.query.method  # type: ignore[assignment]
        return method

    def step(self) -> None:
        """One iteration. Every u of the list takes x = r[u], before anything is sent:

            y[u] += x,  r[u] = αℓx/d(u),  r[v] += α·x/d(u) for each out-neighbour v,

        times the weight of the edge if there are weights; then the next list has every v with
        r[v] > θ.
        """
        graph, state, mode = self._graph, self.state, self.mode
        if self.query.trace:
            self._trace(mode)
        run, listed = graph.backend.run, (graph.view, state, self.own_list)
        damping = self.query.options.damping
        if mode == "push":
            self._follow(run(op.PushInOnePass(*listed, damping, self.threshold)))
        else:
            if mode == "pull":
                state.contributions.fill(0.0)
                run(op.TakeListed(*listed, damping))
                run(op.PullListed(graph.view, graph.in_rows(), state))
            else:
                run(op.PushListed(*listed, damping))
            self._follow(self._detected())
        self._modes.add(mode)
        self.iterations += 1

    def _trace(self, mode: op.Mode) -> None:
        listed, own = self.work_list, self.own_list.vertices
        # y rises by the residual
        rises = self.state.residual[self.state.queue[:own]]
        largest = self._vertices.highest(float(rises.max()) if own else 0.0)
        self._steps.append(
            TraceStep(
                "sweep" if mode == "pull" else "push",
                1,
                listed.vertices,
                self._graph.arcs if mode == "pull" else listed.edges,
                largest_change=largest,
                threshold=self.threshold,
                mode=mode,
                cost_difference=self.cost_difference,
            )
        )

    def answer(self) -> Personalized:
        """The places, with a certificate from one pull over all in-lists."""
        iterate, query = self.iterate, self.query
        iterate.recompute_residual(self.state.contributions)
        places = certified_top_k(iterate, query.k, query.among)
        mass = float(iterate.certificate.mass)
        return Personalized(
            vertices=places.vertices,
            ranks=places.values / (mass if mass > 0.0 else 1.0),
            error_bound=min(2.0, iterate.error_bound),
            **places.proven._asdict(),
            method=next(iter(self._modes)) if len(self._modes) == 1 else query.method,
            iterations=self.iterations,
            trace=Trace.of(len(query.seeds.vertices), self.iterations, self._steps)
            if query.trace
            else None,
        )

    def close(self) -> None:
        """Gives the workspace back."""
        self._pool.give_back(self.iterate.workspace)
