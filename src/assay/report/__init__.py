"""Saying things: records become tables, figures and pages. Imports records alone."""
