package caddymodule

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLogsFollowTheConfiguration(t *testing.T) {
	t.Parallel()
	plain := func(w *bytes.Buffer, level slog.Level) slog.Handler {
		return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
	}
	var first, second bytes.Buffer
	var logs logSwitch
	logs.use(plain(&first, slog.LevelInfo))

	part := logs.logger().With("part", "queue").WithGroup("job")
	one, other := part.With("key", 1), part.With("key", 2)
	one.Debug("unseen")
	one.Info("before")
	require.Equal(t, "level=INFO msg=before part=queue job.key=1\n", first.String())

	logs.use(plain(&second, slog.LevelDebug))
	one.Debug("after")
	other.Info("after")
	require.Equal(t, "level=DEBUG msg=after part=queue job.key=1\nlevel=INFO msg=after part=queue job.key=2\n", second.String())
	require.Equal(t, 1, bytes.Count(first.Bytes(), []byte("\n")))
}
