"""The recipes of docs/how-to/trust.md over HTTP, against the formulas of their papers."""

from __future__ import annotations

import numpy as np
import pytest

from liverank import Client, SetChange
from tests.service.server import Server


def test_eigentrust_follows_ratings(server: Server) -> None:
    """t = (1-a)·Cᵀ·t + a·p of Kamvar et al. (2003), c_ij = p_j in rows without trust."""
    peers, a = ["ada", "bo", "cy", "dan", "eve"], 0.1
    local = np.array(
        [[0, 3, 1, 0, 0], [2, 0, 4, 0, 0], [5, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 2, 9, 0]]
    )
    trusted = np.array([0.75, 0.25, 0.0, 0.0, 0.0])
    pairs = [(peers[i], peers[j], float(local[i, j])) for i, j in np.argwhere(local)]
    with Client(str(server.http.base_url)) as client:
        client.create("peers", weighted=True)
        client.insert("peers", pairs)
        teleport = {"weights": {"ada": 3, "bo": 1}}
        client.put_view("peers", "trust", teleport, damping=1 - a, target_error=1e-10)
        for changed in (None, ("bo", "cy", 4), ("cy", "dan", 1)):
            if changed:
                # bad transactions take their share away, the last one the edge
                client.delete("peers", [changed], on_conflict="add")
                local[peers.index(changed[0]), peers.index(changed[1])] -= changed[2]
            sums = local.sum(axis=1, keepdims=True)
            matrix = np.where(sums > 0, local / np.maximum(sums, 1), trusted)
            expected = np.linalg.solve(np.eye(5) - (1 - a) * matrix.T, a * trusted)
            found = client.ranks("peers", peers, view="trust")
            assert found.error_bound <= 1e-10
            assert np.abs(np.array(found.ranks) - expected).sum() <= 1e-9


def test_trust_less_distrust_follows_labels(server: Server) -> None:
    links = {
        "good": ["blog", "news"],
        "news": ["good"],
        "blog": ["spam", "good", "news"],
        "spam": ["farm", "good"],
        "farm": ["spam"],
    }
    pages = list(links)
    steps = np.zeros((5, 5))
    for page, targets in links.items():
        for target in targets:
            steps[pages.index(page), pages.index(target)] = 1.0

    def expected(steps: np.ndarray, labelled: list[str]) -> np.ndarray:
        """t = α·Tᵀ·t + (1-α)·d: nothing dangles here."""
        restarts = np.isin(pages, labelled) / len(labelled)
        matrix = steps / steps.sum(axis=1, keepdims=True)
        return np.linalg.solve(np.eye(5) - 0.85 * matrix.T, 0.15 * restarts)

    with Client(str(server.http.base_url)) as client:
        client.create("pages")
        client.insert("pages", [(page, target) for page in pages for target in links[page]])
        client.put_set("pages", "trusted", ["good"])
        client.put_set("pages", "spam", ["spam"])
        client.put_view("pages", "trust", {"set": "trusted"}, target_error=1e-9)
        client.put_view(
            "pages", "distrust", {"set": "spam"}, direction="reversed", target_error=1e-9
        )
        for labelled in (["spam"], ["spam", "farm"]):
            changes = {"spam": SetChange(add=labelled)}
            version = client.send("pages", sets=changes).version
            trust = client.ranks("pages", pages, view="trust", min_version=version)
            distrust = client.ranks("pages", pages, view="distrust", min_version=version)
            found = np.array(trust.ranks) - 0.5 * np.array(distrust.ranks)
            exact = expected(steps, ["good"]) - 0.5 * expected(steps.T, labelled)
            bound = trust.error_bound + 0.5 * distrust.error_bound
            assert bound == pytest.approx(0.0, abs=1.5e-9)
            assert np.abs(found - exact).sum() <= bound + 1e-12
            assert found[:3].min() > 0.0 > found[3:].max()
