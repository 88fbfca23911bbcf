# Operator, workers and migrations, and the converter that workers start: docker build --tag registry.example.com/sluice:0.1.0 .
FROM rust:1.95-slim-bookworm AS build
# `ring` and the converter's allocator compile C for the target; /etc/ssl comes along for the databases and providers that are spoken to.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates make musl-tools \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /build
ARG TARGETARCH=amd64
RUN case "$TARGETARCH" in \
      amd64) echo x86_64-unknown-linux-musl ;; \
      arm64) echo aarch64-unknown-linux-musl ;; \
      *) echo "no build for $TARGETARCH" >&2; exit 1 ;; \
    esac > /target \
 && rustup target add "$(cat /target)"
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/build/target \
    CARGO_PROFILE_RELEASE_STRIP=symbols cargo build --release --locked --workspace --bins --target "$(cat /target)" \
 && cp "target/$(cat /target)/release/sluice" "target/$(cat /target)/release/sluice-convert" /

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /sluice /sluice-convert /
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
ENTRYPOINT ["/sluice"]
