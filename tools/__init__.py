"""Programs for those who build treetap: the build backend, renderers of pages, and the making of a release."""
