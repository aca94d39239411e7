"""`python -m treetap` runs the command line. Guarded: a process that is started anew may import it by another name."""

if __name__ == "__main__":
    from treetap.commands.cli import main

    main()
