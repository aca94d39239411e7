"""Evaluations of predictions against labels, as plain JSON documents: see `treetap.trees.evaluation.document`."""

from treetap.trees.evaluation.document import evaluate as evaluate
