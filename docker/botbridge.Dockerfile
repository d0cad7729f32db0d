# The bot bridge: docker build -f docker/botbridge.Dockerfile .
FROM golang:1.26-alpine@sha256:8ac98ca534ac3f51e1f420a1dd2c15e74c75cfa0f23f3ad27eb5d7236c349a0c AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY botbridge/go.mod botbridge/go.sum botbridge/
ENV CGO_ENABLED=0 GOWORK=off
RUN go -C botbridge mod download
COPY . .
RUN --mount=type=cache,target=/root/.cache/go-build \
	go -C botbridge build -trimpath -ldflags '-s -w' -o /out/botbridge .

FROM alpine:3.22@sha256:5291449c3df73caf6ed85e649dec1b9e818b39a5d8c871e97afc13e9cd5e8fa8
RUN apk add --no-cache ca-certificates \
	&& adduser -D -H -u 1000 comfyhub \
	&& install -d -o comfyhub -g comfyhub /data
COPY --from=build /out/botbridge /usr/bin/botbridge
# Mount a folder of your own here: bot.yaml with its workflows.
COPY examples/bot /etc/comfyhub/bot
ENV COMFYHUB_BOT_DATA=/data \
	COMFYHUB_BOT_LISTEN=0.0.0.0:8190
USER 1000:1000
VOLUME /data
# Health, metrics, webhook.
EXPOSE 8190
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
	CMD ["wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8190/health/ready"]
ENTRYPOINT ["botbridge"]
CMD ["run", "--config", "/etc/comfyhub/bot/bot.yaml"]
