package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// clockKey is written to learn the time.
const clockKey = "comfyhub-clock"

// text reads a small file of the hubs' own, "" if there is none.
func (s *Storage) text(ctx context.Context, key string, most int64) (string, error) {
	text, err := s.ownFile(ctx, key, most)
	if errors.Is(err, ErrGone) {
		return "", nil
	}
	return text, err
}

// ownFile reads a small file of the hubs' own.
func (s *Storage) ownFile(ctx context.Context, key string, most int64) (string, error) {
	body, err := s.Open(ctx, key, 0, -1)
	if err != nil {
		return "", err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, most))
	if err != nil {
		return "", fmt.Errorf("%w: read: %w", ErrStorage, err)
	}
	return string(data), nil
}

// Now returns the time of the storage's own clock, by which blobs have their ages. It may differ
// from a hub's, or from that of a network file system's server.
func (s *Storage) Now(ctx context.Context) (time.Time, error) {
	if _, err := s.Write(ctx, clockKey, strings.NewReader("now")); err != nil {
		return time.Time{}, err
	}
	b, err := s.Stat(ctx, clockKey)
	return b.Modified, err
}
