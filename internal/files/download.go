package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/retry"
)

// download reads a file from an instance to its end, over as many connections as that takes: each
// goes on where the last one broke off. A line that is slow or flaky only costs time, and a large
// file does not start over.
type download struct {
	ctx      context.Context // ends all of it
	fetch    Fetch
	src      Source
	patience Patience

	// header and size are those of the first answer; size is -1 if it did not say.
	header http.Header
	size   int64
	read   int64 // bytes
	// body is the connection being read, nil between two; hangUp ends it.
	body   io.ReadCloser
	hangUp context.CancelFunc
	// heard is when the instance last sent something.
	heard time.Time
	// waited is how long the instance has been waited for in total.
	waited time.Duration
	pauses *retry.Backoff
}

// Patience is how long an instance may fail before a file of it counts as lost.
type Patience struct {
	// Contact is how long it may send nothing at all, over any number of
	// connections. Default: 1 minute.
	Contact time.Duration
	// Stall is how long a connection may be silent before it is cut and another one
	// is tried. Default: 20 seconds.
	Stall time.Duration
	// Rate is how many bytes a second it must send on average, after the time that Contact allows.
	// Only time spent waiting for it counts. Default: 4096.
	Rate int64
}

func (p Patience) withDefaults() Patience {
	if p.Contact <= 0 {
		p.Contact = time.Minute
	}
	if p.Stall <= 0 {
		p.Stall = 20 * time.Second
	}
	if p.Rate <= 0 {
		p.Rate = 4 << 10
	}
	return p
}

// left is how long an instance may still be waited for that has moved so many bytes while it was
// waited for so long; negative for one that is too slow.
func (p Patience) left(moved int64, waited time.Duration) time.Duration {
	return p.Contact + time.Duration(moved/p.Rate)*time.Second - waited
}

// startDownload asks for the file. If there is no error, it is there and the one that is meant.
func startDownload(ctx context.Context, fetch Fetch, src Source, patience Patience) (*download, error) {
	d := &download{
		ctx: ctx, fetch: fetch, src: src, patience: patience.withDefaults(), size: -1, heard: time.Now(),
		pauses: retry.New(100*time.Millisecond, 2*time.Second),
	}
	resp, err := d.ask(nil) //nolint:bodyclose // drop closes it
	if err != nil {
		return nil, err
	}
	if err := checkFetched(resp, src); err != nil {
		d.drop()
		return nil, err
	}
	d.header, d.size = resp.Header, resp.ContentLength
	return d, nil
}

// Read implements io.Reader.
func (d *download) Read(p []byte) (int, error) {
	for {
		if d.drips() {
			d.drop()
			return 0, fmt.Errorf("%w: it sends less than %d bytes a second", ErrInstance, d.patience.Rate)
		}
		n, err := d.some(p)
		if n > 0 {
			d.read, d.heard = d.read+int64(n), time.Now()
			d.pauses.Reset()
		}
		switch {
		case err == nil:
			return n, nil
		case d.read == d.size, d.size < 0 && errors.Is(err, io.EOF):
			return n, io.EOF
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF
		}
		d.drop()
		if n > 0 {
			return n, nil // the next call goes on
		}
		if final(err) || !d.resumable() || time.Since(d.heard) > d.patience.Contact || !d.pauses.Wait(d.ctx) {
			return 0, err
		}
	}
}

// some reads from the connection, making one if there is none.
func (d *download) some(p []byte) (int, error) {
	if d.body == nil {
		if err := d.resume(); err != nil {
			return 0, err
		}
	}
	// Only during the read: the storage may take longer with what is here.
	defer time.AfterFunc(d.patience.Stall, d.hangUp).Stop()
	began := time.Now()
	n, err := d.body.Read(p)
	d.waited += min(time.Since(began), d.patience.Stall) // more means that the process slept
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrInstance, err)
	}
	return n, err
}

// drips reports whether the instance sends too little to wait for: a file that arrives a byte now
// and then would occupy its run, and its uplink, for ever.
func (d *download) drips() bool { return d.patience.left(d.read, d.waited) < 0 }

// resume makes a connection that goes on where the last one broke off.
func (d *download) resume() error {
	header := http.Header{}
	if d.read > 0 {
		header.Set("Range", "bytes="+strconv.FormatInt(d.read, 10)+"-")
	}
	resp, err := d.ask(header) //nolint:bodyclose // drop closes it
	if err != nil {
		return err
	}
	if err := d.checkResumed(resp); err != nil {
		d.drop()
		return err
	}
	return nil
}

// checkResumed makes sure that an answer goes on with the same file.
func (d *download) checkResumed(resp *http.Response) error {
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return ErrChanged // it is shorter now
	}
	partial := resp.StatusCode == http.StatusPartialContent
	if !partial {
		if err := checkFetched(resp, d.src); err != nil {
			return err
		}
	}
	if d.fingerprint(resp.Header) != d.fingerprint(d.header) {
		return ErrChanged
	}
	if partial {
		if !strings.HasPrefix(resp.Header.Get("Content-Range"), "bytes "+strconv.FormatInt(d.read, 10)+"-") {
			return fmt.Errorf("%w: it sends another part of the file", ErrInstance)
		}
		return nil
	}
	// It sends everything again.
	defer time.AfterFunc(d.patience.Contact, d.hangUp).Stop()
	if _, err := io.CopyN(io.Discard, resp.Body, d.read); err != nil {
		return fmt.Errorf("%w: %w", ErrInstance, err)
	}
	return nil
}

// ask opens a connection.
func (d *download) ask(header http.Header) (*http.Response, error) {
	ctx, cancel := context.WithCancel(d.ctx)
	resp, err := d.fetch(ctx, d.src, header)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%w: %w", ErrInstance, err)
	}
	d.body, d.hangUp = resp.Body, cancel
	return resp, nil
}

// drop ends the connection, if there is one. The next Read makes another.
func (d *download) drop() {
	if d.body == nil {
		return
	}
	d.hangUp()
	_ = d.body.Close()
	d.body, d.hangUp = nil, nil
}

// resumable reports whether the instance tells enough to find the same file again.
func (d *download) resumable() bool { return d.fingerprint(d.header) != "" }

// fingerprint returns what tells one file from another of the same name, "" if nothing does.
func (d *download) fingerprint(h http.Header) string {
	if etag := h.Get("ETag"); etag != "" {
		return etag
	}
	return h.Get("Last-Modified")
}

// final reports whether an error will not pass: the file is not there, is not the one that is meant,
// or is too large.
func final(err error) bool {
	return errors.Is(err, ErrGone) || errors.Is(err, ErrChanged) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrClosed) ||
		errors.Is(err, errOutsized)
}
