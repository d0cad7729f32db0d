# The agent: docker build -f docker/agent.Dockerfile .
FROM golang:1.26-alpine@sha256:8ac98ca534ac3f51e1f420a1dd2c15e74c75cfa0f23f3ad27eb5d7236c349a0c AS build
WORKDIR /src
COPY go.mod go.sum ./
ENV CGO_ENABLED=0 GOWORK=off
RUN go mod download
COPY . .
RUN --mount=type=cache,target=/root/.cache/go-build \
	go build -trimpath -ldflags '-s -w' -o /out/ ./agent ./comfysim

FROM alpine:3.22@sha256:5291449c3df73caf6ed85e649dec1b9e818b39a5d8c871e97afc13e9cd5e8fa8
RUN adduser -D -H -u 1000 comfyhub && install -d -m 0700 -o comfyhub -g comfyhub /var/lib/comfyhub-agent
COPY --from=build /out/ /usr/bin/
# The agent's own key, by which hubs know it: mount a volume that lasts.
ENV COMFYHUB_AGENT_STATE=/var/lib/comfyhub-agent
VOLUME /var/lib/comfyhub-agent
USER 1000:1000
# Gossip; the way to its ComfyUI servers.
EXPOSE 7946/tcp 7946/udp 7947
ENTRYPOINT ["agent"]
CMD ["run"]
