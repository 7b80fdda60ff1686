"""Ranks and programs of a graph whose edges do not fit into a memory budget.

The values of vertices stay in memory; the in-lists are in a file, or on ``cuda`` in page-locked
memory of the host if it has room, and every sweep reads them once, in windows:

    spool     edges in any order → packed in-lists in a scratch file, in bounded memory, and which
              vertices are adjacent
    windows   in-lists through two buffers: one is filled while the other is computed; the graph as
              a solve reads it; operations, window by window
    views     the graph as programs and algorithms read it
    ranking   how many bytes what needs, and the least budget that works; a solve
    programs  programs and algorithms, asked for by name

An interval is a range of vertices, balanced by in-degree; its in-lists, sorted by target and then
by source, are its shard (Kyrola, Blelloch and Guestrin, "GraphChi", OSDI 2012, section 3). Since a
sweep pulls over in-lists and what vertices send fits in memory, no window slides over the shards of
other intervals: a sweep reads 4 bytes an edge, in order, and writes nothing.
"""
