"""Ranks and programs of a graph whose edges do not fit into a memory budget.

The values of vertices stay in memory; the in-lists are in a file, or on ``cuda`` in page-locked
memory of the host if it has room, and every sweep reads them once, in windows:

    budget            how many bytes what needs, and the least budget that works
    scratch_file      files without a name, which end with the process
    vertex_order      which vertices are adjacent
    spool             edges in any order → packed in-lists in a scratch file, in bounded memory
    window_stream     in-lists through two buffers: one is filled while the other is computed
    windowed_graph    the graph as a solve reads it
    active_windows    which windows have something to do
    windowed_program  a vertex program, window by window
    undirected        the edges without direction, to be packed again
    peeling, core_numbers, labels, triangles, trusses
                      what algorithms do, window by window
    edge_values       values of edges in the order of ids
    algorithms        built-in algorithms
    edges             edges that are added, and the budget divided
    ranking, programs all of it together: the public surface

An interval is a range of vertices, balanced by in-degree; its in-lists, sorted by target and then
by source, are its shard (Kyrola, Blelloch and Guestrin, "GraphChi", OSDI 2012, section 3). Since a
sweep pulls over in-lists and what vertices send fits in memory, no window slides over the shards of
other intervals: a sweep reads 4 bytes an edge, in order, and writes nothing.
"""
