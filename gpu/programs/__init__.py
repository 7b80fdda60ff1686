"""Programs on the live graph: those that users write, and those that come along."""
