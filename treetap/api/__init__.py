"""The Python API: estimators by scikit-learn's conventions, experiments, audits and models as objects.

The second roof beside the command line: it calls `treetap.commands`, and no module imports it. `treetap/__init__.py`
finds its names when they are first asked for, so that a party that imports treetap loads none of it.
"""

from treetap.logs import quiet_grpc

quiet_grpc()  # before it is imported: its lines on idle connections look like failures
