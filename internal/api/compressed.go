package api

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Caddy's encode compresses answers. Its encoder takes up to three megabytes until the last
// byte is sent, for as long as the client reads nothing, and nobody counts that.
const (
	// compressedOfOne is how many answers are compressed for one caller at a time, and
	// compressedAtOnce for all.
	compressedOfOne, compressedAtOnce = 8, 64
	// leastCompressed is the size from which encode compresses, in bytes.
	leastCompressed = 512
)

// compressed counts the answers that are being compressed. It is safe for concurrent use.
type compressed struct {
	mu  sync.Mutex
	of  map[string]int
	all int
}

// take reports whether one more answer to a caller may be compressed.
func (c *compressed) take(share string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= compressedAtOnce || c.of[share] >= compressedOfOne {
		return false
	}
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[share]++
	c.all++
	return true
}

func (c *compressed) give(share string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[share]--; c.of[share] == 0 {
		delete(c.of, share)
	}
}

// bound has an answer say that it must not be compressed if too many of the caller's are. done
// must be called after the last byte.
func (c *compressed) bound(w http.ResponseWriter, r *http.Request, share string) (bounded http.ResponseWriter, done func()) {
	if r.Method == http.MethodHead || r.Header.Get("Accept-Encoding") == "" {
		return w, func() {}
	}
	taken := false
	late := &LateWriter{ResponseWriter: w, Late: func(header http.Header, status int) {
		if !compressible(header, status) {
			return
		}
		// Events go on for hours.
		if taken = mediaType(header.Values("Content-Type")) != "text/event-stream" && c.take(share); !taken {
			header.Add("Cache-Control", "no-transform")
		}
	}}
	return late, func() {
		if !taken {
			return
		}
		// Otherwise the encoder would send its last part after this.
		_ = http.NewResponseController(w).Flush()
		c.give(share)
	}
}

// compressible reports whether encode may compress an answer. Pictures are most of what is
// sent, and it leaves them alone.
func compressible(header http.Header, status int) bool {
	kind := mediaType(header.Values("Content-Type"))
	length, err := strconv.ParseInt(header.Get("Content-Length"), 10, 64)
	return status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified &&
		header.Get("Content-Encoding") == "" && (err != nil || length >= leastCompressed) &&
		!isMedia(kind) && (!strings.HasPrefix(kind, "image/") || ofXML(kind))
}
