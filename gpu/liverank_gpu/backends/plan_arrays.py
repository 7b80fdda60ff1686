"""Arrays of a BatchPlan that kernels take together, in the order in which they take them."""

from __future__ import annotations

from operator import attrgetter

edges = attrgetter("edge_operation", "edge_neighbour", "edge_row", "edge_slot")
rows = attrgetter("row_edge", "row_vertex", "row_loop", "row_work")
row_changes = attrgetter("row_vertex", "row_loop", "row_removed", "row_added")
removed = attrgetter("removed_row", "removed_neighbour", "removed_slot")
added = attrgetter("added_row", "added_neighbour")
