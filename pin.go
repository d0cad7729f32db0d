//go:build pin

// Package pin keeps the dependencies of packages under construction in go.mod.
package pin

import (
	_ "github.com/alicebob/miniredis/v2"
	_ "github.com/caddyserver/caddy/v2/caddytest"
	_ "github.com/coder/websocket"
	_ "github.com/dustin/go-humanize"
	_ "github.com/go-telegram/bot"
	_ "github.com/google/uuid"
	_ "github.com/hashicorp/memberlist"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/redis/go-redis/v9"
	_ "github.com/spf13/cobra"
	_ "github.com/stretchr/testify/require"
	_ "go.uber.org/goleak"
	_ "go.uber.org/zap"
	_ "go.uber.org/zap/exp/zapslog"
	_ "gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/memblob"
	_ "golang.org/x/crypto/hkdf"
	_ "golang.org/x/image/draw"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/time/rate"
)
