"""What a release is made of: `dist` builds it, `lock` pins what it is built from, `check` says what is left."""
