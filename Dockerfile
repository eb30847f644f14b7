# syntax=docker/dockerfile:1
# A server without a compiler, as a user without rights, whose root file system may be read-only. docs/operations.md says how to run it.
#
#   docker build -t kvasir .
#   docker run --rm -p 8000:8000 --read-only -v /srv/models:/models:ro kvasir serve /models/model.gguf --host 0.0.0.0
#
# NODE_IMAGE: pin it by digest where builds must be repeatable. Both stages have the same C library.
ARG NODE_IMAGE=node:24-bookworm-slim

FROM ${NODE_IMAGE} AS build
# Zig builds the kernels for all CPU levels of the platform (docs/adr/0022-prebuilt-kernels.md).
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install -y --no-install-recommends python3 python3-pip \
  && rm -rf /var/lib/apt/lists/* \
  && python3 -m pip install --no-cache-dir --break-system-packages ziglang==0.14.1
WORKDIR /src
COPY package.json ./
RUN npm install --ignore-scripts --no-audit --no-fund
COPY . .
RUN npm run --silent build \
  && node dist/scripts/prebuild.js --target "linux-$(node -p process.arch)" \
  && npm pack --ignore-scripts --pack-destination /tmp
# The package as `npm install kvasir` gives it, and the optional packages of servers: clients of shared tiers and others.
WORKDIR /app
# hadolint ignore=SC2046
RUN npm init --yes > /dev/null \
  && npm install --ignore-scripts --no-audit --no-fund --omit=dev /tmp/kvasir-*.tgz $(node -p "\
    const { peerDependencies, devDependencies } = require('/src/package.json'); \
    const names = Object.keys(peerDependencies).filter((name) => name !== '@ai-sdk/provider'); \
    names.map((name) => name + '@' + devDependencies[name]).join(' ')") \
  && test -f "node_modules/kvasir/prebuilt/linux-$(node -p process.arch)/manifest.json" \
  && node node_modules/kvasir/dist/bundle/src/main.js doctor

FROM ${NODE_IMAGE}
LABEL org.opencontainers.image.title="Kvasir" \
  org.opencontainers.image.description="LLM inference server whose text stays the same when external KV cache vanishes, arrives late or arrives wrong" \
  org.opencontainers.image.licenses="MIT"
# Downloaded models and digests of model files go to these folders if they are mounted and writable. Nothing else is written.
ENV NODE_ENV=production \
  HF_HUB_CACHE=/models/hub \
  XDG_CACHE_HOME=/cache
COPY --from=build /app /app
RUN ln -s /app/node_modules/.bin/kvasir /usr/local/bin/kvasir
# A number, because Kubernetes' runAsNonRoot cannot check a name.
USER 10001:10001
WORKDIR /models
EXPOSE 8000
STOPSIGNAL SIGTERM
# Kubernetes has its own probes (deploy/kubernetes).
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m \
  CMD ["node", "-e", "fetch('http://127.0.0.1:8000/health').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "/app/node_modules/kvasir/dist/bundle/src/main.js"]
CMD ["serve", "--host", "0.0.0.0"]
