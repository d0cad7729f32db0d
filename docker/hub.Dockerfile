# The hub: docker build -f docker/hub.Dockerfile .
FROM golang:1.26-alpine@sha256:8ac98ca534ac3f51e1f420a1dd2c15e74c75cfa0f23f3ad27eb5d7236c349a0c AS build
WORKDIR /src
# Modules first: a change of the code does not fetch them again.
COPY go.mod go.sum ./
ENV CGO_ENABLED=0 GOWORK=off
RUN go mod download
COPY . .
RUN --mount=type=cache,target=/root/.cache/go-build \
	go build -trimpath -ldflags '-s -w' -tags nobadger,nomysql,nopgx -o /out/comfyhub ./caddymodule/caddy \
	&& ln -s comfyhub /out/caddy

FROM alpine:3.22@sha256:5291449c3df73caf6ed85e649dec1b9e818b39a5d8c871e97afc13e9cd5e8fa8
RUN apk add --no-cache ca-certificates \
	&& adduser -D -H -u 1000 comfyhub \
	&& install -d -o comfyhub -g comfyhub /data
COPY --from=build /out/ /usr/bin/
COPY Caddyfile /etc/caddy/Caddyfile
# Caddy's own notes and certificates lie beside the hub's data.
# Who reaches a container is decided by the ports that are published.
ENV COMFYHUB_ADDR=:8188 \
	COMFYHUB_OPERATORS=:8187 \
	COMFYHUB_DATA=/data/hub \
	XDG_DATA_HOME=/data \
	XDG_CONFIG_HOME=/data
USER 1000:1000
VOLUME /data
# ComfyUI's API; the operators' site; gossip. The admin endpoint stays inside the container.
EXPOSE 8188 8187 7946/tcp 7946/udp
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
	CMD ["wget", "-q", "-O", "/dev/null", "http://127.0.0.1:2019/comfyhub/ready"]
CMD ["comfyhub", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]
