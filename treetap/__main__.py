"""`python -m treetap` runs the command line. Guarded: worker processes import this module under another name."""

if __name__ == "__main__":
    from treetap.commands.cli import main

    main()
