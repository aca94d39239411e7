"""Scripts that write what docs/ has from code and results: tables, pictures, the reference and the site.

`python -m tools.renderers` writes all that follows from the code alone (`make reference`); `python -m
tools.renderers.NAME` what follows from something measured or run, and `python -m tools.renderers.site` the site.
"""
