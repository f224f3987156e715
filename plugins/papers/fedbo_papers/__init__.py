"""Reproducing published figures: manifests, studies, statements, and the page that shows them."""
