"""Boards and alerts."""
