"""The Python API: estimators by scikit-learn's conventions, experiments, audits and models as objects.

The second roof beside the command line: it calls `treetap.commands`, and no module imports it. `treetap/__init__.py`
finds its names when they are first asked for, so that a party that imports treetap loads none of it.
"""

import logging

from treetap.logs import quiet_grpc

# what a caller has to know is raised or warned of: lines of the log are for those who take them
logging.getLogger("treetap").addHandler(logging.NullHandler())
quiet_grpc()  # before it is imported: its lines on idle connections look like failures
