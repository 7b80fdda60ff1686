"""Sets of vertices: the client names, changes and reads them."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from liverank import Client, PersonalizedQuery, ServerError
from liverank.client import SetChange, Snapshot
from tests.service.server import Server


def test_sets_are_changed_with_batches_and_read(server: Server) -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]
    with Client(str(server.http.base_url)) as client:
        client.create("with-sets")
        client.insert("with-sets", edges)
        assert client.put_set("with-sets", "mine", pd.Series(["d", "b"])).size == 2
        changed = {"mine": SetChange(add=["new"], remove=["d"])}
        frame = pl.DataFrame({"source": ["new"], "target": ["a"]})
        receipt = client.send("with-sets", frame, sets=changed)
        members = client.vertex_set("with-sets", "mine", min_version=receipt.version)
        assert members.vertices == ["b", "new"]
        assert set(client.top("with-sets", among="mine").to_dict()) == {"b", "new"}
        first = next(client.changes("with-sets", among="mine", top=2))
        assert isinstance(first, Snapshot)
        assert {place.vertex for place in first.top} == {"b", "new"}
        query = PersonalizedQuery({"a": 1, "nobody": 5}, unknown="ignore")
        (answer,) = client.personalized_many("with-sets", [query]).answers
        assert answer.ignored == ["nobody"]
        alone = client.personalized("with-sets", "a", 5, damping=0.5, among="mine")
        assert set(alone.to_dict()) == {"b"}  # walks from the seed never reach the other
        inside = client.personalized("with-sets", "b", 5, within="mine")
        assert set(inside.to_dict()) == {"b"}
        table = client.personalized_table("with-sets", {"seed": ["b"]}, 5, within="mine")
        assert table.to_arrow()["vertex"].to_pylist() == ["b"]
        listed = PersonalizedQuery({"a": 1}, within=["b", "a"])
        (answer,) = client.personalized_many("with-sets", [listed]).answers
        assert set(answer.to_dict()) == {"a", "b"}
        nothing = client.personalized("with-sets", "nobody", unknown="ignore")
        assert (nothing.ranks, nothing.ignored) == ([], ["nobody"])
        watched = client.watch("with-sets", "a's", PersonalizedQuery({"a": 1}, k=2))
        best = watched.ranks[0]
        assert client.watched_rank("with-sets", "a's", best.vertex).rank == best.rank
        view = client.put_view("with-sets", "trust", {"set": "mine"}, refresh="read")
        assert (view.teleport, view.set, view.refresh) == ("set", "mine", "read")
        assert client.view("with-sets", "trust").error_bound == view.error_bound
        assert [each.name for each in client.views("with-sets")] == ["trust"]
        top = client.top("with-sets", 1, view="trust").ranks[0]
        assert client.rank("with-sets", top.vertex, view="trust").rank == top.rank
        assert client.ranks("with-sets", [top.vertex], view="trust").ranks == [top.rank]
        exported = client.export_ranks("with-sets", view="trust").to_arrow().to_pylist()
        assert {"vertex": top.vertex, "rank": top.rank} in exported
        receipt = client.insert("with-sets", [("b", "d")])
        assert receipt.views["trust"] is not None
        assert receipt.view_seconds.keys() == {"trust"}
        many = pa.table({"seed": ["a", "nobody"], "weight": [2.0, 1.0]})
        view = client.put_view("with-sets", "trust", {"weights": many}, unknown="ignore")
        assert (view.weights, view.ignored, view.refresh) == (2, ["nobody"], "batch")
        client.remove_view("with-sets", "trust")
        client.drop_set("with-sets", "mine")
        with pytest.raises(ServerError) as refused:
            client.vertex_set("with-sets", "mine")
        assert refused.value.status == 404
