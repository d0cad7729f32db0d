package comfyui

import (
	"context"
	"time"
)

// Probe checks whether a ComfyUI answers at a URL. The error is that of [Client.SystemStats],
// [ErrHub] for a hub. A connection may take a second; ctx bounds the rest.
func Probe(ctx context.Context, url string) error {
	client, err := NewClient(url, Options{DialTimeout: time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.SystemStats(ctx)
	return err
}
