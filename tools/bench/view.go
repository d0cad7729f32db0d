package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/comfyhub/comfyhub/internal/testing/figure"
)

const (
	// viewers download pictures of pictureBytes at once; the two sides take turns of
	// viewSpan, so that whatever else the machine does meets both.
	viewers      = 16
	pictureBytes = 4 << 20
	viewRounds   = 6
	viewSpan     = time.Second
)

// view compares how fast pictures are served.
func view(r *rig) ([]figure.Figure, error) {
	urls, _, err := r.instances(1)
	if err != nil {
		return nil, err
	}
	h, err := r.fleet("hub", urls, false)
	if err != nil {
		return nil, err
	}
	content := noise(r.seed)
	name, err := upload(r.ctx, h.URL("/upload/image"), content)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(r.dir, "files")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
		return nil, err
	}
	plain, err := r.serveFiles(folder)
	if err != nil {
		return nil, err
	}
	sides := []string{h.URL("/view?type=input&filename=" + name), plain + "/" + name}
	rates := make([]float64, len(sides))
	for round := range viewRounds + 1 {
		for n, url := range sides {
			rate, err := r.download(url)
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first one warms up
				rates[n] += rate / viewRounds
			}
		}
	}
	return []figure.Figure{{
		Name: "view", Value: rates[0] / rates[1], Unit: "ratio", Goal: 1,
		Beside: fmt.Sprintf("%.0f MB/s from the hub, %.0f MB/s from file_server", rates[0]/1e6, rates[1]/1e6),
	}}, nil
}

// noise is a file that cannot be compressed, as pictures cannot.
func noise(seed uint64) []byte {
	random := rand.NewChaCha8([32]byte{byte(seed)})
	b := make([]byte, pictureBytes)
	_, _ = random.Read(b) // never fails
	copy(b, "\x89PNG\r\n\x1a\n")
	return b
}

// upload gives the hub a picture and returns the name that it has there.
func upload(ctx context.Context, url string, content []byte) (string, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("image", "bench.png")
	if err != nil {
		return "", err
	}
	_, _ = part.Write(content) // into memory
	if err := form.Close(); err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, &body)
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", form.FormDataContentType())
	var stored struct{ Name string }
	return stored.Name, answer(http.DefaultClient, r, &stored)
}

// serveFiles starts Caddy's file server.
func (r *rig) serveFiles(folder string) (url string, err error) {
	return r.site("files", fmt.Sprintf("root %q\n\tfile_server", folder), "/bench.png")
}

// download reads a file over many connections and returns the bytes of a second.
func (r *rig) download(url string) (float64, error) {
	ctx, cancel := context.WithTimeout(r.ctx, viewSpan)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: viewers}}
	defer client.CloseIdleConnections()
	var (
		total  atomic.Int64
		failed error
		once   sync.Once
		all    sync.WaitGroup
	)
	begin := time.Now()
	for range viewers {
		all.Go(func() {
			for ctx.Err() == nil {
				n, err := fetch(ctx, client, url)
				total.Add(n)
				if err != nil && ctx.Err() == nil {
					once.Do(func() { failed = err })
					return
				}
			}
		})
	}
	all.Wait()
	return float64(total.Load()) / time.Since(begin).Seconds(), failed
}

// fetch reads a file and returns how many bytes came.
func fetch(ctx context.Context, client *http.Client, url string) (int64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || n != pictureBytes) {
		err = fmt.Errorf("GET %s: %s, %d bytes", url, resp.Status, n)
	}
	return n, err
}
