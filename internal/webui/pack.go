package webui

import (
	"bytes"
	"context"
	"fmt"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/comfyhub/comfyhub/internal/panics"
)

// maxWindow is the largest window that browsers accept of zstd (RFC 9659), in
// bytes.
const maxWindow = 8 << 20

// packAll compresses files, one after the other, until the context ends. Nobody
// waits for it: until it is done a file is sent as it is.
func (f *Files) packAll(ctx context.Context) {
	var p packer
	for {
		if len(f.packs) == 0 {
			p = packer{}
		}
		select {
		case <-ctx.Done():
			return
		case file := <-f.packs:
			if !f.has(file) {
				continue
			}
			var packed []form
			err := panics.Do(f.log, "compressing a file of the web UI", func() (err error) {
				packed, err = p.pack(file.plain.body)
				return err
			})
			if err != nil {
				p = packer{}
				f.log.Warn("cannot compress a file of the web UI", "error", err)
				continue
			}
			f.keepPacked(file, packed)
		}
	}
}

// has reports whether a file is still kept.
func (f *Files) has(file *File) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lru.has(file)
}

func (f *Files) keepPacked(file *File, packed []form) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pack(file, packed)
}

// packer compresses. Its encoder takes tens of megabytes, so it is made for the
// hundreds of files that come when an instance has connected, and dropped then.
type packer struct{ zstd *zstd.Encoder }

// pack makes the compressed forms of a body that are smaller than it is.
func (p *packer) pack(body []byte) ([]form, error) {
	packed := []form{}
	z, err := p.packZstd(body)
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	g, err := packGzip(body)
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	for _, made := range []form{{"zstd", z}, {"gzip", g}} {
		if len(made.body) < len(body)*19/20 {
			packed = append(packed, made)
		}
	}
	return packed, nil
}

func (p *packer) packZstd(body []byte) (_ []byte, err error) {
	if p.zstd == nil {
		p.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithWindowSize(maxWindow))
		if err != nil {
			return nil, err
		}
	}
	return bytes.Clone(p.zstd.EncodeAll(body, nil)), nil // without the spare room
}

func packGzip(body []byte) ([]byte, error) {
	var out bytes.Buffer
	enc, err := gzip.NewWriterLevel(&out, gzip.DefaultCompression)
	if err != nil {
		return nil, err
	}
	if _, err := enc.Write(body); err != nil {
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	return bytes.Clone(out.Bytes()), nil
}
