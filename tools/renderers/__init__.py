"""Scripts that write what docs/ has from code and results: tables, pictures, the reference and the site.

`python -m tools.renderers` writes all that follows from the code alone (`make reference`); `python -m
tools.renderers.NAME` what follows from something measured or run, and `python -m tools.renderers.site` the site.

Pictures, each with what draws it anew:

architecture.svg            by hand
audit.png                   python -m tools.renderers.samples, with docs/samples; Chromium
console-*.png               python -m tests.console.pictures; Chromium
demo.svg                    python -m tools.renderers.demo
frontier*.svg               python -m tools.renderers.frontier FRONTIER.json NAME.svg, of the runs that
                            `python benchmarks/stored_figures.py --list` has
growth.svg                  python -m tools.renderers.growth, of benchmarks/growth.jsonl
pivodl-roles.svg            python -m tools.renderers roles
protocol-boosting.svg       python -m tools.renderers orders
"""
