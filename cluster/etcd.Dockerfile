# A real etcd for cluster/etcd.yml, run like the other roles: as the same unprivileged user, with a folder that it owns.
ARG ETCD_IMAGE
FROM ${ETCD_IMAGE} AS etcd

FROM python:3.11-slim-bookworm
COPY --from=etcd /usr/local/bin/etcd /usr/local/bin/etcdctl /usr/local/bin/
RUN useradd --system --uid 10001 --home-dir /data --no-create-home etcd \
 && install -d -o etcd -g etcd -m 0700 /data /secrets
USER etcd
WORKDIR /data
ENTRYPOINT ["etcd"]
