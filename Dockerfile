# treetap for parties, coordinators and operators: `docker build -t treetap .`, which leaves out attacks and laboratory.
# With extras: `docker build --build-arg EXTRAS="serve neural" -t treetap .`. With attacks and laboratory, for audits:
# `docker build --target audit --build-arg EXTRAS=audit -t treetap-audit .`, as the compose file does.
# EXTRAS=neural with PyTorch's build for CPUs: add --build-arg PIP_EXTRA_INDEX_URL=… (docs/deploy.md).
# Stages: neither the sources nor the build's temporary files are in the image. BuildKit is not needed.
# Dependencies come first, by the hashes of tools/release/locked: fetched again when these change, not when anything else does.
# A base pinned by its digest is the same at every build: --build-arg BASE=python:3.11-slim-bookworm@sha256:… (docs/deploy.md).
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS requirements
WORKDIR /src
COPY pyproject.toml ./
COPY tools/release/locked tools/release/locked
# What is pinned comes with the hash of each file; of an extra that is not (neural: PyTorch has builds by hardware), as
# pyproject.toml says.
ARG EXTRAS=
RUN cp tools/release/locked/image.txt locked.txt && touch extras.txt open.txt \
 && for extra in $EXTRAS; do \
      if test -f "tools/release/locked/image-$extra.txt"; then cat "tools/release/locked/image-$extra.txt" >> extras.txt; \
      else echo "$extra: not pinned (tools/release/locked)" && python -c "import sys, tomllib; \
        p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
        print(*p['optional-dependencies'][sys.argv[1]], sep='\n')" "$extra" >> open.txt; fi; done

FROM ${BASE} AS wheel
WORKDIR /src
COPY pyproject.toml LICENSE README.md ./
COPY tools/build_backend tools/build_backend
COPY attacks attacks
COPY coordinator coordinator
COPY lab lab
COPY ops ops
COPY party party
COPY treetap treetap
# Native kernels, in the forms of every processor, whichever builds the image; --build-arg TREETAP_NATIVE=0 leaves them out.
ARG TREETAP_NATIVE=1
RUN python -m pip wheel --no-cache-dir --disable-pip-version-check --no-deps --wheel-dir /wheels .

FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv --without-pip /opt/treetap
COPY --from=requirements /src/locked.txt ./
RUN python -m pip --python /opt/treetap install --no-cache-dir --disable-pip-version-check --require-hashes -r locked.txt \
 # headers, sources and tests are only needed to build against the packages; shared libraries stay: they load each other
 && cd /opt/treetap/lib/python3*/site-packages \
 && rm -rf pyarrow/include pyarrow/src pyarrow/tests \
 && find numpy -type d -name tests -prune -exec rm -rf {} +
# What extras need beside it: images with and without them share the layer above, and the wheel of treetap below.
COPY --from=requirements /src/extras.txt /src/open.txt ./
RUN test ! -s extras.txt || python -m pip --python /opt/treetap install --no-cache-dir --disable-pip-version-check \
      --require-hashes -r locked.txt -r extras.txt
ARG PIP_EXTRA_INDEX_URL=
RUN test ! -s open.txt || python -m pip --python /opt/treetap install --no-cache-dir --disable-pip-version-check -r open.txt
COPY --from=wheel /wheels /wheels
RUN python -m pip --python /opt/treetap install --no-cache-dir --disable-pip-version-check --no-deps /wheels/*.whl

FROM ${BASE} AS process
# A fixed user id, so that files on a host can belong to it.
RUN groupadd --gid 10001 treetap \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/treetap --shell /usr/sbin/nologin treetap \
 && install -d -o treetap -g treetap -m 700 /var/lib/treetap /var/lib/treetap-coordinator
# Login shells, as KubeRay starts some, forget the path below.
RUN echo 'PATH=/opt/treetap/bin:$PATH' > /etc/profile.d/treetap.sh
# Bytecode was compiled at the build, and the processes may run on a read-only file system.
ENV PATH=/opt/treetap/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER treetap
WORKDIR /var/lib/treetap
# A coordinator's container names its own file: `--config /etc/treetap-coordinator/coordinator.toml`.
HEALTHCHECK --interval=30s --timeout=15s --start-period=30s --retries=3 \
  CMD ["treetap", "health", "--config", "/etc/treetap/party.toml"]
ENTRYPOINT ["treetap"]
CMD ["--help"]

FROM process AS audit
COPY --from=build /opt/treetap /opt/treetap

FROM build AS without_laboratory
RUN rm -r /opt/treetap/lib/python3*/site-packages/treetap/attacks /opt/treetap/lib/python3*/site-packages/treetap/lab

FROM process AS party
COPY --from=without_laboratory /opt/treetap /opt/treetap
