package bridge

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/config"
	"github.com/comfyhub/comfyhub/botbridge/internal/hubapi"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

const (
	filesPath = "/bridge/files"
	// linkLife is how long a link works.
	linkLife = 24 * time.Hour
)

// links hands outputs out to those who hold a signed, expiring link. The hub
// itself stays where nobody else reaches it.
type links struct {
	base   string // "" when there are none
	secret []byte
	hub    *hubapi.Client
	log    *slog.Logger
}

func newLinks(c *config.Config, hub *hubapi.Client, log *slog.Logger) (*links, error) {
	secret, err := c.LinkSecret.Read(c.Folder)
	if err != nil {
		return nil, err
	}
	const shortest = 16
	if c.PublicURL != "" && len(secret) < shortest {
		return nil, fmt.Errorf("link_secret needs %d characters at least", shortest)
	}
	return &links{base: strings.TrimRight(c.PublicURL, "/"), secret: []byte(secret), hub: hub, log: log}, nil
}

// link is what makes links, nil where there are none.
func (l *links) link() func(tenant string, ref comfyui.FileRef) string {
	if l.base == "" {
		return nil
	}
	return func(tenant string, ref comfyui.FileRef) string {
		query := url.Values{
			"tenant": {tenant}, "filename": {ref.Filename}, "subfolder": {ref.Subfolder}, "type": {ref.Type},
			"exp": {strconv.FormatInt(time.Now().Add(linkLife).Unix(), 10)},
		}
		query.Set("sig", l.sign(query))
		return l.base + filesPath + "?" + query.Encode()
	}
}

// sign is over all that says which file and until when, in one order.
func (l *links) sign(query url.Values) string {
	mac := hmac.New(sha256.New, l.secret)
	for _, name := range []string{"tenant", "filename", "subfolder", "type", "exp"} {
		fmt.Fprintf(mac, "%d:%s", len(query.Get(name)), query.Get(name))
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// ServeHTTP streams the file of a link.
func (l *links) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	expires, err := strconv.ParseInt(query.Get("exp"), 10, 64)
	if l.base == "" || err != nil || !hmac.Equal([]byte(l.sign(query)), []byte(query.Get("sig"))) {
		http.Error(w, "this link is not valid", http.StatusForbidden)
		return
	}
	if time.Now().Unix() > expires {
		http.Error(w, "this link has expired", http.StatusGone)
		return
	}
	ref := comfyui.FileRef{Filename: query.Get("filename"), Subfolder: query.Get("subfolder"), Type: query.Get("type")}
	body, size, err := l.hub.View(r.Context(), query.Get("tenant"), ref)
	switch {
	case errors.Is(err, hubapi.ErrNotFound):
		http.Error(w, "this file is not there any more", http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, "try again later", http.StatusBadGateway)
		return
	}
	defer body.Close()
	name := path.Base(ref.Filename)
	// Never shown as a page: what a workflow made could be one.
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Type", contentType(name))
	if size >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	}
	if _, err := io.Copy(w, body); err != nil {
		l.log.Debug("a file was not fetched to its end", "error", err)
	}
}

func contentType(name string) string {
	if kind := mime.TypeByExtension(path.Ext(name)); strings.HasPrefix(kind, "image/") || strings.HasPrefix(kind, "video/") || strings.HasPrefix(kind, "audio/") {
		return kind
	}
	return "application/octet-stream"
}
