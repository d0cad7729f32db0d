# The agent: docker build -f docker/agent.Dockerfile .
FROM golang:1.26-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ENV CGO_ENABLED=0
RUN --mount=type=cache,target=/root/.cache/go-build \
	go build -trimpath -ldflags '-s -w' -o /out/agent ./agent

FROM alpine:3.22
RUN adduser -D -H -u 1000 comfyhub
COPY --from=build /out/agent /usr/bin/agent
USER comfyhub
# Gossip; the way to its ComfyUI servers.
EXPOSE 7946/tcp 7946/udp 7947
ENTRYPOINT ["agent"]
CMD ["run"]
