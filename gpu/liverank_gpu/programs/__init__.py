"""Programs on the live graph: those that users write, and the built-in ones."""
